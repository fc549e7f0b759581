"""Run spotgate with shorter polling intervals and a shorter drain, to speed up tests. The arguments are those of `spotgate`."""

from __future__ import annotations

import sys

from webhook.server import limits

limits.LIMITS = limits.Limits(certificate_poll=0.5, certificate_settle=2, policy_poll=0.5, quiet=3)  # type: ignore[misc]

from webhook.commands import main  # noqa: E402 - it reads the limits on import

sys.exit(main())
