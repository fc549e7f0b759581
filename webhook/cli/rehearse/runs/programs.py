"""The programs of the control plane: where they are, and how they are had."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from webhook.cli.exits import CannotJudgeError
from webhook.controlplane.binaries import EVERYTHING, BinariesError, find, find_or_build, report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def find_programs(folder: Path | None) -> Mapping[str, Path] | None:
    """Return the programs in this folder, or where they are looked for. Return None if they are nowhere.

    Raises:
        CannotJudgeError: the folder does not have all of them.
    """
    needed = EVERYTHING - {"kubectl"}
    if folder is None:
        return find(needed)
    missing = [name for name in sorted(needed) if not os.access(folder / name, os.X_OK)]
    if missing:
        raise CannotJudgeError(f"spotgate rehearse: --binaries {folder}: {', '.join(missing)} can't be run from there")
    return {name: folder / name for name in needed}


def prepare() -> None:
    """Build what is missing, with its progress on standard error. Raises CannotJudgeError."""
    try:
        for path in find_or_build().values():
            report(str(path))
    except BinariesError as error:
        raise CannotJudgeError(f"spotgate rehearse --prepare: {error}") from None
