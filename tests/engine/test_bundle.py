"""A bundle with mistakes is rejected as a whole, with all mistakes in its files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webhook.engine.bundle import load_bundle, policy_kinds
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from webhook.rules.protocol import PolicyKind

PROVIDERS = Path(__file__).parents[2] / "policies" / "providers"
HEAD = "apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
FALLBACK = HEAD.format(kind="OnDemandFallback", name="fallback")
PROVIDER = HEAD.format(kind="CapacityProvider", name="own")


def mistakes(folder: Path, *documents: str) -> list[tuple[int, str]]:
    """Return the line and field of each mistake."""
    (folder / "policies.yaml").write_text("\n---\n".join(documents))
    with pytest.raises(PolicyErrors) as caught:
        load_bundle([folder])
    return [(problem.line, problem.field) for problem in caught.value.problems]


def texts(folder: Path, document: str) -> dict[str, str]:
    """Return the message for each field; none if the document loads."""
    file = folder / "policies.yaml"
    file.write_text(document)
    try:
        load_bundle([file])
    except PolicyErrors as error:
        return {problem.field: problem.text for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("mistake", "field"),
    [
        ("spec: {requires: gpu, requireByProvider: {nowhere: gpu}}", "spec.requires"),
        ("spec: {require: all, requireByProvider: {nowhere: gpu}}", "spec.require"),
        ("spec: {match: {namespaces: {include: ['']}}, requireByProvider: {nowhere: gpu}}", "spec.match.namespaces.include[0]"),
        ("spec: {requireByProvider: {nowhere: gpu}}\nspecs: {}", "specs"),
    ],
)  # fmt: skip
def test_a_schema_mistake_hides_mistakes_that_compiling_would_find(tmp_path: Path, mistake: str, field: str) -> None:
    assert [reported for _, reported in mistakes(tmp_path, FALLBACK + mistake)] == [field]


def test_a_mistake_in_a_provider_is_not_reported_for_policies_that_name_it(tmp_path: Path) -> None:
    problems = mistakes(tmp_path, PROVIDER + "spec: {title: Own}", FALLBACK + "spec: {requireByProvider: {own: gpu}}")
    assert problems
    assert {line for line, _ in problems} == {4}


@pytest.mark.parametrize("kind", policy_kinds().values(), ids=lambda kind: kind.name)
def test_exactly_the_kinds_that_change_pods_declare_their_writes(kind: PolicyKind) -> None:
    module = sys.modules[kind.compile.__module__]
    own = [
        member for member in vars(module).values() if isinstance(member, type) and member.__module__ == module.__name__
    ]
    assert any(hasattr(rule, "mutate") for rule in own) == bool(kind.writes)


PODS_ALONE = 'this kind evaluates only Pods and pod templates: write apiGroups: [""] and resources: [pods]'


@pytest.mark.parametrize(
    ("kind", "rule", "field", "text"),
    [
        ("EvictionStrategy", "apiGroups: [apps], resources: [deployments], operations: [CREATE]", "", PODS_ALONE),
        ("EvictionStrategy", "apiGroups: [compute.coreweave.com], resources: [nodepools], operations: [CREATE]", "", PODS_ALONE),
        ("SpotSuitability", "apiGroups: ['', apps], resources: [pods, deployments], operations: [CREATE]", "", PODS_ALONE),
        ("SpotSuitability", "apiGroups: ['*'], resources: ['*'], operations: [CREATE]", "", PODS_ALONE),
        ("GracefulTermination", "apiGroups: [apps], resources: [deployments], operations: [CREATE]", "", PODS_ALONE),
        ("SpotPlacement", "apiGroups: [''], resources: [pods/status], operations: [CREATE]", "", PODS_ALONE),
        ("EvictionStrategy", "apiGroups: [''], resources: [pods], operations: [UPDATE, DELETE]", ".operations", "this kind evaluates Pods before they run: write [CREATE, UPDATE]"),
        ("SpotSuitability", "apiGroups: [''], resources: [pods], operations: ['*']", ".operations", "this kind evaluates Pods before they run: write [CREATE, UPDATE]"),
        ("SpotPlacement", "apiGroups: [''], resources: [pods], operations: [CREATE, UPDATE]", ".operations", "this kind changes Pods, which can only be done on CREATE: write [CREATE]"),
        ("OnDemandFallback", "apiGroups: [''], resources: [pods], operations: [CREATE]", ".resources[0]", "this kind doesn't evaluate pods of the core group; it evaluates node pools that a CapacityProvider reads, and objects that set their size"),
        ("OnDemandFallback", "apiGroups: [compute.coreweave.cloud], resources: [nodepools], operations: [CREATE]", ".resources[0]", "this kind doesn't evaluate nodepools of compute.coreweave.cloud, did you mean `nodepools of compute.coreweave.com`?; it evaluates node pools that a CapacityProvider reads, and objects that set their size"),
        ("OnDemandFallback", "apiGroups: [compute.coreweave.com], resources: [nodepools, nodepools/status], operations: [UPDATE]", ".resources[1]", "this kind doesn't evaluate nodepools/status of compute.coreweave.com, did you mean `nodepools/scale of compute.coreweave.com`?; it evaluates node pools that a CapacityProvider reads, and objects that set their size"),
        ("OnDemandFallback", "apiGroups: [cluster.x-k8s.io], resources: [machinepools], operations: [CREATE]", ".resources[0]", "this kind evaluates machinepools of cluster.x-k8s.io only on UPDATE, DELETE"),
        ("NodePoolRules", "apiGroups: [apps, ''], resources: [deployments], operations: [CREATE]", ".resources[0]", "this kind doesn't evaluate deployments of apps or deployments of the core group; it evaluates node pools that a CapacityProvider reads, and the resources in its own `resources`"),
        ("NodePoolRules", "apiGroups: [karpenter.sh], resources: [nodepools], operations: [DELETE]", ".resources[0]", "this kind evaluates nodepools of karpenter.sh only on CREATE, UPDATE"),
    ],
)  # fmt: skip
def test_a_match_that_a_kind_ignores_is_rejected_with_a_fix(
    tmp_path: Path, kind: str, rule: str, field: str, text: str
) -> None:
    document = HEAD.format(kind=kind, name="own") + f"spec: {{match: {{resourceRules: [{{{rule}}}]}}}}"
    assert texts(tmp_path, document) == {f"spec.match.resourceRules[0]{field}": text}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("EvictionStrategy", "apiGroups: [''], resources: [pods], operations: [UPDATE]"),
        ("SpotSuitability", "apiGroups: [''], resources: [pods], operations: [CREATE, UPDATE], scope: Namespaced"),
        ("OnDemandFallback", "apiGroups: ['*'], resources: ['*/*'], operations: ['*']"),
        ("OnDemandFallback", "apiGroups: [compute.coreweave.com], resources: [nodepools/scale], operations: [UPDATE]"),
        ("OnDemandFallback", "apiGroups: [cluster.x-k8s.io], resources: [machinepools, machinepools/scale], operations: ['*']"),
        ("NodePoolRules", "apiGroups: [karpenter.sh, compute.coreweave.com], resources: [nodepools], operations: [CREATE, DELETE]"),
        ("NodePoolRules", "apiGroups: [compute.coreweave.com], resources: ['nodepools/*'], operations: [CREATE]"),
        ("Validation", "apiGroups: [example.com], resources: [widgets], operations: ['*']"),
        ("ReservedLabels", "apiGroups: [example.com], resources: [widgets], operations: ['*']"),
    ],
)  # fmt: skip
def test_a_match_that_a_kind_uses_is_accepted(tmp_path: Path, kind: str, rule: str) -> None:
    more = {"Validation": "validations: [{expression: 'true'}], ", "ReservedLabels": "domains: [example.com], "}
    document = (
        HEAD.format(kind=kind, name="own") + f"spec: {{{more.get(kind, '')}match: {{resourceRules: [{{{rule}}}]}}}}"
    )
    assert texts(tmp_path, document) == {}


@pytest.mark.parametrize("kind", ["GracefulTermination", "SpotPlacement", "SpotSuitability"])
def test_an_unknown_provider_is_rejected_at_its_field(tmp_path: Path, kind: str) -> None:
    head = HEAD.format(kind=kind, name="own")
    known = f"available: {', '.join(sorted(file.stem for file in PROVIDERS.glob('*.yaml')))}"
    text = f"there is no CapacityProvider `ckss`, did you mean `cks`?; {known}"
    assert texts(tmp_path, f"{head}spec: {{provider: ckss}}") == {"spec.provider": text}
    assert texts(tmp_path, f"{head}spec: {{provider: [gke, ckss]}}") == {"spec.provider[1]": text}
    assert texts(tmp_path, f"{head}spec: {{provider: cks}}") == {}


def test_a_folder_without_a_policy_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    with pytest.raises(PolicyErrors, match=r"contains no policy; name a folder with policy files"):
        load_bundle([tmp_path])


def test_a_folder_with_only_facts_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "gke.yaml").write_text((PROVIDERS / "gke.yaml").read_text())
    with pytest.raises(PolicyErrors, match="contains no policy; name the policies too"):
        load_bundle([tmp_path])
