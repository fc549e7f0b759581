"""The file of ``--resume``: what an interrupted audit has read, so that the next run need not read it again.

What is saved is whole resources. Where in a resource a run was interrupted is not: the API server forgets that, too.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cli.audit.on_spot import SpotState
from webhook.cli.exits import CannotJudgeError
from webhook.cli.report import ObjectReport  # noqa: TC001 - msgspec reads the annotations
from webhook.cli.writing import write_whole

if TYPE_CHECKING:
    from pathlib import Path

OLD: Final = timedelta(hours=1)
"""The age at which what was read says too little of the cluster as it is now."""


class Saved(msgspec.Struct, kw_only=True):
    """Hold what was read.

    Attributes:
        of: which audit it is: cluster, policies and flags.
        begun: when it began.
        done: the resources that were read.
        judged: the number of objects that were judged.
        owned: the number of objects that were not, as their owner was.
        objects: the objects with findings.
        spot: the workloads on spot Nodes.
    """

    of: str
    begun: datetime
    done: list[str] = []
    judged: int = 0
    owned: int = 0
    objects: list[ObjectReport] = []
    spot: SpotState = msgspec.field(default_factory=SpotState)


class Progress:
    """The file, and what is in it. Without a file nothing is kept.

    Args:
        file: its path, or None.
        of: which audit this is.
        now: the time.

    Attributes:
        saved: what was read before, if that is of the same audit and not `OLD`; else nothing.

    Raises:
        CannotJudgeError: the file is of another audit, or is none.
    """

    def __init__(self, file: Path | None, of: str, now: datetime) -> None:
        self._file = file
        self.saved = Saved(of=of, begun=now)
        if file is None or not file.exists():
            return
        try:
            found = msgspec.json.decode(file.read_bytes(), type=Saved)
        except OSError as error:
            raise CannotJudgeError(f"error: --resume {file}: {error.strerror or error}; name a file") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = f"--resume {file}: no file of an audit; remove it, or name another one"
            raise CannotJudgeError(f"error: {text}") from None
        if found.of != of:
            text = f"--resume {file}: of another audit ({found.of}), and this is {of}; remove it, or name another one"
            raise CannotJudgeError(f"error: {text}")
        if now - found.begun < OLD:
            self.saved = found

    def save(self) -> None:
        """Write the file, whole or not at all. Raise CannotJudgeError if it can't be written."""
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(self.saved))
        except OSError as error:
            raise CannotJudgeError(f"error: --resume {self._file}: {error.strerror or error}") from None

    def finish(self) -> None:
        """Remove the file: the next run begins anew."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
