"""Run the program as ``python -m webhook``."""

from __future__ import annotations

import sys

from webhook.commands import main

sys.exit(main())
