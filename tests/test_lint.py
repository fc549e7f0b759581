"""Warnings about what has no effect: they are true, they are there where they should be, and nowhere else."""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.test_engine import NOW, POD, Says, request
from webhook.bundle import load_bundle
from webhook.cli.judging import path_of
from webhook.context import Context, Phase
from webhook.decision import Outcome
from webhook.engine import decide
from webhook.index import Index
from webhook.lint import warnings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import date

    from webhook.bundle import Bundle
    from webhook.review import Request

JSON = dict[str, Any]

ROOT: Final = Path(__file__).parents[1]
TODAY: Final = NOW.date()
WIDE: Final = "`webhook-config` refuses the policy"
OF_THE_KIND: Final = "never looks at the pod templates"
"""What ReservedLabels says itself, and the tests of it judge."""
HEAD: Final = (
    "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\nspec:\n  domains: [example.com]\n"
)
PODS: Final = "apiGroups: [''], resources: [pods], operations: [CREATE]"
NODES: Final = "resourceRules: [{apiGroups: [''], resources: [nodes], operations: [CREATE]}]"


def said(folder: Path, *documents: str, today: date = TODAY) -> list[str]:
    file = folder / "policy.yaml"
    file.write_text("---\n".join(documents))
    found = (each for each in warnings(load_bundle([file]), today) if OF_THE_KIND not in each.text)
    return [str(each).removeprefix(f"{file}:") for each in found]


def match(text: str) -> str:
    return f"{HEAD}  match: {{{text}}}\n"


def rule(text: str) -> str:
    return match(f"resourceRules: [{{{text}}}]")


def exempt(text: str, more: str = "") -> str:
    return f"{HEAD}{more}  exempt: [{{{text}, reason: agreed}}]\n"


