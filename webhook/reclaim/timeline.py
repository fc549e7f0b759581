"""Compute the timeline of a reclaim: the provider's window, and how the Pod's termination fits into it.

This module returns data; `text` and `svg` draw it. Times are in seconds after the provider's notice.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination (preStop runs inside the grace
period, SIGTERM follows it, SIGKILL comes when the grace period ends). `tests/node` compares it with a kubelet.
"""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.capacity.placement.budget import GraceBudget, unevicted_annotation, unevicted_seconds
from webhook.kube.containers import containers, on_the_node
from webhook.kube.hooks import HookTime, spelled, time_of
from webhook.kube.notice import DIRECTORY, EVICT, FILE, ON_RECLAIM, VOLUME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Pod

SpanName = Literal["running", "preStop", "hook", "sidecar", "shutdown", "margin", "lost"]


class SpanStyle(NamedTuple):
    """The meaning of a span for the legend, its short label, and its glyph and color on a terminal."""

    about: str
    label: str
    glyph: str
    colour: str


SPANS: Final = msgspec.yaml.decode(Path(__file__).with_name("spans.yaml").read_bytes(), type=dict[SpanName, SpanStyle])

_TERM: Final = "SIGTERM"

_HOOK_SECONDS: Final = 1
_SIGNAL_SECONDS: Final = 2
"""The least seconds of a hook, and from the signal to SIGKILL, even if they exceed the grace period.

Source: calculateEffectiveGracePeriod and minimumGracePeriodInSeconds in
https://github.com/kubernetes/kubernetes/tree/v1.37.2/pkg/kubelet
"""

_OF_THE_NODE: Final = frozenset({"cordon", "drain", "time up", "removal"})
AS_WRITTEN: Final = "as written"

_DRAWN_AT_MOST: Final = 2
"""The limit of a drawing, in windows. With a grace period of an hour, a window of 15 s would be invisible."""

_TICKS: Final = (1, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600)
_TICKS_AT_MOST: Final = 8


class Event(msgspec.Struct, frozen=True):
    """An event of a reclaim, and the field of the provider's document or the Pod that sets its time."""

    seconds: int
    name: str
    text: str
    source: str


class Span(msgspec.Struct, frozen=True):
    """A period from ``begin`` to ``end``."""

    name: SpanName
    begin: int
    end: int

    @property
    def seconds(self) -> int:
        """Return the length of the period."""
        return self.end - self.begin


class Lane(msgspec.Struct, frozen=True):
    """The termination of containers that stop together, or of the Pod `AS_WRITTEN`.

    The spans have no gaps, from the notice to the end of the window or of the grace period, whichever is later.
    """

    name: str
    spans: tuple[Span, ...]


class ReclaimTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The timeline of a reclaim of the node that a Pod runs on.

    Attributes:
        where: the pod template's field path; empty for a Pod.
        because: the source of the time limit, as a phrase.
        begin: the start of the Pod's grace period: the drain, or an eviction before it.
        lanes: the containers after injection, then the Pod as written if it differs.
        window: the end of the time that an ordinary Pod has to stop.
        end: the end of the drawing. Spans that exceed it are marked.
        wanted: the safety margin to keep free.
        late: the containers that get their signal only when the grace period ends.
        gone: the volumes that are lost with the node.
        unevicted: the annotation that blocks the Pod's eviction during the drain; empty if there is none.
    """

    where: str
    provider: str
    because: str
    events: tuple[Event, ...]
    lanes: tuple[Lane, ...]
    begin: int
    window: int
    end: int
    grace: int
    wanted: int
    late: tuple[str, ...]
    gone: tuple[str, ...]
    unevicted: str = ""

    @property
    def margin(self) -> int:
        """Return the seconds from the end of the grace period to the end of the window; negative if it exceeds it."""
        return self.window - self.begin - self.grace

    @property
    def fits(self) -> bool:
        """Return whether the Pod gets its full grace period."""
        return self.margin >= 0 and not self.unevicted

    @property
    def loses(self) -> bool:
        """Return whether a container is killed before it can shut down."""
        return not self.fits or bool(self.late)

    @property
    def outcome(self) -> SpanName:
        """Return the span name that sets the color of the verdict."""
        return "lost" if self.loses else "margin" if self.margin >= self.wanted else "preStop"

    @property
    def moments(self) -> list[tuple[int, str]]:
        """Return the times and names of the node's events, in order."""
        return [(event.seconds, event.name) for event in self.events if event.name in _OF_THE_NODE]

    @property
    def used(self) -> list[SpanName]:
        """Return the names of all spans, in the order of a legend."""
        used = {span.name for lane in self.lanes for span in lane.spans}
        return [name for name in SPANS if name in used]

    @property
    def verdict(self) -> str:
        """Return the outcome of the reclaim, as a sentence without a subject."""
        if self.unevicted:
            return f"ends with the node, without SIGTERM: `{self.unevicted}` keeps the drain from stopping it"
        if not self.fits:
            return f"does not fit: SIGKILL comes {-self.margin} s early, and unsaved work is lost"
        if self.late:
            late = ", ".join(self.late)
            return f"leaves {_SIGNAL_SECONDS} s to shut down ({late}): SIGTERM comes when the grace period ends"
        if self.margin < self.wanted:
            return f"just fits: {self.margin} s of the safety margin of {self.wanted} s are left"
        return f"fits: {self.margin} s are left as margin"


