"""EvictionStrategy: invariants, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.rules.judged import blocks_of, judged, loaded, template, warned, web_pod, workload, yaml_of
from tests.strategies import pods
from webhook.base.bounds import LABELS

if TYPE_CHECKING:
    from webhook.model.decision import Finding

JSON = dict[str, Any]

KIND = "EvictionStrategy"
INTERRUPTIBLE = {"qos.coreweave.cloud/interruptable": "true"}
GRACEFUL = {"qos.coreweave.com/graceful-interruptible": "true"}
RESERVED = {"key": "node.coreweave.cloud/reserved", "operator": "Exists"}
GPU = {"key": "is_gpu", "operator": "Exists"}


def findings(value: JSON, **how: Any) -> list[Finding]:
    return judged(value, KIND, **how)


def labelled(labels: JSON, **spec: Any) -> JSON:
    return web_pod(metadata={"labels": labels}, **spec)


# Labels


def test_unknown_labels_up_to_the_bound_have_no_finding() -> None:
    labels = {f"coreweave.example/rupture-of-number-{number}": "" for number in range(LABELS.at_most)}
    assert findings(labelled(labels)) == []


def test_only_the_first_labels_that_resemble_an_eviction_label_are_compared() -> None:
    labels = {f"qos.coreweave.example/interruptabl{number}": "" for number in range(100)}
    assert len(findings(labelled(labels))) == 32


# The page


def test_the_page_shows_the_webhooks_message() -> None:
    (policy,) = blocks_of("eviction-strategy.md", "yaml")
    (message,) = blocks_of("eviction-strategy.md")
    assert loaded(policy) == 1
    value = workload(of=template(metadata={"labels": GRACEFUL}, tolerations=[GPU, RESERVED]))
    assert warned(findings(value)) == message


# Invariants


@given(
    pods(
        labels={
            key: st.sampled_from(("true", "false", "")) for key in (*INTERRUPTIBLE, *GRACEFUL, "interruptable", "app")
        },
        annotations={key: st.just("true") for key in GRACEFUL},
    )
)
def test_every_finding_has_a_field_and_yaml(value: JSON) -> None:
    for finding in findings(value):
        assert finding.field
        assert yaml_of(finding)


@given(pods(labels={"app": st.just("web")}, annotations={}))
def test_a_pod_without_eviction_labels_has_no_finding(value: JSON) -> None:
    assert findings(value) == []
