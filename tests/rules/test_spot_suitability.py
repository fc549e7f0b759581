"""SpotSuitability: invariants, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.cases import NAMESPACE
from tests.rules.judged import SPOT, blocks_of, judged, loaded, template, warned, with_budgets, workload, yaml_of
from tests.strategies import pods
from webhook.capacity.placement.target import CAPACITY_LABEL
from webhook.kube.templates import TEMPLATES_AT_MOST

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView
    from webhook.model.decision import Finding

JSON = dict[str, Any]

KIND = "SpotSuitability"
PROBE = {"httpGet": {"path": "/ready", "port": 8080}}
READY: JSON = {"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}], "readinessProbe": PROBE}
COVERED = with_budgets({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"})
UNCOVERED = with_budgets()


def findings(value: JSON, view: ClusterView = COVERED, **how: Any) -> list[Finding]:
    return judged(value, KIND, view=view, **how)


def spot(*, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> JSON:
    """Return a template that is suitable for spot."""
    metadata = {"labels": {"app": "web", **SPOT, **(labels or {})}, "annotations": annotations or {}}
    return template(metadata=metadata, **{"containers": [READY], **spec})


def service(replicas: int = 6, kind: str = "Deployment", **spec: Any) -> JSON:
    return workload(kind, of=spot(**spec), replicas=replicas)


# The page


def test_the_page_shows_the_webhooks_message() -> None:
    (policy,) = blocks_of("spot-suitability.md", "yaml")
    (message,) = blocks_of("spot-suitability.md")
    assert loaded(policy) == 1
    blocking = with_budgets({"selector": {}, "maxUnavailable": 0})
    assert blocking.budgets is not None
    (budget,) = blocking.budgets[NAMESPACE]
    view = msgspec.structs.replace(blocking, budgets={NAMESPACE: (msgspec.structs.replace(budget, name="ledger"),)})
    assert warned(findings(service(3), view)) == message


@pytest.mark.parametrize("off", ["off", '"off"'])
def test_off_is_accepted_even_if_yaml_parses_it_as_false(off: str) -> None:
    policy = "apiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: p}\nspec: "
    assert loaded(f"{policy}{{enforcement: {off}}}") == 0
    assert loaded(f"{policy}{{findings: {{driver: {off}}}}}") == 1


# Invariants

NOISE = {"karpenter.sh/do-not-disrupt": st.just("true")}


@given(pods(labels={"spotgate.dev/capacity": st.sampled_from(("on-demand", "Spot", ""))}, annotations=NOISE))
def test_a_pod_that_does_not_target_spot_has_no_finding(value: JSON) -> None:
    assert findings(value) == []


@given(pods(labels={"spotgate.dev/capacity": st.just("spot")}, annotations=NOISE), st.integers(0, 4))
def test_every_finding_has_a_field_and_yaml(value: JSON, replicas: int) -> None:
    pod_template = {"metadata": value["metadata"], "spec": value["spec"]}
    for manifest in (value, workload(of=pod_template, replicas=replicas)):
        for finding in findings(manifest, UNCOVERED):
            assert finding.field
            assert yaml_of(finding)


def test_every_part_of_a_gang_at_the_bound_is_judged() -> None:
    names = ["spot"] * (TEMPLATES_AT_MOST - 1) + ["on-demand"]
    jobs = [
        {
            "name": f"w{number}",
            "template": {"spec": {"template": template(metadata={"labels": {CAPACITY_LABEL: name}})}},
        }
        for number, name in enumerate(names)
    ]
    metadata = {"name": "j"}
    value = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    }
    fields = [finding.field for finding in findings(value) if finding.id == "spot-suitability/gang-split"]
    assert [field.partition(".metadata")[0] for field in fields] == ["spec.replicatedJobs[0].template.spec.template"]
