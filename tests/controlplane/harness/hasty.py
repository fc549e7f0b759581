"""Run spotgate with less time between its looks at files, so that a test waits less: the arguments are those of `spotgate`."""

from __future__ import annotations

import sys

from webhook.server import limits

limits.LIMITS = limits.Limits(certificate_poll=0.5, certificate_settle=2, policy_poll=0.5)  # type: ignore[misc]

from webhook.commands import main  # noqa: E402 - which takes the limits over

sys.exit(main())
