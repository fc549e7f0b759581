"""``check -o json``: for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from webhook.cli.report import Report


def show(report: Report) -> None:
    """Print the report as one JSON object."""
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
