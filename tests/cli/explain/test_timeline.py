"""The timeline of a reclaim: its numbers, and its drawings in text and SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BUNDLE, pool_of
from tests.rules.conftest import with_fields
from webhook.base.terminal import plain
from webhook.capacity.placement.budget import GraceBudget
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.commands.explain.text import timeline_lines
from webhook.kube.edit import PodEditor
from webhook.kube.pod_decoding import decode_pod
from webhook.reclaim import svg
from webhook.reclaim.timeline import AS_WRITTEN, Event, ReclaimTimeline, clock, ticks, timeline_of
from webhook.rules.reclaim_notice.rule import NoticePlan

if TYPE_CHECKING:
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Pod

PROVIDERS = BUNDLE.providers
SVG = "{http://www.w3.org/2000/svg}"


def container(name: str = "main", pre_stop: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, **({"lifecycle": {"preStop": pre_stop}} if pre_stop else {})}


def sleep(seconds: int) -> dict[str, Any]:
    return {"sleep": {"seconds": seconds}}


def pod_of(*containers: dict[str, Any], grace: int = 30, **spec: Any) -> Pod:
    value = {
        "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": list(containers or [container()]), **spec},
    }
    return decode_pod(msgspec.Raw(msgspec.json.encode(value)))


def budget_of(provider: Provider) -> GraceBudget:
    return GraceBudget(provider.grace_period.budget_seconds, provider.grace_period.safety_margin_seconds, "because")


def timeline(
    pod: Pod,
    *,
    provider: str = "cks",
    written: Pod | None = None,
    pool: Pool | None = None,
    budget: GraceBudget | None = None,
    where: str = "",
) -> ReclaimTimeline:
    facts = PROVIDERS[provider]
    return timeline_of(where, written or pod, pod, provider=facts, pool=pool, budget=budget or budget_of(facts))


def parse_svg(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def spans(drawn: ReclaimTimeline, lane: int = 0) -> list[tuple[str, int, int]]:
    return [(span.name, span.begin, span.end) for span in drawn.lanes[lane].spans]


def events_of(drawn: ReclaimTimeline) -> list[tuple[int, str]]:
    return [(event.seconds, event.name) for event in drawn.events]


def test_on_cks_a_drain_after_two_minutes_leaves_five() -> None:
    drawn = timeline(pod_of(container(pre_stop=sleep(5)), grace=60))

    assert events_of(drawn) == [
        (0, "notice"),
        (0, "cordon"),
        (120, "drain"),
        (120, "preStop"),
        (125, "SIGTERM"),
        (180, "SIGKILL"),
        (420, "removal"),
    ]
    assert spans(drawn) == [("running", 0, 120), ("preStop", 120, 125), ("shutdown", 125, 180), ("margin", 180, 420)]
    assert drawn.verdict == "fits: 240 s are left as margin"


def test_every_event_names_its_source_field() -> None:
    drawn = timeline(pod_of(container(pre_stop=sleep(5)), grace=60))
    assert [event.source for event in drawn.events] == [
        "",
        "cks: interruption.cordonSeconds",
        "cks: interruption.drainSeconds",
        "containers[0].lifecycle.preStop",
        "",
        "terminationGracePeriodSeconds",
        "cks: interruption.removalSeconds",
    ]


@pytest.mark.parametrize(
    ("grace", "fits", "verdict"),
    [
        (270, True, "fits: 30 s are left as margin"),
        (290, True, "just fits: 10 s of the safety margin of 30 s are left"),
        (300, True, "just fits: 0 s of the safety margin of 30 s are left"),
        (480, False, "does not fit: SIGKILL comes 180 s early, and unsaved work is lost"),
    ],
)
def test_the_outcome_is_described(grace: int, fits: bool, verdict: str) -> None:  # noqa: FBT001
    drawn = timeline(pod_of(grace=grace))
    assert (drawn.fits, drawn.verdict) == (fits, verdict)


def test_the_timeline_is_cut_at_the_end_of_the_window() -> None:
    drawn = timeline(pod_of(grace=480))

    assert spans(drawn)[1:] == [("shutdown", 120, 420), ("lost", 420, 600)]
    assert drawn.end == 600
    kill = next(event for event in drawn.events if event.name == "SIGKILL")
    assert (kill.seconds, kill.text, kill.source) == (
        420,
        "180 s before the grace period ends",
        "cks: gracePeriod.budgetSeconds",
    )


def test_on_gke_ordinary_pods_stop_before_the_node_does() -> None:
    drawn = timeline(pod_of(grace=10), provider="gke")
    assert events_of(drawn)[-3:] == [(10, "SIGKILL"), (15, "time up"), (30, "removal")]
    assert spans(drawn) == [("shutdown", 0, 10), ("margin", 10, 15)]


@pytest.mark.parametrize(("limit", "removal"), [(60, 420), (600, 720)])
def test_a_pool_limit_overrides_the_window(limit: int, removal: int) -> None:
    pool = pool_of("p", gpu=Gpu.NO, grace_seconds=limit)
    drawn = timeline(pod_of(grace=30), pool=pool, budget=GraceBudget(limit, 0, "the pool says so"))

    assert (drawn.window, drawn.events[-1].seconds, drawn.because) == (120 + limit, removal, "the pool says so")
    assert "NodePool p" in {event.source for event in drawn.events}


def told(action: str, grace: int = 270) -> Pod:
    """Return a Pod as the webhook changes it for this action."""
    pod = pod_of(container(pre_stop=sleep(5)), grace=grace)
    editor = PodEditor(pod)
    NoticePlan.of(pod, action).apply(editor)
    return pod


def test_an_informed_pod_has_its_deadline_before_the_drain() -> None:
    drawn, plain = timeline(told("inform")), timeline(told("none"))
    (deadline,) = [event for event in drawn.events if event.name == "deadline"]
    assert deadline == Event(0, "deadline", "in a file, 120 s before the drain", "/var/run/spotgate/reclaim-at")
    assert [event for event in drawn.events if event != deadline] == [
        event for event in plain.events if event.name != "deadline"
    ]
    assert (drawn.lanes, drawn.verdict) == (plain.lanes, plain.verdict)


def test_an_evicted_pod_uses_the_time_from_the_notice_to_the_margin() -> None:
    plain = pod_of(container(pre_stop=sleep(5)), grace=270)
    drawn = timeline(told("evict"), written=plain)
    assert events_of(drawn) == [
        (0, "notice"),
        (0, "cordon"),
        (0, "deadline"),
        (0, "eviction"),
        (0, "preStop"),
        (5, "SIGTERM"),
        (120, "drain"),
        (390, "SIGKILL"),
        (420, "removal"),
    ]
    assert spans(drawn) == [("preStop", 0, 5), ("shutdown", 5, 390), ("margin", 390, 420)]
    assert drawn.lanes[1].name == AS_WRITTEN
    assert spans(drawn, 1) == spans(timeline(plain))
    assert (drawn.grace, drawn.verdict) == (390, "fits: 30 s are left as margin")


@pytest.mark.parametrize(("grace", "provider"), [(390, "cks"), (25, "aks"), (30, "karpenter"), (30, "huawei-cce")])
def test_a_pod_that_wins_no_time_is_not_evicted(grace: int, provider: str) -> None:
    """The controller doesn't shorten a grace period, and these providers drain a node when they show the notice."""
    evicted = timeline(told("evict", grace), provider=provider)
    assert "eviction" not in {event.name for event in evicted.events}
    assert evicted == timeline(told("inform", grace), provider=provider)
    if provider != "cks":
        assert "deadline" not in {event.name for event in evicted.events}


