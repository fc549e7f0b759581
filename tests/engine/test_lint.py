"""Warnings about policies: each one is correct and has the right position, and correct policies have none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.builders import BUNDLE
from tests.engine.rules import NOW
from webhook.engine.bundle import load_bundle
from webhook.engine.lint import warnings

if TYPE_CHECKING:
    from datetime import date

ROOT: Final = Path(__file__).parents[2]
TODAY: Final = NOW.date()
WIDE: Final = "`webhook-config` refuses the policy"
TEMPLATES: Final = "never matches the pod templates"
HEAD: Final = (
    "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\nspec:\n  domains: [example.com]\n"
)
PODS: Final = "apiGroups: [''], resources: [pods], operations: [CREATE]"


def warnings_of(folder: Path, *documents: str, today: date = TODAY) -> list[str]:
    file = folder / "policy.yaml"
    file.write_text("---\n".join(documents))
    return [str(warning).removeprefix(f"{file}:") for warning in warnings(load_bundle([file]), today)]


def match(text: str) -> str:
    return f"{HEAD}  match: {{{text}}}\n"


def rule(text: str) -> str:
    return match(f"resourceRules: [{{{PODS}}}, {{{text}}}]")


def exempt(text: str) -> str:
    return f"{HEAD}  exempt: [{{{text}, reason: agreed}}]\n"


RESOURCE: Final = "match.resourceRules[1].resources[0]"
GROUP: Final = "match.resourceRules[1].apiGroups[0]"
ALL: Final = "exempts everything that labels matches; if you intend this, set `enforcement: off`"
OPEN: Final = (
    "every user is in system:authenticated, so everyone can override a denial; list only the groups that need it"
)


@pytest.mark.parametrize(
    ("policy", "field", "text"),
    [
        (rule("apiGroups: [batch], resources: [job], operations: [CREATE]"), RESOURCE,
            "never matches: Kubernetes has no resource job in API group batch, did you mean `jobs`?"),
        (rule("apiGroups: [batch], resources: [events], operations: [CREATE]"), RESOURCE,
            "never matches: Kubernetes has no resource events in API group batch; events are in '' and 'events.k8s.io'"),
        (match("excludeResourceRules: [{apiGroups: [''], resources: [pod], operations: ['*']}]"),
            "match.excludeResourceRules[0].resources[0]",
            "never matches: Kubernetes has no resource pod in API group '', did you mean `pods`?"),
        (rule("apiGroups: [apps], apiVersions: [v1beta1, v2], resources: [deployments], operations: [CREATE]"), RESOURCE,
            "never matches: apps serves deployments as v1, and this rule names v1beta1, v2"),
        (rule("apiGroups: ['', events.k8s.io], apiVersions: [v2], resources: [events], operations: [CREATE]"), RESOURCE,
            "never matches: the core group serves events as v1 and events.k8s.io serves events as v1, and this rule names v2"),
        (rule("apiGroups: [autoscaling], apiVersions: [v2beta2], resources: [horizontalpodautoscalers], operations: [CREATE]"), RESOURCE,
            "never matches: autoscaling serves horizontalpodautoscalers as v1 and v2, and this rule names v2beta2"),
        (rule("apiGroups: [batch], apiVersions: [v2], resources: ['*'], operations: [CREATE]"), RESOURCE,
            "never matches: batch serves everything as v1, and this rule names v2"),
        (rule("apiGroups: [extensions], resources: [deployments], operations: [CREATE]"), GROUP,
            "never matches: Kubernetes no longer has API group extensions; deployments are in 'apps'"),
        (rule("apiGroups: [app], resources: [deployments], operations: [CREATE]"), GROUP,
            "never matches: there is no API group app, did you mean `apps`?"),
        (f"{HEAD}  breakGlass: {{groups: [sre, '*']}}\n", "breakGlass.groups[1]", OPEN),
        (f"{HEAD}  breakGlass: {{groups: [system:authenticated]}}\n", "breakGlass.groups[0]", OPEN),
        (exempt("users: ['*']"), "exempt[0]", ALL),
        (exempt("groups: [a, '*'], names: ['*']"), "exempt[0]", ALL),
        (exempt("users: [jane], expires: 2026-11-20"), "exempt[0].expires",
            "the exemption ended on 2026-11-20 (agreed); remove it, or extend it"),
        (exempt("users: [jane], expires: 2026-12-05"), "exempt[0].expires",
            "the exemption ends on 2026-12-05 (agreed); extend it, or correct the objects"),
    ],
)  # fmt: skip
def test_a_probable_mistake_is_a_warning_at_its_line(tmp_path: Path, policy: str, field: str, text: str) -> None:
    (warning,) = warnings_of(tmp_path, policy)
    place, _, rest = warning.partition(": ")
    assert place.startswith("6:")
    assert rest == f"spec.{field}: warning: {text}"


@pytest.mark.parametrize(
    "policy",
    [
        rule("apiGroups: [apps, ''], resources: [deployments], operations: [CREATE]"),
        rule("apiGroups: ['*'], resources: [deploymnets], apiVersions: [v7], operations: [CREATE]"),
        rule("apiGroups: [karpenter.sh], resources: [nodeclaims, nodeclaim], operations: [CREATE]"),
        rule("apiGroups: [apps, storage.k8s.io], apiVersions: [v2], resources: ['*'], operations: [CREATE]"),
        rule("apiGroups: [networking.k8s.io], apiVersions: [v1beta1], resources: [servicecidrs], operations: [CREATE]"),
        rule("apiGroups: [batch, karpenter.sh], apiVersions: [v1beta1], resources: [jobs], operations: [CREATE]"),
        rule(f"{PODS}, apiVersions: [v1, v2]"),
        rule("apiGroups: [''], resources: [pods/exec], operations: [CONNECT]"),
        f"{HEAD}  breakGlass: {{groups: ['sre-*', system:masters]}}\n",
        exempt("users: ['*'], names: [web]"),
        exempt("namespaces: ['*']"),
        exempt("users: ['*'], objectSelector: {matchLabels: {a: b}}"),
        exempt("users: [jane], expires: 2026-12-06"),
        rule(f"{PODS}, apiVersions: [v2]").replace("  match", "  enforcement: off\n  match"),
    ],
)
def test_a_plausible_policy_has_no_warning(tmp_path: Path, policy: str) -> None:
    assert warnings_of(tmp_path, policy) == []


EXEMPTION: Final = "apiVersion: spotgate.dev/v1\nkind: Exemption\nmetadata: {name: team-a}\nspec: {policies: [labels], reason: agreed, "


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ("groups: ['*']}", [f"10:1: spec: warning: {ALL}"]),
        ("users: [a], expires: 2020-01-01}", ["10:56: spec.expires: warning: the exemption ended on 2020-01-01 (agreed); remove it, or extend it"]),
        ("users: [a]}", []),
    ],
)  # fmt: skip
def test_an_Exemption_gets_the_warnings_of_an_exempt_entry(tmp_path: Path, spec: str, warning: list[str]) -> None:
    assert warnings_of(tmp_path, HEAD, f"{EXEMPTION}{spec}\n") == warning


@pytest.mark.parametrize(
    ("rules", "resources"),
    [
        ([("apps", "deployments")], ["deployments"]),
        ([("*", "jobs"), ("compute.coreweave.com", "nodepools")], ["jobs"]),
        ([("apps", "deployments"), ("", "pods")], []),
        ([("apps", "deployments"), ("", "*")], []),
        ([("", "nodes")], []),
        ([("example.com", "deployments")], []),
    ],
)
def test_matching_workloads_without_pods_warns_that_templates_are_not_matched(
    tmp_path: Path, rules: list[tuple[str, str]], resources: list[str]
) -> None:
    written = ", ".join(
        f"{{apiGroups: ['{group}'], resources: ['{name}'], operations: [CREATE]}}" for group, name in rules
    )
    lines = [line for line in warnings_of(tmp_path, match(f"resourceRules: [{written}]")) if WIDE not in line]
    assert [line.partition(": ")[2].partition(",")[0] for line in lines] == [
        f"spec.match.resourceRules[0].resources[0]: warning: {TEMPLATES} of {name}" for name in resources
    ]


KIND: Final = "matches no known kind, did you mean `%s`?"


@pytest.mark.parametrize(
    ("kind", "spec", "warning"),
    [
        ("EvictionStrategy", "distributed: [PyTorchJobs.kubeflow.org]", ("distributed[0]", KIND % "PyTorchJob.kubeflow.org")),
        ("EvictionStrategy", "replicated: [RayClustr.ray.io]", ("replicated[0]", KIND % "RayCluster.ray.io")),
        ("EvictionStrategy", "stateful: ['*.apps', Pytorchjob.kubeflow.org]", ("stateful[1]", KIND % "PyTorchJob.kubeflow.org")),
        ("SpotSuitability", "replicated: [RayClustr.ray.io]", ("replicated[0]", KIND % "RayCluster.ray.io")),
        ("GracefulTermination", "trainingOperators: [RayClusters.ray.io]", ("trainingOperators[0]", KIND % "RayCluster.ray.io")),
        ("GracefulTermination", "trainingOperators: [TrainJob.trainer.kubeflow.org, Job.batch.acme.io, Tune.ray.io, Rollout.kruise.io, '*s.ray.io']", None),
        ("GracefulTermination", "classes: {statless: {graceSeconds: 90, preStopSeconds: 5}}", ("classes.statless", "adds a new class, did you mean `stateless`?")),
        ("GracefulTermination", "classes: {stateful: &own {graceSeconds: 90, preStopSeconds: 5}, stateless2: *own, stateless: *own}", None),
        ("SpotSuitability", "drivers: [{name: a, member: workerGroupSpec}]", ("drivers[0].member", "no known template path has this member, did you mean `workerGroupSpecs`?")),
        ("SpotSuitability", "drivers: [{name: b, member: head}, {name: c, label: {key: a, value: b}}, {name: d, member: coordinator}]", None),
    ],
)  # fmt: skip
def test_a_misspelt_kind_class_or_member_is_a_warning(
    tmp_path: Path, kind: str, spec: str, warning: tuple[str, str] | None
) -> None:
    document = f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
    lines = [line.partition(": ")[2] for line in warnings_of(tmp_path, document)]
    assert lines == ([f"spec.{warning[0]}: warning: {warning[1]}"] if warning else [])


def test_the_warnings_consider_a_teams_workload_kinds(tmp_path: Path) -> None:
    workloads = (
        "apiVersion: spotgate.dev/v1\nkind: WorkloadTemplates\nmetadata: {name: own}\nspec:\n  workloads:\n"
        "    - {group: ml.acme.example, kind: Training, resource: trainings, templates: [spec.chiefSpec.template]}\n"
    )
    head = "---\napiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: a}\n"
    policy = f"{head}spec: {{stateful: [Trainings.ml.acme.example], drivers: [{{name: a, member: chiefSpecs}}]}}\n"
    assert [line.partition(": ")[2] for line in warnings_of(tmp_path, workloads + policy)] == [
        "spec.stateful[0]: warning: matches no known kind, did you mean `Training.ml.acme.example`?",
        "spec.drivers[0].member: warning: no known template path has this member, did you mean `chiefSpec`?",
    ]


@pytest.mark.parametrize("kind", ["EvictionStrategy", "SpotSuitability"])
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("findings: {%s: deny}", "can't be denied: the policy's enforcement is warn by default"),
        ("enforcement: audit, findings: {%s: deny}", "can't be denied: the policy's enforcement is audit"),
        ("enforcement: deny, findings: {%s: deny}", ""),
        ("enforcement: 'off', findings: {%s: deny}", ""),
        ("findings: {%s: warn}", ""),
        ("findings: {%s: off}", ""),
    ],
)
def test_denying_a_finding_in_a_policy_that_does_not_deny_is_a_warning(
    tmp_path: Path, kind: str, spec: str, problem: str
) -> None:
    finding = {"EvictionStrategy": "noEffect", "SpotSuitability": "fewReplicas"}[kind]
    head = f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: a}}\n"
    lines = [line.partition(": ")[2] for line in warnings_of(tmp_path, f"{head}spec: {{{spec % finding}}}\n")]
    todo = "set `enforcement: deny`, and `warn` for the findings that shouldn't deny"
    assert lines == ([f"spec.findings.{finding}: warning: {finding} {problem}; {todo}"] if problem else [])


OWN: Final = sorted(path for path in ROOT.glob("examples/**/policies") if path.is_dir())


@pytest.mark.parametrize("own", OWN, ids=lambda own: str(own.relative_to(ROOT)))
def test_the_example_policies_have_no_warning(own: Path) -> None:
    assert warnings(load_bundle([own]), TODAY) == []


def test_the_default_policies_have_no_warning() -> None:
    assert warnings(BUNDLE, TODAY) == []


# Rules that would send too many requests to the webhook.
@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ("'*'", "every resource"),
        ("apps, ''", "every Event and Node, among others"),
        ("coordination.k8s.io", "every Lease"),
        ("karpenter.sh", "all of karpenter.sh, where node pools are evaluated with failurePolicy Fail"),
        ("apps, example.com", ""),
    ],
)
@pytest.mark.parametrize("resource", ["*", "*/*", "*/status", "*/scale"])
def test_a_rule_that_is_too_broad_for_a_webhook_is_a_warning(
    tmp_path: Path, groups: str, what: str, resource: str
) -> None:
    text = f"apiGroups: [{groups}], resources: ['{resource}'], operations: [UPDATE]"
    lines = [line for line in warnings_of(tmp_path, match(f"resourceRules: [{{{text}}}]")) if WIDE in line]
    warning = f"{WIDE}: with '{resource}', the API server calls the webhook for {what}"
    field = "spec.match.resourceRules[0].resources[0]"
    seldom = resource == "*/scale" and groups not in {"'*'", "karpenter.sh"}
    assert [line.partition(": ")[2] for line in lines] == (
        [f"{field}: warning: {warning}; name the resources instead"] if what and not seldom else []
    )
    assert not warnings_of(tmp_path, f"{HEAD}  enforcement: off\n  match: {{resourceRules: [{{{text}}}]}}\n")
