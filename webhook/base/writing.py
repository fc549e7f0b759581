"""Write files atomically."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from webhook.base.reading import read_file

_DEFAULT_MODE = 0o644
_WRITABLE = 0o222


def write_whole(path: Path, data: bytes, *, expected: bytes | None = None) -> None:
    """Write a file atomically. Keep its mode and owner, and follow symbolic links.

    With ``expected``, the content that the file had when it was read, don't write the file if its content has changed,
    if it is read-only, or if it has other hard links, which would keep the old content.
    Raise OSError if the file can't be written; its content is then unchanged.
    """
    if path.exists() and not path.is_file():  # /dev/null or a pipe: can't be replaced
        path.write_bytes(data)
        return
    target = path.resolve()
    if expected is not None:
        _refuse_to_replace(target.stat())
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
        if expected is not None and read_file(target) != expected:
            raise OSError(errno.EBUSY, "another process has changed it meanwhile; try again")  # noqa: TRY301 - undone below
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _refuse_to_replace(status: os.stat_result) -> None:
    """Raise OSError if a file is read-only, even if root could write it, or has several hard links."""
    if not status.st_mode & _WRITABLE:
        raise OSError(errno.EACCES, "it is read-only; make it writable first (chmod u+w)")
    if status.st_nlink > 1:
        text = f"it has {status.st_nlink} names (hard links), and one of them would change; copy it first (cp, then mv)"
        raise OSError(errno.EMLINK, text)
