"""The one walk over a Pod's containers, and the small questions that are asked of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.globs import Globs
    from webhook.kube.pod import Container, Handler, Pod

OS_LABEL: Final = "kubernetes.io/os"
WINDOWS: Final = "windows"

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash"})
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_MOST_DIGITS: Final = 9
"""Thirty years of seconds; Python refuses to convert thousands of digits."""


class PlacedContainer(msgspec.Struct, frozen=True):
    """A container, and where in the Pod it is."""

    members: Literal["initContainers", "containers", "ephemeralContainers"]
    index: int
    container: Container

    @property
    def field(self) -> str:
        """Its field path: ``spec.initContainers[0]``."""
        return f"spec.{self.members}[{self.index}]"

    @property
    def sidecar(self) -> bool:
        """True for a restartable init container: it runs, and stops, beside the ordinary ones."""
        return self.members == "initContainers" and self.container.restartPolicy == "Always"


def containers(pod: Pod) -> Iterator[PlacedContainer]:
    """Every container of a Pod, of all three lists: init, ordinary, ephemeral."""
    for index, container in enumerate(pod.spec.initContainers or ()):
        yield PlacedContainer("initContainers", index, container)
    for index, container in enumerate(pod.spec.containers):
        yield PlacedContainer("containers", index, container)
    for index, container in enumerate(pod.spec.ephemeralContainers or ()):
        yield PlacedContainer("ephemeralContainers", index, container)


def requests_any(pod: Pod, resources: Globs) -> bool:
    """Does a container request, or limit itself to, more than zero of a resource with such a name?"""
    for placed in containers(pod):
        wanted = placed.container.resources
        if wanted is None:
            continue
        for quantities in (wanted.limits, wanted.requests):
            for name, quantity in (quantities or {}).items():
                if resources.match(name) and not _is_zero(quantity):
                    return True
    return False


def _is_zero(quantity: str | float) -> bool:
    """Whether a quantity (``0``, ``0.0``, ``0k``, ``0e3``) is zero: no digit follows its leading zeros."""
    return not str(quantity).lstrip("+-0.")[:1].isdigit()


def declares_port(pod: Pod) -> bool:
    """Does a container say that it listens?"""
    return any(placed.container.ports for placed in containers(pod))


def is_windows(pod: Pod) -> bool:
    """Does the Pod say that it runs on Windows?"""
    spec = pod.spec
    if spec.os is not None and spec.os.name == WINDOWS:
        return True
    return spec.nodeSelector is not None and spec.nodeSelector.get(OS_LABEL) == WINDOWS


def without_pre_stop(pod: Pod) -> tuple[int, ...]:
    """Indexes in ``spec.containers`` of those that have no preStop hook."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if container.lifecycle is None or container.lifecycle.preStop is None
    )


class HookSleep(msgspec.Struct, frozen=True):
    """A lifecycle hook that begins with a sleep.

    Attributes:
        placed: the container.
        hook: which of its hooks.
        seconds: how long it sleeps.
        native: it is the API's own ``sleep``, which the API server holds against the grace period.
    """

    placed: PlacedContainer
    hook: Literal["preStop", "postStart"]
    seconds: int
    native: bool

    @property
    def field(self) -> str:
        """The hook's field path: ``spec.containers[0].lifecycle.preStop``."""
        return f"{self.placed.field}.lifecycle.{self.hook}"


def hook_sleeps(pod: Pod) -> Iterator[HookSleep]:
    """Every sleep in a lifecycle hook: the native ones, and commands that begin with ``sleep``."""
    for placed in containers(pod):
        lifecycle = placed.container.lifecycle
        if lifecycle is None:
            continue
        if lifecycle.preStop is not None and (seconds := sleep_seconds(lifecycle.preStop)):
            yield HookSleep(placed, "preStop", seconds, lifecycle.preStop.sleep is not None)
        if lifecycle.postStart is not None and (seconds := sleep_seconds(lifecycle.postStart)):
            yield HookSleep(placed, "postStart", seconds, lifecycle.postStart.sleep is not None)


def longest_sleep(pod: Pod) -> int:
    """The longest of them, in seconds; 0 where there is none."""
    return max((sleep.seconds for sleep in hook_sleeps(pod)), default=0)


def sleep_seconds(handler: Handler) -> int:
    """How long a hook sleeps before anything else; 0 where it does not, or does not say so plainly."""
    if handler.sleep is not None:
        return handler.sleep.seconds
    return _leading_sleep(handler.exec.command or ()) if handler.exec is not None else 0


def is_all_sleep(handler: Handler) -> bool:
    """Is the sleep of `sleep_seconds` all that the hook does?"""
    if handler.sleep is not None:
        return True
    match handler.exec.command or () if handler.exec is not None else ():
        case [shell, option, script, *_] if _program(shell) in _SHELLS and _takes_script(option):
            words: Sequence[str] = script.split()
        case words:
            pass
    match words:
        case [_, _]:
            return sleep_seconds(handler) > 0
    return False


def _leading_sleep(command: Sequence[str]) -> int:
    match command:
        case [shell, option, script, *_] if _program(shell) in _SHELLS and _takes_script(option):
            return _leading_sleep(script.split(maxsplit=2))
        case [program, duration, *_] if _program(program) == "sleep":
            return _duration(duration.rstrip(";"))
    return 0


def _program(path: str) -> str:
    return path.rpartition("/")[2]


def _takes_script(option: str) -> bool:
    return option.startswith("-") and option.endswith("c")


def _duration(text: str) -> int:
    """Seconds in ``15``, ``15s``, ``2m``, ``1h``; 0 for anything else."""
    unit = _UNITS.get(text[-1:])
    digits = text if unit is None else text[:-1]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        return 0
    return int(digits) * (unit or 1)