def test_containers_that_stop_separately_have_separate_lanes() -> None:
    drawn = timeline(pod_of(container("a", sleep(5)), container("b"), container("c", sleep(5)), grace=60))

    assert [lane.name for lane in drawn.lanes] == ["b", "a, c"]
    assert [event.text for event in drawn.events if event.name == "SIGTERM"] == [
        "60 s to shut down: b",
        "55 s to shut down: a, c",
    ]


def test_a_hook_of_unknown_length_shares_the_grace_period_with_sigterm() -> None:
    drawn = timeline(pod_of(container(pre_stop={"exec": {"command": ["/drain"]}}), grace=60))
    assert spans(drawn)[1] == ("hook", 120, 180)
    assert "SIGTERM" not in {event.name for event in drawn.events}


def test_a_sleep_as_long_as_the_grace_period_leaves_two_seconds_to_shut_down() -> None:
    drawn = timeline(pod_of(container("a", sleep(30)), container("b"), grace=30))
    assert spans(drawn, 1)[1:3] == [("preStop", 120, 150), ("shutdown", 150, 152)]
    signals = [(event.seconds, event.text) for event in drawn.events if event.name.startswith("SIG")]
    assert signals == [
        (120, "30 s to shut down: b"),
        (150, "2 s to shut down: a"),
        (150, "the grace period ends"),
        (152, "2 s after the signal"),
    ]
    assert (drawn.late, drawn.loses) == (("a",), True)
    assert drawn.verdict == "leaves 2 s to shut down (a): SIGTERM comes when the grace period ends"


