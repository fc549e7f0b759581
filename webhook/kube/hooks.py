"""Read how long the lifecycle hooks of a Pod take.

The time of a hook is known if its commands only sleep, or if `timeout` bounds them. No shell is parsed: the time of
anything else is unknown.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.kube.containers import PlacedContainer, containers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.kube.pod import Handler, Pod

FOREVER: Final = 999_999_999
"""The seconds of a sleep that never ends, such as `sleep infinity`: thirty years."""

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "zsh", "ksh"})
_INSTANT: Final = frozenset({"", "exec", "env", "busybox", "nohup", "command", "true", ":", "set", "-e", "exit", "0"})
"""Words that take no time, or run the command that follows."""
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}
_DURATION: Final = r"(?:[0-9]{1,9}(?:\.[0-9]{0,9})?[smhd]?|inf(?:inity)?)(?![\w.$])"
_ARGUMENTS: Final = r"""(?:'[^']*'|"[^"]*"|[^;&|()\n'"])*"""
_TIMED: Final = re.compile(
    rf"(?<!\S)\#[^\n]*|\becho\b{_ARGUMENTS}"
    rf"|(?<![\w.$-])(?:sleep((?:[ \t]+{_DURATION})+)|timeout[ \t]+(?=[0.]*[1-9i])({_DURATION}){_ARGUMENTS})",
    re.ASCII,
)
"""A comment, an `echo`, a sleep with its durations, or a `timeout` with its bound. A bound of 0 bounds nothing."""
_SEPARATORS: Final = re.compile(r"[\s;&|()]+")
_LONGEST_COMMAND: Final = 4096
"""Characters of a command that are read: hooks have some dozens."""


class HookTime(NamedTuple):
    """The time that a hook takes.

    Attributes:
        seconds: the seconds of all its sleeps.
        exact: the hook takes no longer than that.
    """

    seconds: int
    exact: bool


class HookSleep(msgspec.Struct, frozen=True):
    """A lifecycle hook that sleeps: preStop or postStart.

    Attributes:
        native: it is the API's own ``sleep``, which the API server checks against the grace period.
    """

    placed: PlacedContainer
    hook: str
    seconds: int
    native: bool

    @property
    def field(self) -> str:
        """Return the hook's field path: ``spec.containers[0].lifecycle.preStop``."""
        return f"{self.placed.field}.lifecycle.{self.hook}"


def hook_sleeps(pod: Pod) -> Iterator[HookSleep]:
    """Yield every lifecycle hook that sleeps, with the native ``sleep`` or in its command."""
    for placed in containers(pod):
        for hook in ("preStop", "postStart") if placed.container.lifecycle is not None else ():
            handler: Handler | None = getattr(placed.container.lifecycle, hook)
            if handler is not None and (seconds := time_of(handler).seconds):
                yield HookSleep(placed, hook, seconds, handler.sleep is not None)


def longest_sleep(pod: Pod) -> int:
    """Return the longest sleep in a lifecycle hook, in seconds; 0 if there is none."""
    return max((sleep.seconds for sleep in hook_sleeps(pod)), default=0)


def spelled(seconds: int) -> str:
    """Return the time of a sleep as text: ``15 s``, or ``forever``."""
    return "forever" if seconds >= FOREVER else f"{seconds} s"


def unknown_hook(pod: Pod) -> str:
    """Return the name of the first container whose preStop hook takes an unknown time; empty if there is none."""
    for placed in containers(pod):
        lifecycle = placed.container.lifecycle
        if lifecycle is not None and lifecycle.preStop is not None and not time_of(lifecycle.preStop).exact:
            return placed.container.name
    return ""


def time_of(handler: Handler) -> HookTime:
    """Return how long a hook takes.

    The kubelet waits for the answer to an ``httpGet`` without a limit (``insecureContainerLifecycleHTTPClient`` in
    https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kubelet.go), and an endpoint that drains
    connections answers when they are closed (https://projectcontour.io/docs/main/redeploy-envoy/): its time is unknown.
    """
    if handler.sleep is not None:
        return HookTime(handler.sleep.seconds, exact=True)
    text = _script(handler.exec.command or ()) if handler.exec is not None else None
    if text is None or len(text) > _LONGEST_COMMAND:
        return HookTime(0, exact=False)
    durations = " ".join(f"{match[1] or ''} {match[2] or ''}" for match in _TIMED.finditer(text)).split()
    others = {word.rpartition("/")[2] for word in _SEPARATORS.split(_TIMED.sub("", text))}
    # What a shell expands or unquotes may hide a command.
    exact = others <= _INSTANT and not set("\\`$") & set(text)
    return HookTime(min(math.ceil(sum(map(_seconds, durations))), FOREVER), exact)


def _script(command: Sequence[str]) -> str:
    """Return the script that a shell runs, or the command as a shell would take it. `timeout` bounds a script."""
    programs = {word.rpartition("/")[2] for word in command[:-2]}
    if programs & _SHELLS and "timeout" not in programs and command[-2].startswith("-") and command[-2].endswith("c"):
        return command[-1]
    return shlex.join(command)


def _seconds(duration: str) -> float:
    """Return the seconds in ``15``, ``0.5s``, ``2m`` or ``infinity``."""
    return FOREVER if duration.startswith("inf") else float(duration.rstrip("smhd")) * _UNITS.get(duration[-1], 1)
