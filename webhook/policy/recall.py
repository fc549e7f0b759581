"""Policy files that were found valid need no second look: what validation made of them is kept, as plain data.

Validating the policies is most of what a command does that judges one manifest: pydantic and its models take longer to
import than all else together. What is kept lies under a name made of the files' content and of this program's code, so
that another byte in either is another name. It is the user's own, like the byte code that Python keeps of modules, and
can be deleted at any time. Reading it can make nothing but objects of the few classes named here.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.policy.document import PolicyDocument

_PACKAGE: Final = Path(__file__).resolve().parents[1]

_PREFIX: Final = "policies-"

_KEPT: Final = 16
"""Sets of policy files; that of the shipped ones takes 90 KB."""

_CLASSES: Final = frozenset(
    {
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("datetime", "date"),
        ("webhook.documents", "Document"),
        ("webhook.policy.document", "PolicyDocument"),
        ("webhook.policy.recall", "Recalled"),
        ("webhook.policy.terms", "Enforcement"),
    }
)


class Recalled:
    """Stands for a model of a policy file: the same fields, with what validation made of them."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recalled) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))


class Recall:
    """What is kept of one set of policy files.

    Args:
        folder: where sets are kept; it need not be there.
        files: all of them.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self._folder = folder
        self._files = files
        self._name = self._named()

    def documents(self) -> list[PolicyDocument] | None:
        """What validation made of the files; None: they have not been seen, or what was kept can't be read."""
        try:
            with (self._folder / self._name).open("rb") as kept:
                documents: list[PolicyDocument] = _Reader(kept).load()
        except Exception:  # noqa: BLE001 - a damaged pickle raises anything; the files say it all
            return None
        return documents

    def keep(self, documents: Sequence[PolicyDocument]) -> None:
        """Keep what validation made of the files; where that can't be written, it will be made again."""
        if not self._name or self._name != self._named():
            return  # Somebody changed them in the meantime.
        made = io.BytesIO()
        _Writer(made, pickle.HIGHEST_PROTOCOL).dump(list(documents))
        partial = self._folder / f".{self._name}.{os.getpid()}"
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                partial.write_bytes(made.getvalue())
                partial.replace(self._folder / self._name)
            finally:
                partial.unlink(missing_ok=True)
            kept = sorted(self._folder.glob(f"{_PREFIX}*"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in kept[_KEPT:]:
                file.unlink(missing_ok=True)

    def _named(self) -> str:
        """The name of what is kept; empty where a file can't be read."""
        digest = hashlib.sha256(repr((sys.version_info, _code())).encode())
        try:
            for file in self._files:
                data = file.read_bytes()
                digest.update(f"{file}\0{len(data)}\0".encode(errors="surrogateescape") + data)
        except OSError:
            return ""
        return f"{_PREFIX}{digest.hexdigest()[:32]}"


class _Writer(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:  # noqa: ANN401 - as pickle has it
        from pydantic import BaseModel  # noqa: PLC0415 - who validates has it; who recalls must not need it

        return (Recalled, (value.__dict__,)) if isinstance(value, BaseModel) else NotImplemented


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that is kept of policies")
        return super().find_class(module, name)


def _code() -> list[tuple[str, int, int]]:
    """What tells one state of this program's modules from another."""
    states = ((str(file), file.stat()) for file in sorted(_PACKAGE.rglob("*.py")))
    return [(name, state.st_mtime_ns, state.st_size) for name, state in states]


def cache_folder() -> Path | None:
    """Where this user's programs keep what can be made again; None: nowhere.

    ``SPOTGATE_CACHE_DIR`` names another folder, or none where it is empty.

    Source: https://specifications.freedesktop.org/basedir-spec/latest/
    """
    if (own := os.environ.get("SPOTGATE_CACHE_DIR")) is not None:
        return Path(own) if own else None
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "spotgate"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "spotgate"
    return None