def test_in_a_grace_period_of_zero_a_hook_gets_one_second_and_sigterm_two() -> None:
    drawn = timeline(pod_of(container("a"), container("b", sleep(5)), grace=0))
    assert drawn.verdict.startswith("leaves 2 s to shut down (a, b): ")
    assert [spans(drawn, lane)[1:-1] for lane in (0, 1)] == [
        [("shutdown", 120, 122)],
        [("preStop", 120, 121), ("shutdown", 121, 123)],
    ]


def test_sidecars_get_sigterm_after_the_app_containers_and_their_hooks_run_at_once() -> None:
    sidecars = [
        {**container("mesh"), "restartPolicy": "Always"},
        {**container("log", sleep(9)), "restartPolicy": "Always"},
    ]
    drawn = timeline(pod_of(container("a", sleep(5)), initContainers=[*sidecars, container("migrate")], grace=60))
    assert [lane.name for lane in drawn.lanes[:3]] == ["a", "mesh", "log"]
    assert [spans(drawn, lane)[1:-1] for lane in (1, 2)] == [
        [("sidecar", 120, 180)],
        [("preStop", 120, 129), ("sidecar", 129, 180)],
    ]
    assert [(event.seconds, event.text) for event in drawn.events if event.name in {"preStop", "SIGTERM"}] == [
        (120, "sleeps 5 s: a"),
        (120, "sleeps 9 s: log"),
        (125, "55 s to shut down: a"),
        (125, "after the app containers: mesh"),
        (129, "after the app containers: log"),
    ]


SHELL = ["sh", "-c"]