def timeline_of(
    where: str, written: Pod, pod: Pod, *, provider: Provider, pool: Pool | None, budget: GraceBudget
) -> ReclaimTimeline:
    """Return the timeline of a Pod that targets spot.

    ``written`` is the Pod before injection, ``pod`` after it. Without ``pool``, use the provider's values.
    """
    drain = provider.interruption.drain_seconds
    window = drain + budget.limit
    removal = max(provider.interruption.removal_seconds, window)
    annotation = unevicted_annotation(provider, pool)
    unevicted = annotation if unevicted_seconds(pod, annotation) else ""
    begin, granted = _eviction(pod, provider, budget)
    pod = replace(pod, spec=replace(pod.spec, terminationGracePeriodSeconds=granted))
    stops = _stops(pod)
    whole = (Span("running", 0, window),) if unevicted else None
    lanes = [Lane(", ".join(stop.names), whole or _spans(stop, begin, window)) for stop in stops]
    before = Lane(AS_WRITTEN, _spans([stop for stop in _stops(written) if not stop.sidecar][-1], drain, window))
    if not unevicted and before.spans not in {lane.spans for lane in lanes}:
        lanes.append(before)
    return ReclaimTimeline(
        where=where,
        provider=provider.title,
        because=budget.because,
        events=tuple(sorted(_events(pod, begin, provider, pool, budget, unevicted), key=lambda event: event.seconds)),
        lanes=tuple(lanes),
        begin=begin,
        window=window,
        end=max(1, min(max(removal, *(lane.spans[-1].end for lane in lanes)), _DRAWN_AT_MOST * removal)),
        grace=pod.grace_seconds,
        wanted=budget.margin,
        late=tuple(name for stop in stops if stop.delay >= pod.grace_seconds for name in stop.names),
        gone=tuple(volume.name for _, volume, _ in on_the_node(pod)),
        unevicted=unevicted,
    )


def _eviction(pod: Pod, provider: Provider, budget: GraceBudget) -> tuple[int, int]:
    """Return when a Pod's grace period begins, and its length.

    The node shows the notice from its cordon. `spotgate controller` evicts a Pod with the label ``evict`` then, if that
    gives it more time than it has.
    """
    times = provider.interruption
    granted = times.drain_seconds + budget.limit - budget.margin - times.cordon_seconds
    asks = pod.labels.get(ON_RECLAIM) == EVICT and times.cordon_seconds < times.drain_seconds
    if asks and granted > pod.grace_seconds:
        return times.cordon_seconds, granted
    return times.drain_seconds, pod.grace_seconds


def ticks(end: int) -> range:
    """Return a limited number of round times to mark on an axis up to ``end``."""
    step = next((step for step in _TICKS if end / step <= _TICKS_AT_MOST), end)
    return range(0, end + 1, step)


def clock(seconds: int) -> str:
    """Return a time after the notice as text: ``2:05``."""
    return f"{seconds // 60}:{seconds % 60:02}"


class _Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Containers that get SIGTERM, or their own stop signal, at the same time.

    Attributes:
        grace: the Pod's grace period in seconds.
        delay: the seconds that the preStop hook takes, as far as they are known.
        exact: the hook takes no longer than the delay.
        field: the field path of the first hook; empty if there is none.
        after: for sidecars, the seconds from the drain to the last signal of an app container.
    """

    grace: int
    delay: int
    exact: bool
    signal: str
    after: int | None
    names: tuple[str, ...] = ()
    field: str = ""

    @property
    def sidecar(self) -> bool:
        """Return whether the signal comes when the app containers have ended."""
        return self.after is not None

    @property
    def hook(self) -> int:
        """Return the seconds from the drain to the end of the hook, as far as they are known."""
        return min(self.delay, max(self.grace, _HOOK_SECONDS))

    @property
    def signaled(self) -> int:
        """Return the seconds from the drain to the signal, or to the earliest one if the time isn't known."""
        return max(self.hook, self.after or 0)

    @property
    def killed(self) -> int:
        """Return the seconds from the drain to SIGKILL, or to the earliest one if the signal's time isn't known."""
        return max(self.grace, self.signaled + _SIGNAL_SECONDS)

    @property
    def known(self) -> bool:
        """Return whether the time of the signal is known: a hook that takes too long ends with the grace period."""
        return not self.sidecar and (self.exact or self.hook < self.delay)


