"""The operators' page: this replica's policies and state, last decisions, and unknowns."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.builders import pool_of
from tests.cli.output.test_report_page import Page
from tests.server.harness import bundle_of, eventually, put, review
from webhook import __version__
from webhook.capacity.providers.pool import CapacityType, Pool
from webhook.capacity.view import ClusterView, FixedState
from webhook.model.decision import Decision, Finding, Outcome, Violation
from webhook.model.review import decode_review
from webhook.rules.context import Phase
from webhook.server.http.app import OF_ANY_KIND
from webhook.server.http.metrics import Metrics
from webhook.server.ops import port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.browser import Seen
    from tests.server.conftest import Spawn, Start
    from tests.server.harness import Client
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

HOSTILE = "<script>alert('&')</script>\u202e\x1b[31m"
FOUND = Finding(policy="p", id="test/unwanted", outcome=Outcome.DENY, reason="no")


class Pools(FixedState):
    """A cluster with these node pools."""

    def __init__(self, *pools: Pool) -> None:
        super().__init__(ClusterView(pools=pools, providers=frozenset({"cks"}), api_server=(1, 36)))


def deny(subject: Subject, _: Context) -> Iterable[Violation]:
    if subject.request.operation == "CREATE":
        yield Violation(id="unwanted", reason="what the object says: hush")


def page_text(served: Client) -> str:
    """Return the text of the page."""
    answer = served.ops("/")
    assert answer.status == 200
    return " ".join(" ".join(Page(answer.body.decode()).texts).split())


def test_the_page_shows_bundle_policies_decisions_pools_and_certificate(start: Start) -> None:
    spot = pool_of("h100-spot", autoscaling=True, maximum=8)
    vague = pool_of("odd", CapacityType.UNKNOWN, desired=1, problems=("spec.targetNodes: no number",))
    served = start(bundle_of(deny), Pools(spot, vague))
    served.post()
    served.post(path="/mutate")
    served.post(review(operation="UPDATE", name="later"))
    text = page_text(served)
    assert "spotgate is ready" in text
    assert f"version {__version__}, bundle test-policy" in text
    assert "test-policy Test deny 1 0 0 0" in text
    assert "denied" in text
    assert "pods team-a/web-0 validate CREATE test/unwanted" in text
    assert "All decisions: the last 3" in text
    assert "h100-spot cks NodePool spot autoscaled up to 8" in text
    assert "odd cks NodePool unknown 1 node GPUs unknown spec.targetNodes: no number" in text
    assert "2 as the webhook sees them: 1 spot, 1 unknown. Providers in use: cks." in text
    assert "served certificate ends" in text
    assert "hush" not in text


def test_a_pool_with_an_object_is_not_listed_again_by_its_nodes(start: Start) -> None:
    groups = tuple(pool_of(name, kind="node group", pool_name=name) for name in ("listed", "unlisted", ""))
    view = ClusterView(pools=(pool_of("listed", pool_name="listed"),), node_groups=groups)
    text = page_text(start(state=FixedState(view)))
    assert text.count(" listed cks ") == 1
    _, _, by_nodes = text.partition("Known only from their Nodes")
    assert "unlisted cks node group" in by_nodes
    assert "(without a name) cks node group" in by_nodes


def test_the_page_shows_unknown_state_with_reasons(spawn: Spawn, tmp_path: Path) -> None:
    served = spawn()
    put(tmp_path / "policies" / "policy.yaml", "kind: [")
    while served.metric("spotgate_last_reload_success", what="policies"):
        time.sleep(0.05)
    text = page_text(served)
    assert "Node pools : The webhook was started without access to a cluster. → ask the administrator" in text
    assert "Reload of policies : changes after" in text
    assert "The oldest kubelet : unknown; spotgate assumes 1.34" in text
    assert "Trust : no caBundle is known" in text


def test_names_are_escaped_and_the_browser_reports_no_violation(
    start: Start, tmp_path: Path, browse: Callable[..., Seen]
) -> None:
    pool = pool_of(HOSTILE, problems=(HOSTILE,))
    served = start(bundle_of(deny), Pools(pool))
    served.post(review(name=HOSTILE, namespace=HOSTILE, kind={"group": "", "version": "v1", "kind": HOSTILE}))
    answer = served.ops("/")
    page = answer.body.decode()
    assert "script" not in Page(page).elements
    assert page.count("&lt;script&gt;") >= 5
    assert not {"\u202e", "\x1b"} & set(page)
    (tmp_path / "page.html").write_text(page)
    seen = browse(tmp_path / "page.html")
    assert seen.console == []
    assert "spotgate is" in seen.dom


def test_the_page_allows_only_its_own_style(start: Start) -> None:
    headers = start().ops("/").headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy.pop("style-src").startswith("'sha256-")
    assert policy.pop("script-src").startswith("'sha256-47DEQpj8HBSa")  # of the empty text
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_is_cached_briefly(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "_PAGE_SECONDS", 3600)
    served = start(bundle_of(deny))
    first = served.ops("/").body
    served.post()
    assert served.ops("/").body == first


def test_a_page_of_a_thousand_pools_is_bounded(start: Start) -> None:
    pool = pool_of("a")
    text = page_text(start(state=Pools(*(replace(pool, name=f"pool-{number:04}") for number in range(1000)))))
    assert "pool-0499" in text
    assert "pool-0500" not in text
    assert "500 more are not shown" in text


def test_decisions_with_findings_are_kept_longest(start: Start) -> None:
    served = start(bundle_of(deny))
    with closing(served.connection()) as connection:
        served.post(review(name="n" * 10_000), over=connection)
        for _ in range(OF_ANY_KIND):
            served.post(review(operation="UPDATE"), over=connection)
    eventually(lambda: len(served.log("decision")) > OF_ANY_KIND)
    webhook = served.replica.webhook
    assert [decision["name"] for decision in webhook.found] == ["n" * 256]
    assert [decision["operation"] for decision in webhook.last] == ["UPDATE"] * OF_ANY_KIND


def counts_of(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize(("annotation", "result"), [("break-glass", "used"), ("break-glass-refused", "refused")])
def test_break_glass_is_counted_from_zero(annotation: str, result: str) -> None:
    metrics, request = Metrics(), decode_review(review())
    assert counts_of(metrics, "spotgate_break_glass_total") == {("used",): 0, ("refused",): 0}
    metrics.decided(request, Phase.VALIDATE, Decision(audit={annotation: "anna: why"}), authenticated=True)
    assert counts_of(metrics, "spotgate_break_glass_total")[result,] == 1


def test_findings_are_counted_for_a_bounded_number_of_namespaces() -> None:
    metrics = Metrics()
    for number in range(700):
        request = decode_review(review(namespace=f"team-{number}"))
        metrics.decided(request, Phase.VALIDATE, Decision(findings=(FOUND,)), authenticated=False)
    counts = counts_of(metrics, "spotgate_findings_total")
    assert counts["p", "test/unwanted", "team-0", "deny"] == 1
    assert counts["p", "test/unwanted", "other", "deny"] == 200
    assert sum(counts.values()) == 700
    assert metrics.findings()["p"]["deny"] == 700


def test_would_be_denials_are_counted_separately() -> None:
    metrics = Metrics()
    audited = replace(FOUND, outcome=Outcome.AUDIT, would_deny=True)
    metrics.decided(decode_review(review()), Phase.VALIDATE, Decision(findings=(audited, FOUND)), authenticated=False)
    assert counts_of(metrics, "spotgate_would_deny_total") == {("p", "test/unwanted", "team-a"): 1}
    assert metrics.findings()["p"] == {"audit": 1, "deny": 1, "would deny": 1}
