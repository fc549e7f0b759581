"""Walk over a Pod's containers, and read facts from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.globs import Globs
    from webhook.kube.pod import Container, Handler, Pod

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
WINDOWS: Final = "windows"

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash"})
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_MOST_DIGITS: Final = 9
"""Thirty years of seconds; Python refuses to convert thousands of digits."""


class PlacedContainer(msgspec.Struct, frozen=True):
    """Hold a container and its place in the Pod."""

    members: Literal["initContainers", "containers", "ephemeralContainers"]
    index: int
    container: Container

    @property
    def field(self) -> str:
        """Return the field path: ``spec.initContainers[0]``."""
        return f"spec.{self.members}[{self.index}]"

    @property
    def sidecar(self) -> bool:
        """Return whether this is a restartable init container, which runs and stops beside the ordinary ones."""
        return self.members == "initContainers" and self.container.restartPolicy == "Always"


def containers(pod: Pod) -> Iterator[PlacedContainer]:
    """Yield every container of a Pod: init, ordinary and ephemeral ones."""
    for index, container in enumerate(pod.spec.initContainers or ()):
        yield PlacedContainer("initContainers", index, container)
    for index, container in enumerate(pod.spec.containers):
        yield PlacedContainer("containers", index, container)
    for index, container in enumerate(pod.spec.ephemeralContainers or ()):
        yield PlacedContainer("ephemeralContainers", index, container)


def requested_of(pod: Pod, resources: Globs) -> frozenset[str]:
    """Return the resources with such a name of which a container requests, or is limited to, more than zero."""
    return frozenset(
        name
        for placed in containers(pod)
        if (wanted := placed.container.resources) is not None
        for quantities in (wanted.limits, wanted.requests)
        for name, quantity in (quantities or {}).items()
        if resources.match(name) and not is_zero(quantity)
    )


def is_zero(quantity: str | float) -> bool:
    """Return whether a quantity (``0``, ``0.0``, ``0k``, ``0e3``) is zero: no digit follows its leading zeros."""
    return not str(quantity).lstrip("+-0.")[:1].isdigit()


def declares_port(pod: Pod) -> bool:
    """Return whether a container declares a port."""
    return any(placed.container.ports for placed in containers(pod))


def is_windows(pod: Pod) -> bool:
    """Return whether the Pod says that it runs on Windows."""
    spec = pod.spec
    if spec.os is not None and spec.os.name == WINDOWS:
        return True
    return spec.nodeSelector is not None and spec.nodeSelector.get(OS_LABEL) == WINDOWS


def without_pre_stop(pod: Pod) -> tuple[int, ...]:
    """Return the indexes in ``spec.containers`` of containers without a preStop hook."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if container.lifecycle is None or container.lifecycle.preStop is None
    )


class HookSleep(msgspec.Struct, frozen=True):
    """Describe a lifecycle hook that begins with a sleep.

    Attributes:
        native: it is the API's own ``sleep``, which the API server checks against the grace period.
    """

    placed: PlacedContainer
    hook: Literal["preStop", "postStart"]
    seconds: int
    native: bool

    @property
    def field(self) -> str:
        """Return the hook's field path: ``spec.containers[0].lifecycle.preStop``."""
        return f"{self.placed.field}.lifecycle.{self.hook}"


def hook_sleeps(pod: Pod) -> Iterator[HookSleep]:
    """Yield every sleep in a lifecycle hook: the native ones, and commands that begin with ``sleep``."""
    for placed in containers(pod):
        lifecycle = placed.container.lifecycle
        if lifecycle is None:
            continue
        if lifecycle.preStop is not None and (seconds := sleep_seconds(lifecycle.preStop)):
            yield HookSleep(placed, "preStop", seconds, lifecycle.preStop.sleep is not None)
        if lifecycle.postStart is not None and (seconds := sleep_seconds(lifecycle.postStart)):
            yield HookSleep(placed, "postStart", seconds, lifecycle.postStart.sleep is not None)


def longest_sleep(pod: Pod) -> int:
    """Return the longest sleep in a lifecycle hook, in seconds; 0 if there is none."""
    return max((sleep.seconds for sleep in hook_sleeps(pod)), default=0)


def sleep_seconds(handler: Handler) -> int:
    """Return how long a hook sleeps before anything else; 0 if it does not, or if that is unclear."""
    if handler.sleep is not None:
        return handler.sleep.seconds
    match _words(handler):
        case [program, duration, *_] if _program(program) == "sleep":
            return _duration(duration.rstrip(";"))
    return 0


def is_all_sleep(handler: Handler) -> bool:
    """Return whether the hook does nothing but sleep, as `sleep_seconds` reads it."""
    if handler.sleep is not None:
        return True
    return len(_words(handler)) == 2 and sleep_seconds(handler) > 0  # noqa: PLR2004 - the program and its time


def _words(handler: Handler) -> Sequence[str]:
    """Return the words of a hook's command, without the shell that runs it."""
    command = (handler.exec.command or ()) if handler.exec is not None else ()
    match command:
        case [shell, option, script, *_] if _program(shell) in _SHELLS and option.startswith("-") and option[-1] == "c":
            return script.split()
    return command


def _program(path: str) -> str:
    return path.rpartition("/")[2]


def _duration(text: str) -> int:
    """Return the seconds in ``15``, ``15s``, ``2m`` or ``1h``; 0 for anything else."""
    unit = _UNITS.get(text[-1:])
    digits = text if unit is None else text[:-1]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return 0
    return int(digits) * (unit or 1)