def _stops(pod: Pod) -> list[_Stop]:
    """Group the containers by the time and type of their signal. Sidecars come last."""
    groups: dict[tuple[bool, bool, int, str], _Stop] = {}
    after = 0
    for placed in sorted(containers(pod), key=lambda placed: placed.sidecar):
        if placed.members != "containers" and not placed.sidecar:
            continue
        lifecycle = placed.container.lifecycle
        hook = lifecycle.preStop if lifecycle is not None else None
        delay, exact = time_of(hook) if hook is not None else HookTime(0, exact=True)
        signal = (lifecycle.stopSignal if lifecycle is not None else None) or _TERM
        key = (placed.sidecar, not exact, delay, signal)
        stop = groups.get(key) or _Stop(
            grace=pod.grace_seconds, delay=delay, exact=exact, signal=signal, after=after if placed.sidecar else None
        )
        field = stop.field or (f"{placed.field.removeprefix('spec.')}.lifecycle.preStop" if hook else "")
        groups[key] = replace(stop, names=(*stop.names, placed.container.name), field=field)
        if not placed.sidecar:
            after = max(after, groups[key].hook)
    return [stop for _, stop in sorted(groups.items(), key=itemgetter(0))]


def _spans(stop: _Stop, begin: int, window: int) -> tuple[Span, ...]:
    killed, term = begin + stop.killed, begin + stop.hook
    name: SpanName = "sidecar" if stop.sidecar else "shutdown" if stop.known else "hook"
    stops = [Span("preStop", begin, term), Span(name, term, killed)]
    before = [Span(span.name, span.begin, min(span.end, window)) for span in stops]
    rest = Span("margin", killed, window) if killed <= window else Span("lost", window, killed)
    return tuple(span for span in (Span("running", 0, begin), *before, rest) if span.seconds > 0)


def _events(
    pod: Pod, begin: int, provider: Provider, pool: Pool | None, budget: GraceBudget, unevicted: str
) -> Iterator[Event]:
    """Yield all events. Events at the same time are in order."""
    timeline = provider.interruption
    source = f"{provider.name}: interruption."
    own = pool is not None and pool.grace_seconds is not None
    limit = str(pool) if own else f"{provider.name}: gracePeriod.budgetSeconds"
    cordon, drain, window = timeline.cordon_seconds, timeline.drain_seconds, timeline.drain_seconds + budget.limit
    yield Event(0, "notice", "the reclaim is announced", "")
    yield Event(cordon, "cordon", "no new Pods come to the node", f"{source}cordonSeconds")
    if cordon < drain and any(volume.name == VOLUME for volume in pod.spec.volumes or ()):
        yield Event(cordon, "deadline", f"in a file, {drain - cordon} s before the drain", f"{DIRECTORY}/{FILE}")
    if unevicted:
        value = pod.annotations[unevicted]
        held = "" if value == "true" else f" for its first {value}"
        yield Event(drain, "drain", f"it skips the Pod{held}", f'metadata.annotations["{unevicted}"]')
        yield Event(window, "SIGKILL", "the Pod ends with the node", limit)
    else:
        begins, setting = f"the grace period of {pod.grace_seconds} s begins", "terminationGracePeriodSeconds"
        if begin < drain:
            yield Event(begin, "eviction", begins, f"{ON_RECLAIM}: {EVICT}")
            begins, setting = "it doesn't shorten the grace period", f"{ON_RECLAIM}: {EVICT}"
        yield Event(drain, "drain", begins, f"{source}drainSeconds")
        killed = begin + pod.grace_seconds
        stops = _stops(pod)
        for stop in stops:
            yield from _stopping(stop, begin, window)
        if killed > window:
            yield Event(window, "SIGKILL", f"{killed - window} s before the grace period ends", limit)
        for seconds in {begin + stop.killed for stop in stops} if killed <= window else ():
            if seconds == killed:
                yield Event(killed, "SIGKILL", "the grace period ends", setting)
            else:
                yield Event(min(seconds, window), "SIGKILL", f"{_SIGNAL_SECONDS} s after the signal", "")
    if begin + pod.grace_seconds <= window < timeline.removal_seconds:
        yield Event(window, "time up", "for Pods that are not critical to the node", limit)
    source = limit if window > timeline.removal_seconds else f"{source}removalSeconds"
    yield Event(max(timeline.removal_seconds, window), "removal", "the node is gone", source)


def _stopping(stop: _Stop, begin: int, window: int) -> Iterator[Event]:
    names = ", ".join(stop.names)
    signaled, killed = begin + stop.signaled, min(begin + stop.killed, window)
    if not stop.exact:
        least = f", at least {stop.delay} s" if stop.delay else ""
        yield Event(begin, "preStop", f"a hook{least}, then {stop.signal}: {names}", stop.field)
    elif stop.delay:
        yield Event(begin, "preStop", f"sleeps {spelled(stop.delay)}: {names}", stop.field)
    if signaled >= killed:
        yield Event(killed, stop.signal, f"too late to shut down: {names}", stop.field)
    elif stop.sidecar:
        yield Event(signaled, stop.signal, f"after the app containers: {names}", "")
    elif stop.known:
        yield Event(signaled, stop.signal, f"{killed - signaled} s to shut down: {names}", "")