@pytest.mark.parametrize(
    ("policy", "field", "text"),
    [
        (rule("apiGroups: [apps], resources: [deployment], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "never matches: Kubernetes has no resource deployment in API group apps, did you mean `deployments`?"),
        (rule("apiGroups: [''], resources: [pods, jobs], operations: [CREATE]"), "match.resourceRules[0].resources[1]",
            "never matches: Kubernetes has no resource jobs in API group ''; jobs are in 'batch'"),
        (rule("apiGroups: [''], resources: [pods/exec], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "never matches: pods/exec has only CONNECT, and this rule names CREATE"),
        (rule("apiGroups: [''], resources: [pods/log], operations: ['CREATE']"), "match.resourceRules[0].resources[0]",
            "never matches: pods/log is only read"),
        (rule("apiGroups: [compute.coreweave.com], resources: [nodepools/scale], operations: [CREATE, DELETE]"),
            "match.resourceRules[0].resources[0]",
            "never matches: nodepools/scale has only UPDATE, and this rule names CREATE, DELETE"),
        (rule(f"{PODS}, scope: Cluster"), "match.resourceRules[0].resources[0]",
            "never matches: scope is Cluster, and pods are in namespaces"),
        (rule("apiGroups: [compute.coreweave.com], resources: [nodepools], operations: ['*'], scope: Namespaced"),
            "match.resourceRules[0].resources[0]",
            "never matches: scope is Namespaced, and nodepools are cluster-scoped"),
        (match("excludeResourceRules: [{apiGroups: [''], resources: [Pod], operations: ['*']}]").replace("Pod", "pod"),
            "match.excludeResourceRules[0].resources[0]",
            "never matches: Kubernetes has no resource pod in API group '', did you mean `pods`?"),
        (match(f"resourceRules: [{{{PODS}}}], excludeResourceRules: [{{apiGroups: ['*'], resources: ['*'], operations: ['*']}}]"),
            "match.resourceRules[0]", "never matches: excludeResourceRules takes out all of it"),
        (match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: [team-a, team-b], exclude: ['team-*']}}"),
            "match.namespaces.include", "never matches: exclude takes out every namespace that include names"),
        (match("namespaces: {include: [team-a], exclude: ['*']}"), "match.namespaces.include",
            "never matches anything in a namespace: exclude takes out every namespace that include names"),
        (match("namespaces: {exclude: ['*']}"), "match.namespaces.exclude",
            "never matches anything in a namespace: it takes out every namespace"),
        (match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: ['cw-*']}}"), "match.namespaces.include",
            "never matches: include takes in only system namespaces; only one that is named whole is looked at, to warn"),
        (rule("apiGroups: [apps], apiVersions: [v1beta1, v2], resources: [deployments], operations: [CREATE]"),
            "match.resourceRules[0].resources[0]",
            "never matches: apps serves deployments as v1, and this rule names v1beta1, v2"),
        (rule(f"{PODS}, apiVersions: [v2]"), "match.resourceRules[0].resources[0]",
            "never matches: the core group serves pods as v1, and this rule names v2"),
        (rule("apiGroups: [karpenter.sh], resources: [nodepool], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "never matches: a resource is named in the plural, and karpenter.sh has `nodepools`"),
        (rule("apiGroups: [batch], apiVersions: [v1beta1], resources: [cronjobs], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "never matches: batch serves cronjobs as v1, and this rule names v1beta1"),
        (rule("apiGroups: [autoscaling], apiVersions: [v2beta2], resources: [horizontalpodautoscalers], operations: [CREATE]"),
            "match.resourceRules[0].resources[0]",
            "never matches: autoscaling serves horizontalpodautoscalers as v1 and v2, and this rule names v2beta2"),
        (rule("apiGroups: [networking.k8s.io], apiVersions: [v1beta1], resources: [ingresses], operations: [CREATE]"),
            "match.resourceRules[0].resources[0]",
            "never matches: networking.k8s.io serves ingresses as v1, and this rule names v1beta1"),
        (rule("apiGroups: [batch], apiVersions: [v2], resources: ['*'], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "never matches: batch serves everything as v1, and this rule names v2"),
        (rule("apiGroups: [extensions], resources: [deployments], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "never matches: Kubernetes has no API group extensions any more; deployments are in 'apps'"),
        (rule("apiGroups: [apps, extensions], resources: ['*'], operations: [CREATE]"), "match.resourceRules[0].apiGroups[1]",
            "never matches: Kubernetes has no API group extensions any more"),
        (rule("apiGroups: [app], resources: [deployments], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "never matches: there is no API group app, did you mean `apps`?"),
        (rule("apiGroups: [compute.coreweave.co], resources: [nodepools], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "matches nothing that is known: API group compute.coreweave.co, did you mean `compute.coreweave.com`?"),
        (rule("apiGroups: [compute.coreweave.cloud], resources: [nodepools], operations: [CREATE]"),
            "match.resourceRules[0].apiGroups[0]",
            "matches nothing that is known: API group compute.coreweave.cloud, did you mean `compute.coreweave.com`?"),
        (rule("apiGroups: ['*'], resources: [deploymnets], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "matches nothing that is known: no API group has a resource deploymnets, did you mean `deployments`?"),
        (rule("apiGroups: ['*'], resources: [pod], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "matches nothing that is known: no API group has a resource pod, did you mean `pods`?"),
        (rule("apiGroups: [karpenter.sh], resources: [nodepoolss], operations: [CREATE]"), "match.resourceRules[0].resources[0]",
            "matches nothing that is known: karpenter.sh has no resource nodepoolss, did you mean `nodepools`?"),
        (rule("apiGroups: [''], resources: [pods/scael], operations: [UPDATE]"), "match.resourceRules[0].resources[0]",
            "never matches: pods has no subresource scael; there are attach, binding, ephemeralcontainers, eviction, exec, log, portforward, proxy, resize, status"),
        (rule("apiGroups: [apps], resources: ['*/exec'], operations: ['*']"), "match.resourceRules[0].resources[0]",
            "never matches: nothing in apps has a subresource exec; there are scale, status"),
        (rule("apiGroups: [''], resources: [componentstatuses], operations: ['*']"), "match.resourceRules[0].resources[0]",
            "never matches: componentstatuses is only read"),
        (rule("apiGroups: [apps], resources: [deployments/sclae], operations: [UPDATE]"), "match.resourceRules[0].resources[0]",
            "never matches: deployments has no subresource sclae, did you mean `scale`?"),
        (rule("apiGroups: [karpenter.sh], resources: [nodepools/stauts], operations: [UPDATE]"), "match.resourceRules[0].resources[0]",
            "never matches: nodepools has no subresource stauts, did you mean `status`?"),
        (rule("apiGroups: [''], resources: [pods], operations: [CREATE, CONNECT]"), "match.resourceRules[0].operations[1]",
            "never matches: there is no CONNECT of pods; it is that of subresources, as pods/exec"),
        (rule("apiGroups: [authentication.k8s.io], resources: [tokenreviews], operations: [UPDATE]"), "match.resourceRules[0].resources[0]",
            "never matches: tokenreviews has only CREATE, and this rule names UPDATE"),
        (match("namespaces: {include: ['team-*']}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}"),
            "match.namespaceSelector",
            "never matches anything in a namespace: it selects default alone, and `namespaces` leaves that out"),
        (match("namespaces: {include: [team-a]}, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [team-a]}]}"),
            "match.namespaceSelector",
            "never matches anything in a namespace: it leaves out every namespace that namespaces.include names"),
        (match("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}"), "match.namespaceSelector",
            "never matches anything in a namespace: it selects kube-system alone, of which nothing is looked at: a system namespace"),
        (match("namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: DoesNotExist}]}"), "match.namespaceSelector",
            "never matches anything in a namespace: every namespace has the label kubernetes.io/metadata.name"),
        (rule(f"{PODS}, resourceNames: [web, 'web-*']"), "match.resourceRules[0].resourceNames[1]",
            "never matches: resourceNames are whole names, no globs, and nothing is named web-*"),
        (match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: [team-a, Team_A]}}"), "match.namespaces.include[1]",
            "no namespace is named Team_A: names have lower case letters, digits and '-'"),
        (match("namespaces: {include: ['Team-*', team-a]}"), "match.namespaces.include[0]",
            "no namespace is named Team-*: names have lower case letters, digits and '-'"),
        (match("namespaces: {exclude: [team-a, Team_A]}"), "match.namespaces.exclude[1]",
            "no namespace is named Team_A: names have lower case letters, digits and '-'"),
        (match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: [kube-system, kube-node-lease]}}"), "match.namespaces.include",
            "denies nothing: include takes in only system namespaces, where a denial is a warning; write `enforcement: warn`"),
        (rule("apiGroups: [jobset.sigs.k8s.io], resources: [jobsets], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "matches nothing that is known: API group jobset.sigs.k8s.io, did you mean `jobset.x-k8s.io`?"),
        (rule("apiGroups: [rays.io], resources: [rayclusters], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "matches nothing that is known: API group rays.io, did you mean `ray.io`?"),
        (rule("apiGroups: [kubeflow.com], resources: [mpijobs], operations: [CREATE]"), "match.resourceRules[0].apiGroups[0]",
            "matches nothing that is known: API group kubeflow.com, did you mean `kubeflow.org`?"),
        (exempt("namespaces: [team-a, Team-A]"), "exempt[0].namespaces[1]",
            "never holds: no namespace is named Team-A: names have lower case letters, digits and '-'"),
        (exempt("namespaces: ['team-.*']"), "exempt[0].namespaces[0]",
            "never holds: no namespace is named team-.*: names have lower case letters, digits and '-'"),
        (exempt("namespaces: ['{team-a,team-b}']"), "exempt[0].namespaces[0]",
            "never holds: no namespace is named {team-a,team-b}: names have lower case letters, digits and '-'"),
        (exempt("serviceAccounts: ['ci:Deployer_X']"), "exempt[0].serviceAccounts[0]",
            "never holds: no service account is named ci:Deployer_X: names have lower case letters, digits, '-' and '.'"),
        (exempt("serviceAccounts: ['*:*', 'CI:deployer']"), "exempt[0].serviceAccounts[1]",
            "never holds: no service account is named CI:deployer: names have lower case letters, digits, '-' and '.'"),
        (f"{HEAD}  breakGlass: {{groups: [sre, '*']}}\n", "breakGlass.groups[1]",
            "everybody is in system:authenticated, so whoever writes the annotation overrides a denial: name the groups that may"),
        (f"{HEAD}  breakGlass: {{groups: [system:authenticated]}}\n", "breakGlass.groups[0]",
            "everybody is in system:authenticated, so whoever writes the annotation overrides a denial: name the groups that may"),
        (match("objectSelector: {matchLabels: {team: a}, matchExpressions: [{key: team, operator: NotIn, values: [a]}]}"),
            "match.objectSelector", "never matches: no value of label team meets all that is required of it"),
        (match("objectSelector: {matchExpressions: [{key: t, operator: Exists}, {key: t, operator: DoesNotExist}]}"),
            "match.objectSelector", "never matches: no value of label t meets all that is required of it"),
        (match("namespaceSelector: {matchLabels: {t: a}, matchExpressions: [{key: t, operator: In, values: [b]}]}"),
            "match.namespaceSelector",
            "never matches anything in a namespace: no value of label t meets all that is required of it"),
        (match(f"{NODES}, namespaceSelector: {{matchLabels: {{a: b}}}}"), "match.namespaceSelector",
            "restricts nothing: what the policy looks at is cluster-scoped, and in no namespace"),
        (match(f"{NODES}, namespaces: {{include: [a]}}"), "match.namespaces",
            "restricts nothing: what the policy looks at is cluster-scoped, and in no namespace"),
        (exempt("users: ['*']"), "exempt[0]",
            "lets everything through that labels looks at; if that is meant, write `enforcement: off`"),
        (exempt("namespaces: ['team-*']", f"  match: {{resourceRules: [{{{PODS}}}], namespaces: {{include: [team-a]}}}}\n"),
            "exempt[0]", "lets everything through that labels looks at; if that is meant, write `enforcement: off`"),
        (exempt("namespaces: [team-b]", "  match: {namespaces: {include: [team-a]}}\n"), "exempt[0].namespaces",
            "never holds: the policy looks at nothing in these namespaces"),
        (exempt("namespaces: [team-b]", f"  match: {{{NODES}}}\n"), "exempt[0].namespaces",
            "never holds: what the policy looks at is in no namespace"),
        (exempt("users: [jane], serviceAccounts: ['ci:*']"), "exempt[0].users",
            "never holds: none of these users is one of the serviceAccounts; write two entries, of which one holds"),
        (exempt("objectSelector: {matchLabels: {t: a}}", "  match: {resourceRules: [{apiGroups: [''], resources: [pods/eviction, pods/exec], operations: ['*']}]}\n"),
            "exempt[0].objectSelector",
            "never holds: the labels that come with pods/eviction, pods/exec are not those of the resource"),
        (exempt("users: [system:serviceaccount:a:b:c], serviceAccounts: ['*:c']"), "exempt[0].users",
            "never holds: none of these users is one of the serviceAccounts; write two entries, of which one holds"),
        (exempt("users: [jane, system:serviceaccounts:argo]"), "exempt[0].users[1]",
            "never holds: system:serviceaccounts:argo is a group; name it under `groups`"),
        (exempt("users: [system:masters]"), "exempt[0].users[0]",
            "never holds: system:masters is a group; name it under `groups`"),
        (exempt("groups: [system:serviceaccount:argo:cd]"), "exempt[0].groups[0]",
            "never holds: system:serviceaccount:argo:cd is a user: `serviceAccounts: [argo:cd]` of an exemption names it"),
        (f"{HEAD}  breakGlass: {{groups: [sre, system:serviceaccount:argo:cd]}}\n", "breakGlass.groups[1]",
            "never holds: system:serviceaccount:argo:cd is a user: `serviceAccounts: [argo:cd]` of an exemption names it"),
        (match("resourceRules: [{apiGroups: [autoscaling], apiVersions: [v2], resources: [horizontalpodautoscalers], operations: ['*']}], "
            "excludeResourceRules: [{apiGroups: [autoscaling], apiVersions: [v1], resources: ['horizontalpodautoscalers'], operations: ['*']}]"),
            "match.resourceRules[0]", "never matches: excludeResourceRules takes out all of it"),
        (exempt("objectSelector: {matchExpressions: [{key: t, operator: Exists}, {key: t, operator: DoesNotExist}]}"),
            "exempt[0].objectSelector", "never holds: no value of label t meets all that is required of it"),
        (exempt("users: [jane], expires: 2026-11-20"), "exempt[0].expires",
            "the exemption ended on 2026-11-20 (agreed) and holds no longer; remove it, or renew it"),
        (exempt("users: [jane], expires: 2026-12-05"), "exempt[0].expires",
            "the exemption ends on 2026-12-05 (agreed); renew it, or mend what it lets through"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_a_warning_with_the_reason_at_its_line(
    tmp_path: Path, policy: str, field: str, text: str
) -> None:
    (warning,) = said(tmp_path, policy)
    place, _, rest = warning.partition(": ")
    assert place.startswith("6:") or (place.startswith("7:") and field.startswith("exempt"))
    assert rest == f"spec.{field}: warning: {text}"


EXEMPTION: Final = (
    "apiVersion: spotgate.dev/v1\nkind: Exemption\nmetadata: {name: team-a}\nspec: {policies: [%s], reason: agreed, "
)


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ("namespaces: [team-b]}", ["11:44: spec.namespaces: warning: never holds: the policy looks at nothing in these namespaces"]),
        ("groups: ['*']}", ["11:1: spec: warning: lets everything through that labels looks at; if that is meant, write `enforcement: off`"]),
        ("users: [a], expires: 2020-01-01}", ["11:56: spec.expires: warning: the exemption ended on 2020-01-01 (agreed) and holds no longer; remove it, or renew it"]),
        ("users: [a]}", []),
    ],
)  # fmt: skip
def test_an_exemption_document_is_judged_by_the_policies_it_names(
    tmp_path: Path, spec: str, warning: list[str]
) -> None:
    policy = match("namespaces: {include: [team-a]}")
    assert said(tmp_path, policy, (EXEMPTION % "labels") + spec + "\n") == warning


def test_an_exemption_that_holds_for_one_of_its_policies_is_no_warning(tmp_path: Path) -> None:
    other = match("namespaces: {include: [team-b]}").replace("name: labels", "name: others")
    exemption = (EXEMPTION % "'*'") + "namespaces: [team-b]}\n"
    assert said(tmp_path, match("namespaces: {include: [team-a]}"), other, exemption) == []


@pytest.mark.parametrize(
    ("reserved", "left", "found"),
    [
        ("", "[a.example]", ["leftToReservedLabels[0]"]),
        ("{domains: [a.example]}", "[a.example, b.a.example, xa.example]", ["leftToReservedLabels[2]"]),
        ("{domains: [b.a.example]}", "[a.example]", ["leftToReservedLabels[0]"]),
        ("{domains: [a.example], enforcement: off}", "[a.example]", ["leftToReservedLabels[0]"]),
    ],
)
def test_labels_that_are_left_to_a_policy_that_is_not_there(
    tmp_path: Path, reserved: str, left: str, found: list[str]
) -> None:
    head = "apiVersion: spotgate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
    documents = [head.format("EvictionStrategy", "strategy", f"{{leftToReservedLabels: {left}}}")]
    if reserved:
        documents.append(head.format("ReservedLabels", "labels", reserved))
    told = said(tmp_path, *documents)
    assert [line.split()[1] for line in told] == [f"spec.{each}:" for each in found]
    assert all("misspelt ones are found by nobody" in line for line in told)


GROUP: Final = "matches nothing that is known, did you mean `%s`?"


@pytest.mark.parametrize(
    ("kind", "spec", "warning"),
    [
        ("EvictionStrategy", "distributed: [PyTorchJobs.kubeflow.org]", ("distributed[0]", GROUP % "PyTorchJob.kubeflow.org")),
        ("EvictionStrategy", "stateful: ['*.apps', Pytorchjob.kubeflow.org]", ("stateful[1]", GROUP % "PyTorchJob.kubeflow.org")),
        ("EvictionStrategy", "replicated: [PyTorchJob.kubeflow.com]", ("replicated[0]", GROUP % "PyTorchJob.kubeflow.org")),
        ("EvictionStrategy", "distributed: [JobSet.jobset.sigs.k8s.io]", ("distributed[0]", GROUP % "JobSet.jobset.x-k8s.io")),
        ("SpotSuitability", "replicated: [RayClustr.ray.io]", ("replicated[0]", GROUP % "RayCluster.ray.io")),
        ("SpotSuitability", "stateful: [LeaderWorkerSet.leaderworkersets.x-k8s.io]", ("stateful[0]", GROUP % "LeaderWorkerSet.leaderworkerset.x-k8s.io")),
        ("GracefulTermination", "trainingOperators: [RayClusters.ray.io]", ("trainingOperators[0]", GROUP % "RayCluster.ray.io")),
        ("GracefulTermination", "trainingOperators: [TrainJob.trainer.kubeflow.org, Job.batch.acme.io, RayCron.ray.io, Rollout.kruise.io, '*s.ray.io']", None),
        ("GracefulTermination", "classes: {statless: {graceSeconds: 90, preStopSeconds: 5}}", ("classes.statless", "makes another class beside `stateless`, did you mean that one?")),
        ("GracefulTermination", "classes: {stateful: &own {graceSeconds: 90, preStopSeconds: 5}, stateless2: *own, stateless: *own, bath: *own}", None),
        ("SpotSuitability", "drivers: [{name: Ray head, member: headGroup}]", ("drivers[0].member", "no template path that is known has a member headGroup, did you mean `headGroupSpec`?")),
        ("SpotSuitability", "drivers: [{name: a, member: workerGroupSpec}]", ("drivers[0].member", "no template path that is known has a member workerGroupSpec, did you mean `workerGroupSpecs`?")),
        ("SpotSuitability", "drivers: [{name: a, member: Launcher}, {name: b, member: head}, {name: c, label: {key: a, value: b}}, {name: d, member: coordinator}]", None),
    ],
)  # fmt: skip
def test_a_name_that_is_nearly_one_that_is_known_is_a_warning(
    tmp_path: Path, kind: str, spec: str, warning: tuple[str, str] | None
) -> None:
    document = f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
    found = [each.partition(": ")[2] for each in said(tmp_path, document)]
    assert found == ([f"spec.{warning[0]}: warning: {warning[1]}"] if warning else [])


def test_the_kinds_of_a_team_of_its_own_are_known(tmp_path: Path) -> None:
    workloads = (
        "apiVersion: spotgate.dev/v1\nkind: WorkloadTemplates\nmetadata: {name: own}\nspec:\n  workloads:\n"
        "    - {group: ml.acme.example, kind: Training, resource: trainings, templates: [spec.chiefSpec.template]}\n"
    )
    head = "---\napiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: a}\n"
    policy = f"{head}spec: {{stateful: [Trainings.ml.acme.example], drivers: [{{name: a, member: chiefSpecs}}]}}\n"
    assert [each.partition(": ")[2] for each in said(tmp_path, workloads + policy)] == [
        "spec.stateful[0]: warning: matches nothing that is known, did you mean `Training.ml.acme.example`?",
        "spec.drivers[0].member: warning: no template path that is known has a member chiefSpecs, did you mean `chiefSpec`?",
    ]


@pytest.mark.parametrize(
    ("kind", "resource", "likely"),
    [
        ("Sweep", "sweep", "sweeps"),
        ("Training", "training", "trainings"),
        ("Training", "trainngs", "trainings"),
        ("Training", "trainings", ""),
        ("Sweep", "sweps", ""),
        ("Mesh", "meshes", ""),
        ("PodMeshBatch", "podmeshbatches", ""),
        ("Gateway", "gateways", ""),
        ("Policy", "policies", ""),
        ("Process", "processes", ""),
        ("TrainingOps", "trainingops", ""),
        ("Training", "mltrainings", ""),
    ],
)
def test_a_resource_is_said_to_be_no_plural_of_its_kind(tmp_path: Path, kind: str, resource: str, likely: str) -> None:
    item = f"{{group: ml.acme.example, kind: {kind}, resource: {resource}, templates: [spec.template]}}"
    head = "apiVersion: spotgate.dev/v1\nkind: WorkloadTemplates\nmetadata: {name: own}\n"
    text = f"a resource is named in the plural: that of kind {kind} is likely `{likely}`"
    found = [each.partition(": ")[2] for each in said(tmp_path, f"{head}spec: {{workloads: [{item}]}}\n", f"{HEAD}")]
    assert found == ([f"spec.workloads[0].resource: warning: {text}"] if likely else [])


@pytest.mark.parametrize("kind", ["EvictionStrategy", "SpotSuitability"])
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("findings: {%s: deny}", "can't be denied: the policy's enforcement is warn by default"),
        ("enforcement: audit, findings: {%s: deny}", "can't be denied: the policy's enforcement is audit"),
        ("enforcement: deny, findings: {%s: deny}", ""),
        ("enforcement: 'off', findings: {%s: deny}", ""),
        ("findings: {%s: warn}", ""),
        ("findings: {%s: off}", ""),
    ],
)
def test_a_finding_to_deny_in_a_policy_that_denies_nothing_is_a_warning(
    tmp_path: Path, kind: str, spec: str, told: str
) -> None:
    finding = {"EvictionStrategy": "noEffect", "SpotSuitability": "fewReplicas"}[kind]
    head = f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: a}}\n"
    found = [each.partition(": ")[2] for each in said(tmp_path, f"{head}spec: {{{spec % finding}}}\n")]
    todo = "write `enforcement: deny`, and `warn` for the findings that are not to deny"
    assert found == ([f"spec.findings.{finding}: warning: {finding} {told}; {todo}"] if told else [])


@pytest.mark.parametrize(("expression", "told"), [("false", 1), (" false\n", 1), ("true", 0), ("1 == 2", 1)])
def test_a_condition_that_is_false_is_said_to_switch_the_policy_off(tmp_path: Path, expression: str, told: int) -> None:
    pods = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    spec = {
        "match": {"resourceRules": [pods]},
        "matchConditions": [{"name": "off", "expression": expression}],
        "validations": [{"expression": "object.kind == 'Pod'"}],
    }
    policy = {"apiVersion": "spotgate.dev/v1", "kind": "Validation", "metadata": {"name": "a"}, "spec": spec}
    text = (
        "spec.matchConditions[0].expression: warning: never matches: this condition is false on all that `match` names"
    )
    found = said(tmp_path, json.dumps(policy))
    assert len(found) == told
    assert all(text in each for each in found)


@pytest.mark.parametrize(
    "policy",
    [
        rule("apiGroups: [scheduling.k8s.io], resources: [workloads/status], operations: [UPDATE]"),
        rule("apiGroups: ['*'], resources: ['*/scale', '*'], operations: ['*']"),
        rule("apiGroups: ['', apps], resources: [pods, deployments], operations: [CREATE]"),
        rule("apiGroups: [example.com], resources: [thing, thing/exec], operations: [CONNECT]"),
        rule("apiGroups: [''], resources: [pods/*], operations: [CONNECT]"),
        match("namespaces: {include: ['team-*'], exclude: [team-a]}"),
        match("namespaces: {include: ['team-?'], exclude: ['team-[ab]']}"),
        match("namespaceSelector: {matchExpressions: [{key: t, operator: NotIn, values: [a]}, {key: t, operator: Exists}]}"),
        match(f"excludeResourceRules: [{{{PODS}, resourceNames: [web]}}], resourceRules: [{{{PODS}}}]"),
        match("namespaces: {include: [kube-system]}"),
        match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: [kube-system]}}").replace("  match", "  enforcement: warn\n  match"),
        match(f"resourceRules: [{{{PODS}}}], namespaces: {{include: [kube-system, team-a]}}"),
        rule("apiGroups: [batch.acme.io, hypershift.openshift.io], resources: [jobs, nodepools, rollouts], operations: [CREATE]"),
        rule("apiGroups: [rollouts.kruise.io, kueue.x-k8s.io, cluster.x-k8s.io], resources: [rollouts, workloads], operations: [CREATE]"),
        exempt("serviceAccounts: ['ci:deploy-[0-9].*', '*:a.b', 'team-?:*']"),
        f"{HEAD}  breakGlass: {{groups: ['sre-*', system:masters]}}\n",
        match("namespaces: {include: ['team-[a-c]', 'team-[!x]?', 'team-[]A]*', '9']}"),
        rule(f"{PODS}, apiVersions: [v1, v2]"),
        rule("apiGroups: [apps, storage.k8s.io], apiVersions: [v2], resources: ['*'], operations: [CREATE]"),
        rule("apiGroups: [batch, autoscaling], apiVersions: [v2], resources: ['*'], operations: [CREATE]"),
        rule("apiGroups: [networking.k8s.io], apiVersions: [v1beta1], resources: [servicecidrs], operations: [CREATE]"),
        rule("apiGroups: ['*'], apiVersions: [v1beta1], resources: [cronjobs], operations: [CREATE]"),
        rule("apiGroups: [batch, karpenter.sh], apiVersions: [v1beta1], resources: [jobs], operations: [CREATE]"),
        rule("apiGroups: ['*'], resources: [findings, codes, gjobs, widgets, podsets], operations: [CREATE]"),
        rule("apiGroups: ['*'], resources: ['*', '*/scael'], operations: [CONNECT, CREATE]"),
        rule("apiGroups: [apps.openshift.io, xray.io, ray.op, metrics.k8s.io], resources: [pods], operations: [CREATE]"),
        rule("apiGroups: [karpenter.sh], resources: [nodepools/proxy, nodeclaims/scael], operations: [CONNECT]").replace("nodepools/proxy, ", ""),
        rule("apiGroups: [''], resources: [pods, pods/exec], operations: [CREATE, CONNECT]"),
        rule("apiGroups: [''], resources: ['*', '*/*'], operations: [CREATE, CONNECT]").replace("'*', ", ""),
        rule("apiGroups: [apps], resources: ['*/scale'], operations: [UPDATE]"),
        match("namespaces: {include: ['team-*']}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}"),
        match("namespaces: {include: [team-a, team-b]}, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [team-a]}]}"),
        match("namespaces: {include: [kube-system]}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}"),
        match("namespaces: {include: ['team-*']}, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}"),
        rule("apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers], operations: [CREATE]"),
        rule("apiGroups: [karpenter.sh], resources: [nodeclaims, nodeclaim, nodepools], operations: [CREATE]"),
        rule("apiGroups: [rbac.authorization.k8s.io], resources: [roles], operations: [CREATE], resourceNames: ['a*']"),
        rule("apiGroups: [image.openshift.io], resources: [images], operations: [CREATE], resourceNames: ['a*']"),
        exempt("namespaces: [kube-system]", "  match: {namespaces: {include: [kube-system]}}\n"),
        exempt("users: ['*'], names: [web]"),
        exempt("namespaces: ['*']"),
        exempt("users: ['system:serviceaccount:ci:bot'], serviceAccounts: ['ci:*']"),
        exempt("namespaces: ['team-*']", "  match: {namespaces: {include: [team-a]}}\n"),
        match("objectSelector: {matchLabels: {a: b}}").replace("  match", "  enforcement: off\n  match"),
        rule(f"{PODS}, scope: Cluster").replace("  match", "  enforcement: off\n  match"),
        exempt("users: [jane], expires: 2026-12-06"),
    ],
)  # fmt: skip
def test_what_may_have_an_effect_is_no_warning(tmp_path: Path, policy: str) -> None:
    assert [each for each in said(tmp_path, policy) if WIDE not in each] == []


OWN: Final = sorted(path for path in ROOT.glob("examples/**/policies") if path.is_dir())


@pytest.mark.parametrize("own", OWN, ids=lambda own: str(own.relative_to(ROOT)))
def test_the_policies_of_the_examples_have_no_warning(own: Path) -> None:
    assert warnings(load_bundle([own]), TODAY) == []


def test_the_default_policies_have_no_warning() -> None:
    assert warnings(load_bundle(), TODAY) == []


# What an API server sends of some resources: (group, resource, subresource), operations, in namespaces.
SENT: Final = (
    (("", "pods", ""), "CREATE UPDATE DELETE", True),
    (("", "pods", "exec"), "CONNECT", True),
    (("", "pods", "ephemeralcontainers"), "UPDATE", True),
    (("", "nodes", ""), "CREATE UPDATE DELETE", False),
    (("apps", "deployments", ""), "CREATE DELETE", True),
    (("apps", "deployments", "scale"), "UPDATE", True),
    (("compute.coreweave.com", "nodepools", ""), "CREATE DELETE", False),
    (("compute.coreweave.com", "nodepools", "scale"), "UPDATE", False),
    (("example.com", "things", ""), "CREATE", True),
)


def asked() -> Iterator[Request]:
    for ((group, resource, subresource), operations, namespaced), namespace, name, label, user in product(
        SENT, ("team-a", "team-b", "kube-system"), ("a", "b"), ("x", "y"), ("jane", "system:serviceaccount:ci:bot")
    ):
        if not namespaced and namespace != "team-a":
            continue
        spec = {"template": POD} if group == "apps" else POD["spec"]
        value = {"metadata": {"name": name, "labels": {"t": label}}, "spec": spec}
        for operation in operations.split():
            yield request(
                None if operation == "DELETE" else value,
                oldObject=value if operation in {"DELETE", "UPDATE"} else None,
                group=group,
                resource=f"{resource}/{subresource}".rstrip("/"),
                operation=operation,
                namespace=namespace if namespaced else "",
                name=name,
                userInfo={"username": user, "groups": ["system:authenticated"]},
            )


ASKED: Final = list(asked())


def loaded(spec: JSON) -> Bundle:
    document = {"apiVersion": "spotgate.dev/v1", "kind": "ReservedLabels", "metadata": {"name": "labels"}, "spec": spec}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.json"
        file.write_text(json.dumps(document))
        return load_bundle([file])


def found(bundle: Bundle, outcomes: Collection[Outcome] = tuple(Outcome)) -> set[int]:
    """The requests that the policy looks at, and does not exempt, where one of these outcomes comes of it."""
    (policy,) = bundle.policies
    index = Index([replace(policy, validator=Says())], bundle.index.workloads.values(), {}, "spotgate-system")
    context = Context(phase=Phase.VALIDATE, now=NOW)
    decisions = enumerate(decide(each, index, context) for each in ASKED)
    return {number for number, each in decisions if any(finding.outcome in outcomes for finding in each.findings)}


def without(spec: JSON, field: str) -> JSON | None:
    """The spec without one part of it; None: nothing is left that it could look at."""
    changed: JSON = json.loads(json.dumps(spec))  # whatever they share is copied apart
    *parents, last = path_of(field)[1:]
    holders: list[Any] = [changed]
    for key in parents:
        holders.append(holders[-1][key])
    del holders[-1][last]
    if parents and parents[-1] in {"resources", "apiGroups", "operations"} and not holders[-1]:
        del holders[-3][parents[-2]]
        holders.pop()
        holders.pop()
    if changed["match"].get("resourceRules") == []:
        return None
    return changed


def some(*words: str, least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(words), min_size=least, max_size=2).map(lambda each: list(dict.fromkeys(each)))


groups = st.sampled_from(
    (["*"], [""], ["apps"], ["", "apps"], ["compute.coreweave.com"], ["example.com"], ["app"], ["extensions", "apps"])
)
resources = some(
    "pods", "pod", "nodes", "deployments", "nodepools", "things", "pods/exec", "pods/log", "nodepools/scale",
    "pods/ephemeralcontainers", "deployments/scale", "nodepoolss", "deploymnets", "pods/scael", "nodepools/sclae",
)  # fmt: skip
wildcards = st.sampled_from((["*"], ["*/*"], ["*/scale"], ["pods/*"], ["*", "*/exec"]))
operations = st.one_of(st.just(["*"]), some("CREATE", "UPDATE", "DELETE", "CONNECT"))
rules = st.fixed_dictionaries(
    {"apiGroups": groups, "resources": st.one_of(resources, resources, wildcards), "operations": operations},
    optional={
        "scope": st.sampled_from(("*", "Cluster", "Namespaced")),
        "resourceNames": some("a", "b"),
        "apiVersions": st.sampled_from((["*"], ["v1"], ["v2"], ["v1beta1", "v1"])),
    },
)
patterns = ("*", "team-*", "team-a", "team-b", "team-?", "*-a", "kube-system", "team-[ab]")
requirements = st.one_of(
    st.builds(
        lambda operator, values: {"key": "t", "operator": operator, "values": values},
        st.sampled_from(("In", "NotIn")),
        some("x", "y"),
    ),
    st.builds(lambda operator: {"key": "t", "operator": operator}, st.sampled_from(("Exists", "DoesNotExist"))),
)
selectors = st.fixed_dictionaries({"matchExpressions": st.lists(requirements, max_size=2)})
named = st.builds(
    lambda operator, values: {"key": "kubernetes.io/metadata.name", "operator": operator, "values": values},
    st.sampled_from(("In", "NotIn")),
    some("team-a", "team-b", "kube-system"),
)
namespace_selectors = st.fixed_dictionaries({"matchExpressions": st.lists(st.one_of(requirements, named), max_size=2)})
exemptions = st.fixed_dictionaries(
    {"reason": st.just("agreed")},
    optional={
        "users": st.sampled_from((["*"], ["jane"], ["system:serviceaccount:ci:bot"], ["jane", "j*"])),
        "groups": st.sampled_from((["*"], ["devs"])),
        "serviceAccounts": st.sampled_from((["ci:*"], ["other:*"])),
        "namespaces": some(*patterns),
        "names": st.sampled_from((["*"], ["a"])),
        "objectSelector": selectors,
        "expires": st.sampled_from(("2020-01-01", "2026-11-30")),
    },
).filter(lambda each: set(each) - {"reason", "expires", "objectSelector"})
specs = st.fixed_dictionaries(
    {
        "domains": st.just(["example.org"]),
        "match": st.fixed_dictionaries(
            {},
            optional={
                "resourceRules": st.lists(rules, min_size=1, max_size=2),
                "excludeResourceRules": st.lists(rules, min_size=1, max_size=2),
                "namespaces": st.fixed_dictionaries(
                    {"include": some(*patterns, least=0), "exclude": some(*patterns, least=0)}
                ),
                "namespaceSelector": namespace_selectors,
                "objectSelector": selectors,
            },
        ),
        "exempt": st.lists(exemptions, max_size=2),
    }
)


WHOLE: Final = {
    f"spec.match.{part}" for part in ("namespaces.include", "namespaces.exclude", "namespaceSelector", "objectSelector")
}
"""Parts of which it is enough that nothing matches one of them."""


@settings(max_examples=200)
@given(specs)
def test_what_is_said_to_have_no_effect_has_none_on_any_request(spec: JSON) -> None:
    bundle = loaded(spec)
    told = [each for each in warnings(bundle, TODAY) if WIDE not in each.text and OF_THE_KIND not in each.text]
    looked = found(bundle) if told else set()
    for warning in told:
        text = warning.text.removeprefix("warning: ")
        if text.startswith("never matches anything in a namespace"):
            assert not any(ASKED[number].namespace for number in looked), warning
        elif text.startswith("lets everything") or (text.startswith("never") and warning.field in WHOLE):
            assert not looked, warning
        elif text.startswith("denies nothing"):
            assert not found(bundle, [Outcome.DENY]), warning
        elif not text.startswith("the exemption ends"):
            field = warning.field
            if field.startswith("spec.exempt"):
                field = field[: field.index("]") + 1]
            less = without(spec, field)
            assert looked == (found(loaded(less)) if less is not None else set()), warning


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ("'*'", "every resource"),
        ("apps, ''", "every Event and Node, among others"),
        ("coordination.k8s.io", "every Lease"),
        ("karpenter.sh", "all of karpenter.sh, where node pools are judged with failurePolicy Fail"),
        ("apps, example.com", ""),
    ],
)
@pytest.mark.parametrize("resource", ["*", "*/*", "*/status", "*/scale"])
def test_a_rule_that_is_too_wide_for_a_webhook_is_a_warning(
    tmp_path: Path, groups: str, what: str, resource: str
) -> None:
    text = f"apiGroups: [{groups}], resources: ['{resource}'], operations: [UPDATE]"
    told = [each for each in said(tmp_path, rule(text)) if WIDE in each]
    warning = f"{WIDE}: '{resource}' would have the API server call for {what}"
    field = "spec.match.resourceRules[0].resources[0]"
    seldom = resource == "*/scale" and groups not in {"'*'", "karpenter.sh"}
    assert [each.partition(": ")[2] for each in told] == (
        [f"{field}: warning: {warning}; name those that are meant"] if what and not seldom else []
    )
    assert not said(tmp_path, f"{HEAD}  enforcement: off\n  match: {{resourceRules: [{{{text}}}]}}\n")
