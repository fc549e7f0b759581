"""Write files whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_DEFAULT_MODE = 0o644


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Its mode and its owner stay, and a symbolic link stays one.

    Raise OSError if it can't be written; its content is unchanged.
    """
    if path.exists() and not path.is_file():  # /dev/null, a pipe: nothing to put in its place
        path.write_bytes(data)
        return
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        if target.exists():
            before, after = target.stat(), Path(name).stat()
            if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
                os.chown(name, before.st_uid, before.st_gid)
            shutil.copymode(target, name)
        else:
            Path(name).chmod(_DEFAULT_MODE)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
