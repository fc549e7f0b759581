"""Files that a command writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_DEFAULT_MODE = 0o644


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Its mode stays, and a symbolic link stays one.

    Raises:
        OSError: it can't be written; what was there is still there.
    """
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        if target.exists():
            shutil.copymode(target, name)
        else:
            Path(name).chmod(_DEFAULT_MODE)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