@pytest.mark.parametrize(
    ("command", "text", "shown"),
    [
        ([*SHELL, "sleep 10"], "sleeps 10 s: main", [("preStop", 120, 130), ("shutdown", 130, 180)]),
        ([*SHELL, " sleep 10; "], "sleeps 10 s: main", [("preStop", 120, 130), ("shutdown", 130, 180)]),
        (["/bin/sleep", "10s"], "sleeps 10 s: main", [("preStop", 120, 130), ("shutdown", 130, 180)]),
        ([*SHELL, "sleep 10; sleep 10"], "sleeps 20 s: main", [("preStop", 120, 140), ("shutdown", 140, 180)]),
        (
            [*SHELL, "sleep 10 && nginx -s quit"],
            "a hook, at least 10 s, then SIGTERM: main",
            [("preStop", 120, 130), ("hook", 130, 180)],
        ),
        (["sleep", "infinity"], "sleeps forever: main", [("preStop", 120, 180), ("shutdown", 180, 182)]),
        (
            [*SHELL, "sleep 70; x"],
            "a hook, at least 70 s, then SIGTERM: main",
            [("preStop", 120, 180), ("shutdown", 180, 182)],
        ),
        (
            [*SHELL, "nginx -s quit; sleep 10"],
            "a hook, at least 10 s, then SIGTERM: main",
            [("preStop", 120, 130), ("hook", 130, 180)],
        ),
        ([*SHELL, "nginx -s quit"], "a hook, then SIGTERM: main", [("hook", 120, 180)]),
    ],
)
def test_a_sleep_is_a_hooks_duration_only_if_it_only_sleeps(
    command: list[str], text: str, shown: list[tuple[str, int, int]]
) -> None:
    drawn = timeline(pod_of(container(pre_stop={"exec": {"command": command}}), grace=60))
    assert next(event.text for event in drawn.events if event.name == "preStop") == text
    assert spans(drawn)[1:-1] == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [("true", "it skips the Pod"), ("30m", "it skips the Pod for its first 30m"), ("yes", None), ("0s", None)],
)
def test_a_pod_that_the_drain_skips_stops_with_the_node(value: str, text: str | None) -> None:
    pod = pod_of(container(pre_stop=sleep(5)), grace=60)
    pod.metadata.annotations = {"karpenter.sh/do-not-disrupt": value}
    limited = pool_of("p", CapacityType.UNKNOWN, provider="karpenter", grace_seconds=60, safety_margin_seconds=0)

    drawn = timeline(pod, provider="karpenter")
    assert [event.text for event in drawn.events if event.name == "drain"] == [
        text or "the grace period of 60 s begins"
    ]
    assert drawn.loses is bool(text)
    if text:
        assert spans(drawn) == [("running", 0, 120)]
        assert "SIGTERM" not in {event.name for event in drawn.events}
        assert drawn.verdict.startswith("ends with the node, without SIGTERM: `karpenter.sh/do-not-disrupt`")
    for other in (timeline(pod, provider="cks"), timeline(pod, provider="karpenter", pool=limited)):
        assert not other.unevicted


def test_the_original_pod_is_drawn_when_injection_changes_its_shutdown() -> None:
    written, injected = pod_of(grace=30), pod_of(container(pre_stop=sleep(5)), grace=60)

    drawn = timeline(injected, written=written)
    assert [lane.name for lane in drawn.lanes] == ["main", AS_WRITTEN]
    assert spans(drawn, 1) == [("running", 0, 120), ("shutdown", 120, 150), ("margin", 150, 420)]
    assert [lane.name for lane in timeline(written).lanes] == ["main"]


