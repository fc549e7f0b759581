"""ReservedLabels: invariants, the resources that it evaluates, and its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BUNDLE
from tests.rules.conftest import FakeSubject, change_of
from tests.specs import spec_of
from webhook.base.bounds import OverBoundError
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.protocol import Facts
from webhook.rules.reserved_labels.rule import KIND, ReservedLabels
from webhook.rules.reserved_labels.spec import ReservedLabelsSpec

if TYPE_CHECKING:
    from webhook.model.decision import Violation

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    document["metadata"]["name"]: document
    for file in ("policies/reserved-labels.yaml", "examples/policies/node-labels.yaml")
    for document in yaml.safe_load_all((ROOT / file).read_text())
}
SHIPPED = BUNDLE
FACTS = Facts(SHIPPED.providers, tuple(SHIPPED.index.workloads.values()))
CONTEXT = Context(phase=Phase.VALIDATE, now=utc_now())

NODE_POOLS = ("compute.coreweave.com", "nodepools")
DEPLOYMENTS = ("apps", "deployments")


def shipped_spec(name: str) -> ReservedLabelsSpec:
    return spec_of(ReservedLabelsSpec, DOCUMENTS[name]["spec"])


def compiled(name: str = "reserved-labels") -> ReservedLabels:
    rule = KIND.compile(shipped_spec(name), FACTS)
    assert isinstance(rule, ReservedLabels)
    return rule


RULE = compiled()


def denials(subject: FakeSubject) -> list[Violation]:
    return list(RULE.validate(subject, CONTEXT))


def with_labels(**fields: Any) -> dict[str, Any]:
    """Return a node pool with ``metadata.labels`` and ``spec.nodeLabels``."""
    return {"metadata": {"labels": fields.get("labels")}, "spec": {"nodeLabels": fields.get("node_labels")}}


def test_a_resource_named_pods_in_another_group_is_judged_as_an_object() -> None:
    assert denials(change_of(("metrics.k8s.io", "pods"), {"metadata": {"labels": {"foo.coreweave.com/bar": "x"}}}))


def test_by_default_the_kind_matches_pods_workloads_and_node_pools() -> None:
    (workloads,) = yaml.safe_load_all((ROOT / "policies" / "workloads.yaml").read_text())
    kinds = {(item["group"], item["resource"]) for item in workloads["spec"]["workloads"]}
    rules = KIND.rules(FACTS)
    matched = {(group, resource) for rule in rules for group in rule.api_groups for resource in rule.resources}
    pools = {(reader.group, reader.resource) for provider in FACTS.providers.values() for reader in provider.readers}
    assert matched == kinds | pools | {("", "pods"), ("", "pods/status"), ("", "pods/binding"), ("", "bindings")}
    assert ("compute.coreweave.com", "nodepools") in matched
    operations = {path: rule.operations for rule in rules for path in rule.resources}
    subresources = [operations.pop(path) for path in ("pods/status", "pods/binding", "bindings")]
    assert subresources == [("UPDATE",), ("CREATE",), ("CREATE",)]
    assert set(operations.values()) == {("CREATE", "UPDATE")}


def test_an_object_with_too_many_maps_of_labels_is_over_a_bound() -> None:
    jobs = [{"template": {"metadata": {"labels": {"app": "x"}}}}] * (TEMPLATES_AT_MOST + 1)
    with pytest.raises(OverBoundError, match=f"more than {TEMPLATES_AT_MOST} maps of labels"):
        denials(change_of(("jobset.x-k8s.io", "jobsets"), {"spec": {"replicatedJobs": jobs}}))


prefixes = st.sampled_from(
    ("", "app/", "coreweave.com/", "x.coreweave.com/", "notcoreweave.com/", "y.coreweave.cloud/")
)
label_maps = st.dictionaries(
    st.builds(str.__add__, prefixes, st.text("abc.", min_size=1, max_size=3)), st.sampled_from(("1", "2")), max_size=6
)


@given(label_maps, label_maps)
def test_the_findings_are_the_changed_keys_in_reserved_domains(new: dict[str, str], old: dict[str, str]) -> None:
    reserved = [key for key in new if "coreweave" in key and "notcoreweave" not in key]
    expected = sorted(key for key in reserved if old.get(key) != new[key])
    subject = change_of(DEPLOYMENTS, {"metadata": {"labels": new}}, {"metadata": {"labels": old}})
    assert [violation.field for violation in denials(subject)] == [f'metadata.labels["{key}"]' for key in expected]


@given(label_maps)
def test_an_update_that_changes_nothing_is_allowed(labels: dict[str, str]) -> None:
    value = with_labels(labels=labels, node_labels=labels)
    assert not denials(change_of(NODE_POOLS, value, value))
