"""JSONPatch (RFC 6902), recorded while an object is changed: nothing is compared afterwards.

The webhook only ever emits ``add``. On a member that is there ``add`` replaces it, so one operation fits an object
before and after the API server's defaulting. Whole arrays are never replaced: ``/-`` appends. The remedies of findings,
which the API server never sees, also remove and replace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Operation(msgspec.Struct, frozen=True):
    """One operation, and the policy that wanted it.

    Attributes:
        path: a JSON pointer into the object of the request.
        value: JSON; finite numbers only. Of ``remove`` it does not matter.
        policy: name of the policy it came from; empty until the engine knows.
    """

    path: str
    value: Any
    policy: str = ""
    op: Literal["add", "remove", "replace"] = "add"

    def as_json(self) -> dict[str, Any]:
        """The operation as RFC 6902 writes it."""
        if self.op == "remove":
            return {"op": self.op, "path": self.path}
        return {"op": self.op, "path": self.path, "value": self.value}


class PatchError(Exception):
    """A patch that does not fit the value."""


def pointer(segments: Iterable[str | int]) -> str:
    """Segments as a JSON pointer, ``~`` and ``/`` escaped (RFC 6901)."""
    return "".join(f"/{str(segment).replace('~', '~0').replace('/', '~1')}" for segment in segments)


def removal(path: Iterable[str | int]) -> Operation:
    """What removes the member at ``path``."""
    return Operation(pointer(path), None, op="remove")


def replacement(path: Iterable[str | int], value: Any) -> Operation:  # noqa: ANN401 - JSON
    """What puts ``value`` in place of the one at ``path``."""
    return Operation(pointer(path), value, op="replace")


def move(path: Iterable[str | int], to: Iterable[str | int], value: Any) -> tuple[Operation, Operation]:  # noqa: ANN401
    """What takes the member with this value from ``path``, and puts it ``to`` another."""
    return removal(path), Operation(pointer(to), value)


def apply_all(operations: Iterable[Operation], value: dict[str, Any]) -> dict[str, Any]:
    """The value with the operations applied, as `apply_json` does it."""
    patched: dict[str, Any] = apply_json([operation.as_json() for operation in operations], value)
    return patched


def apply_json(patch: Sequence[dict[str, Any]], value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with a JSONPatch applied; what it leads through is changed in place.

    Raises:
        PatchError: what it leads through, removes or replaces is not there.
    """
    if not patch:
        return value
    import jsonpatch  # noqa: PLC0415 - 10 ms, and few need it
    import jsonpointer  # noqa: PLC0415

    try:
        return jsonpatch.apply_patch(value, patch, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(str(error)) from None


class Recorder:
    """Collects operations for one place in an object (its root, or a pod template inside it).

    Attributes:
        policy: the policy at work; the engine sets it.
        operations: what was recorded, in order.
    """

    __slots__ = ("operations", "policy", "prefix")

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.policy = ""
        self.operations: list[Operation] = []

    def add(self, path: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Record ``add`` of ``value`` at ``path``, a JSON pointer below the prefix."""
        self.operations.append(Operation(self.prefix + path, value, self.policy))
