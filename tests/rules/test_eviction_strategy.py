"""EvictionStrategy: what holds for every Pod, and the page."""

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


def said(value: JSON, **how: Any) -> list[Finding]:
    return judged(value, KIND, **how)


def labelled(labels: JSON, **spec: Any) -> JSON:
    return web_pod(metadata={"labels": labels}, **spec)


# Labels


def test_countless_labels_do_not_take_long() -> None:
    labels = {f"coreweave.example/rupture-of-number-{number}": "" for number in range(LABELS.at_most)}
    assert said(labelled(labels)) == []


# Its page


def test_the_page_says_what_the_webhook_says() -> None:
    (policy,) = blocks_of("eviction-strategy.md", "yaml")
    (message,) = blocks_of("eviction-strategy.md")
    assert loaded(policy) == 1
    value = workload(of=template(metadata={"labels": GRACEFUL}, tolerations=[GPU, RESERVED]))
    assert warned(said(value)) == message


# Whatever the Pod


@given(
    pods(
        labels={
            key: st.sampled_from(("true", "false", "")) for key in (*INTERRUPTIBLE, *GRACEFUL, "interruptable", "app")
        },
        annotations={key: st.just("true") for key in GRACEFUL},
    )
)
def test_every_finding_names_its_place_and_ends_in_yaml(value: JSON) -> None:
    for finding in said(value):
        assert finding.field
        assert yaml_of(finding)


@given(pods(labels={"app": st.just("web")}, annotations={}))
def test_a_pod_without_such_labels_is_left_alone(value: JSON) -> None:
    assert said(value) == []
