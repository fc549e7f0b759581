"""Read untrusted files: don't wait for pipes, and don't read devices to their end."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from webhook.base.bounds import FILE_AT_MOST

if TYPE_CHECKING:
    from pathlib import Path

_PAGE: Final = 64 * 1024


def read_file(file: str | Path, *, pipes: bool = False, whole: bool = True) -> bytes:
    """Return the content of a file. Raise OSError if the file can't be read or is too large.

    With ``pipes``, also read a pipe or a device: the user named it. Without ``whole``, return the beginning of a file
    that is too large.
    """
    with open(file, "rb", opener=None if pipes else _without_waiting) as opened:
        if not (pipes or stat.S_ISREG(os.fstat(opened.fileno()).st_mode)):
            raise OSError(errno.EINVAL, "it is not a regular file; put a file there, or leave it out", str(file))
        begin = opened.read(_PAGE)  # a read allocates the size that it requests
        data = begin if len(begin) < _PAGE else begin + opened.read(FILE_AT_MOST + 1 - _PAGE)
    if whole and len(data) > FILE_AT_MOST:
        text = f"it has more than {FILE_AT_MOST} bytes; split it into several files"
        raise OSError(errno.EFBIG, text, str(file))
    return data


def _without_waiting(file: str, flags: int) -> int:
    """Open a file. If it is a pipe, don't wait for a writer."""
    return os.open(file, flags | os.O_NONBLOCK)
