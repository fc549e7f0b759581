"""Run spotgate with shorter polling intervals and a shorter drain, to speed up tests. The arguments are those of `spotgate`."""

from __future__ import annotations

import sys

from webhook.runtime import limits

limits.LIMITS = limits.Limits(certificate_poll=0.5, certificate_settle=2, policy_poll=0.5, quiet=3)  # type: ignore[misc]

from webhook.commands import command_parser, main  # noqa: E402 - it reads the limits on import

for command in "serve", "controller":
    command_parser("spotgate", command)  # imports it

if __name__ == "__main__":
    sys.exit(main())
