"""Read how long the lifecycle hooks of a Pod take.

A hook's time is known if its commands only sleep, or if `timeout` bounds them. No shell is parsed: a command that this
module can't read takes an unknown time.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from webhook.kube.containers import PlacedContainer, containers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.kube.pod import Handler, Pod

FOREVER: Final = 999_999_999
"""The seconds of a sleep that never ends, such as `sleep infinity`: thirty years."""

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "zsh", "ksh"})
_PREFIXES: Final = frozenset(
    {"exec", "env", "/usr/bin/env", "busybox", "/bin/busybox", "nohup", "command", "then", "do", "else"}
)
"""Words before a command that run it as it is."""
_INSTANT: Final = frozenset({"echo", "exit", "true", ":", "set", "done", "fi"})
_TIMED: Final = frozenset({"sleep", "timeout"})
"""Commands whose first argument is a time: how long they take, or the most that they let another command take."""
_SEPARATORS: Final = frozenset(";&|(){}\n")
_WORDS: Final = re.compile(r"""'[^']*'|"[^"]*"|\#[^\n]*|[;&|(){}\n]|[^\s;&|(){}'"]+""")
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?)([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_COMMAND: Final = 4096
"""Characters of a script, and words of a command, that are read: hooks have some dozens."""


class HookTime(NamedTuple):
    """The time that a hook takes.

    Attributes:
        seconds: the seconds of all its sleeps.
        exact: the hook takes no longer than that.
    """

    seconds: int
    exact: bool


class HookSleep(msgspec.Struct, frozen=True):
    """A lifecycle hook that sleeps.

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
    """Yield every lifecycle hook that sleeps, with the native ``sleep`` or in its command."""
    for placed in containers(pod):
        lifecycle = placed.container.lifecycle
        if lifecycle is None:
            continue
        if lifecycle.preStop is not None and (seconds := time_of(lifecycle.preStop).seconds):
            yield HookSleep(placed, "preStop", seconds, lifecycle.preStop.sleep is not None)
        if lifecycle.postStart is not None and (seconds := time_of(lifecycle.postStart).seconds):
            yield HookSleep(placed, "postStart", seconds, lifecycle.postStart.sleep is not None)


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

    The kubelet waits for the answer to an ``httpGet`` without a limit, and endpoints that drain connections answer
    when they have: its time is unknown.

    Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kubelet.go
    (``insecureContainerLifecycleHTTPClient`` has no timeout);
    https://projectcontour.io/docs/main/redeploy-envoy/ (a hook that waits until connections are closed).
    """
    if handler.sleep is not None:
        return HookTime(handler.sleep.seconds, exact=True)
    if handler.exec is None:
        return HookTime(0, exact=False)
    words = _words(handler.exec.command or ())
    seconds, exact, program = 0.0, len(words) <= _LONGEST_COMMAND, ""
    for word in words[:_LONGEST_COMMAND]:
        if word in _SEPARATORS:
            program = ""
        elif program in _TIMED:
            amount = _duration(word)
            seconds += amount
            exact = exact and amount > 0
            program = program if program == "sleep" else "bounded"
        elif not program and not _is_prefix(word):
            program = _program(word)
            exact = exact and (program in _INSTANT or program in _TIMED)
    return HookTime(min(math.ceil(seconds), FOREVER), exact)


def _words(command: Sequence[str]) -> Sequence[str]:
    """Return the words of a hook's command, or those of the script that its shell runs, with their separators."""
    shell = next((index for index, word in enumerate(command) if not _is_prefix(word)), len(command))
    if shell < len(command) and _program(command[shell]) in _SHELLS:
        arguments = command[shell + 1 :]
        for option, script in pairwise(arguments):
            if option.startswith("-") and option.endswith("c") and len(script) <= _LONGEST_COMMAND:
                return [word for word in _WORDS.findall(script) if not word.startswith("#")]
    return command


def _is_prefix(word: str) -> bool:
    """Return whether the command only comes after this word: `exec`, an option of `env`, or a variable."""
    return word in _PREFIXES or word.startswith("-") or "=" in word


def _program(word: str) -> str:
    return word.strip("'\"").rpartition("/")[2]


def _duration(word: str) -> float:
    """Return the seconds in ``15``, ``0.5s``, ``2m`` or ``infinity``; 0 for anything else."""
    word = word.strip("'\"")
    if word in {"inf", "infinity"}:
        return FOREVER
    match = _DURATION.fullmatch(word)
    return float(match[1]) * _UNITS[match[2]] if match is not None else 0.0