def test_volumes_lost_with_the_node_are_named() -> None:
    mounted = {**container(), "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    drawn = timeline(pod_of(mounted, volumes=[{"name": "scratch", "emptyDir": {}}]))
    assert drawn.gone == ("scratch",)
    assert "volume scratch" in plain(timeline_lines(drawn))
    assert "volume scratch" in svg.draw([("web", drawn)], whole=True)


def test_a_grace_period_of_a_day_is_cut_off() -> None:
    drawn = timeline(pod_of(grace=86400), provider="gke")
    assert drawn.end == 60
    assert drawn.margin == 15 - 86400
    text = plain(timeline_lines(drawn)).splitlines()
    assert text[2].endswith("X» 1440:00")
    assert next(line for line in text if "cut off" in line).endswith("» goes on until")
    picture = parse_svg(svg.draw([("web", drawn)], whole=True))
    assert [element.get("class") for element in picture.iter(f"{SVG}polygon")] == ["bg cut"]
    assert "lost 86385 s, up to 1440:00" in {element.text for element in picture.iter(f"{SVG}text")}


def test_a_complete_drawing_has_no_cut_mark() -> None:
    drawn = timeline(pod_of(grace=480))
    assert "»" not in plain(timeline_lines(drawn))
    assert "polygon" not in svg.draw([("web", drawn)], whole=True)


def test_a_reclaim_without_any_time_is_drawn() -> None:
    times = {"cordon_seconds": 0, "drain_seconds": 0, "removal_seconds": 0}
    cks = PROVIDERS["cks"]
    provider = with_fields(cks, interruption=with_fields(cks.interruption, **times))
    pod = pod_of(grace=0)
    drawn = timeline_of("", pod, pod, provider=provider, pool=None, budget=GraceBudget(0, 0, "because"))
    assert "removal" in plain(timeline_lines(drawn))
    assert "removal" in svg.draw([("web", drawn)], whole=True)


@given(
    grace=st.integers(0, 86400),
    written=st.integers(0, 86400),
    sleeps=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
    reclaim=st.tuples(st.integers(0, 60), st.integers(0, 600), st.integers(1, 600)),
    limit=st.integers(1, 3600),
)
def test_spans_have_no_gaps_and_drawings_stay_in_bounds(
    grace: int, written: int, sleeps: list[int], reclaim: tuple[int, int, int], limit: int
) -> None:
    cordon, later, rest = reclaim
    drain = cordon + later
    times = {"cordon_seconds": cordon, "drain_seconds": drain, "removal_seconds": drain + rest}
    cks = PROVIDERS["cks"]
    provider = with_fields(cks, interruption=with_fields(cks.interruption, **times))
    containers = [container(f"c{number}", sleep(seconds)) for number, seconds in enumerate(sleeps)]
    pod = pod_of(*containers, grace=grace)
    drawn = timeline_of(
        "", pod_of(grace=written), pod, provider=provider, pool=None, budget=GraceBudget(limit, 0, "because")
    )

    for lane in drawn.lanes:
        assert [span.end for span in lane.spans[:-1]] == [span.begin for span in lane.spans[1:]]
        assert lane.spans[0].begin == 0
        assert all(span.seconds > 0 for span in lane.spans)
    assert [event.seconds for event in drawn.events] == sorted(event.seconds for event in drawn.events)
    assert drawn.events[-1].name == "removal"
    picture = parse_svg(svg.draw([("web", drawn)], whole=True))
    for element in picture.iter(f"{SVG}rect"):
        begin, width = float(element.get("x", "0")), float(element.get("width", "0"))
        assert 0 <= begin <= begin + width <= float(picture.get("width", "0"))
    assert max(map(len, plain(timeline_lines(drawn)).splitlines()[: 2 + len(drawn.lanes)])) <= 92


def test_the_svg_is_to_scale() -> None:
    root = parse_svg(svg.draw([("Pod web", timeline(pod_of(container(pre_stop=sleep(60)), grace=180)))], whole=True))

    widths = {
        bar.get("class"): float(bar.get("width", "0"))
        for bar in root.iter(f"{SVG}rect")
        if bar.find(f"{SVG}title") is not None
    }
    assert widths["preStop"] == pytest.approx(widths["running"] / 2, abs=0.3)
    assert widths["shutdown"] == pytest.approx(widths["running"], abs=0.3)
    assert widths["margin"] == pytest.approx(widths["running"], abs=0.3)
    assert next(title.text for title in root.iter(f"{SVG}title")) == "Pod web: it fits: 120 s are left as margin"


def test_the_svg_is_self_contained_and_escapes_names() -> None:
    text = svg.draw([("<Pod> \x1b[2J & co", timeline(pod_of(container('"a"<script>'))))], whole=True)

    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert not [element for element in parse_svg(text).iter() if element.tag in {f"{SVG}script", f"{SVG}image"}]
    assert "\x1b" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (5, "0:05"), (125, "2:05"), (3600, "60:00")])
def test_times_are_in_minutes_and_seconds(seconds: int, text: str) -> None:
    assert clock(seconds) == text


@given(st.integers(1, 10**6))
def test_an_axis_has_few_ticks_and_starts_at_zero(end: int) -> None:
    marks = list(ticks(end))
    assert marks[0] == 0
    assert 2 <= len(marks) <= 9
    assert marks[-1] <= end


def test_the_stop_signal_is_read_per_container() -> None:
    containers: list[dict[str, Any]] = [{"name": "web", "lifecycle": {"stopSignal": "SIGQUIT"}}, {"name": "log"}]
    drawn = timeline(pod_of(*containers, grace=60))
    signals = {event.name: event.text for event in drawn.events if event.name.startswith("SIG")}
    assert signals["SIGQUIT"] == "60 s to shut down: web"
    assert signals["SIGTERM"] == "60 s to shut down: log"
