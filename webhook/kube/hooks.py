"""Estimate how long the lifecycle hooks of a Pod take.

The time of a hook is known if its commands only sleep, or if `timeout` limits them. The time of any other command is
unknown, because spotgate doesn't parse shell scripts.
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
"""The seconds of an endless sleep, such as `sleep infinity`: about 30 years."""

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "zsh", "ksh"})
_INSTANT: Final = frozenset({"", "exec", "env", "busybox", "nohup", "command", "true", ":", "set", "-e", "exit", "0"})
"""Words that take no time, or that run the command after them."""
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}
_DURATION: Final = r"(?:[0-9]{1,9}(?:\.[0-9]{0,9})?[smhd]?|inf(?:inity)?)(?![\w.$])"
_ARGUMENTS: Final = r"""(?:'[^']*'|"[^"]*"|[^;&|()\n'"])*"""
_TIMED: Final = re.compile(
    rf"(?<!\S)\#[^\n]*|\becho\b{_ARGUMENTS}"
    rf"|(?<![\w.$-])(?:sleep((?:[ \t]+{_DURATION})+)|timeout[ \t]+(?=[0.]*[1-9i])({_DURATION}){_ARGUMENTS})",
    re.ASCII,
)
"""A comment, an `echo`, a sleep with its durations, or a `timeout` with its limit. A limit of 0 means no limit."""
_SEPARATORS: Final = re.compile(r"[\s;&|()]+")
_LONGEST_COMMAND: Final = 4096
"""The maximum length of a command to analyze, in characters. Typical hooks have a few dozen."""


class HookTime(NamedTuple):
    """The time that a hook takes.

    Attributes:
        seconds: the total of its sleeps and time limits.
        exact: whether the hook takes no longer than that.
    """

    seconds: int
    exact: bool


class HookSleep(msgspec.Struct, frozen=True):
    """A preStop or postStart hook that sleeps.

    Attributes:
        native: whether it is a ``sleep`` action, which the API server checks against the grace period.
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
    """Yield every lifecycle hook that sleeps, with the native ``sleep`` action or in its command."""
    for placed in containers(pod):
        for hook in ("preStop", "postStart") if placed.container.lifecycle is not None else ():
            handler: Handler | None = getattr(placed.container.lifecycle, hook)
            if handler is not None and (seconds := time_of(handler).seconds):
                yield HookSleep(placed, hook, seconds, handler.sleep is not None)


def longest_sleep(pod: Pod) -> int:
    """Return the longest sleep of a lifecycle hook, in seconds, or 0 if there is none."""
    return max((sleep.seconds for sleep in hook_sleeps(pod)), default=0)


def spelled(seconds: int) -> str:
    """Format the time of a sleep: ``15 s``, or ``forever``."""
    return "forever" if seconds >= FOREVER else f"{seconds} s"


def unknown_hook(pod: Pod) -> str:
    """Return the name of the first container whose preStop hook takes an unknown time, or an empty string."""
    for placed in containers(pod):
        lifecycle = placed.container.lifecycle
        if lifecycle is not None and lifecycle.preStop is not None and not time_of(lifecycle.preStop).exact:
            return placed.container.name
    return ""


def time_of(handler: Handler) -> HookTime:
    """Return how long a hook takes.

    The time of an ``httpGet`` hook is unknown. The kubelet has no timeout for the response
    (``insecureContainerLifecycleHTTPClient`` in
    https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kubelet.go), and an endpoint that drains
    connections responds only after they are closed (https://projectcontour.io/docs/main/redeploy-envoy/).
    """
    if handler.sleep is not None:
        return HookTime(handler.sleep.seconds, exact=True)
    text = _script(handler.exec.command or ()) if handler.exec is not None else None
    if text is None or len(text) > _LONGEST_COMMAND:
        return HookTime(0, exact=False)
    durations = " ".join(f"{match[1] or ''} {match[2] or ''}" for match in _TIMED.finditer(text)).split()
    others = {word.rpartition("/")[2] for word in _SEPARATORS.split(_TIMED.sub("", text))}
    # Shell expansions and quotes may hide a command.
    exact = others <= _INSTANT and not set("\\`$") & set(text)
    return HookTime(min(math.ceil(sum(map(_seconds, durations))), FOREVER), exact)


def _script(command: Sequence[str]) -> str:
    """Return the script of a ``sh -c`` command without `timeout`. Quote and join the words of any other command."""
    programs = {word.rpartition("/")[2] for word in command[:-2]}
    if programs & _SHELLS and "timeout" not in programs and command[-2].startswith("-") and command[-2].endswith("c"):
        return command[-1]
    return shlex.join(command)


def _seconds(duration: str) -> float:
    """Convert ``15``, ``0.5s``, ``2m``, or ``infinity`` to seconds."""
    return FOREVER if duration.startswith("inf") else float(duration.rstrip("smhd")) * _UNITS.get(duration[-1], 1)
