"""How ``check`` judges: requests, state, patches, findings' places, exit codes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

import jsonpatch
import pytest
import yaml

from tests.cli.conftest import NODE, ON_DEMAND_POOL, POD, SPOT_POD, SPOT_POOL
from webhook.documents import field_path, parse_field_path
from webhook.offline import options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Check, Run, Write


CLEAN_POD = POD.replace("example.com/team", "team")


def test_finding_says_where_what_why_and_how_to_mend_it(check: Check, write: Write) -> None:
    done = check(write("pod.yaml", f"# a comment\n{POD}"))
    assert (done.code, done.err) == (1, "")
    (result,) = done.json["results"]
    assert {key: result[key] for key in ("reason", "detail", "fix") if not result.pop(key)} == {}
    assert result == {
        "file": "pod.yaml",
        "line": 7,
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "web",
        "policy": "labels",
        "id": "reserved-labels/reserved",
        "outcome": "deny",
        "field": 'metadata.labels["example.com/team"]',
    }


def test_json_has_exactly_the_fields_that_are_promised_in_their_order(check: Check, write: Write) -> None:
    report = check(write("all.yaml", f"{POD}---\n{SPOT_POD}---\n{SPOT_POOL}---\n{ON_DEMAND_POOL}")).json
    assert list(report) == ["results", "patches", "summary"]
    fields = "file line apiVersion kind namespace name policy id outcome reason detail field fix"
    assert [" ".join(result) for result in report["results"]] == [fields]
    assert [" ".join(patch) for patch in report["patches"]] == ["file line kind namespace name patch"]
    assert list(report["summary"].items()) == [
        ("documents", 4), ("skipped", 0), ("deny", 1), ("warn", 0), ("audit", 0), ("indeterminate", 0), ("patched", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("enforcement", "fail_on", "code"),
    [
        ("deny", "deny", 1),
        ("deny", "warn", 1),
        ("deny", "indeterminate", 1),
        ("warn", "deny", 0),
        ("warn", "warn", 1),
        ("warn", "indeterminate", 1),
        ("audit", "deny", 0),
        ("audit", "warn", 0),
        ("audit", "indeterminate", 0),
    ],
)
def test_exit_code_is_1_from_the_outcome_on_that_fails(
    run: Run, write: Write, enforcement: str, fail_on: str, code: int
) -> None:
    policy = f"""\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: labels}}
spec: {{domains: [example.com], enforcement: {enforcement}}}
"""
    done = run(
        "check", write("pod.yaml", POD), "--policies", write("policy.yaml", policy), "--fail-on", fail_on, "-o", "json"
    )
    assert done.outcomes == [("labels", enforcement)]
    assert done.code == code


@pytest.mark.parametrize(("fail_on", "code"), [("deny", 0), ("warn", 0), ("indeterminate", 1)])
def test_unknown_is_indeterminate_and_fails_only_where_that_is_asked_for(
    check: Check, write: Write, fail_on: str, code: int
) -> None:
    done = check(write("pool.yaml", SPOT_POOL), "--partial", "--fail-on", fail_on)
    (result,) = done.json["results"]
    assert (result["policy"], result["outcome"]) == ("fallback", "indeterminate")
    assert "--partial" in result["detail"]
    assert "--state" in result["fix"]
    assert done.code == code


NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: ml}}\n"
SELECTING = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.com]
  match: {namespaceSelector: {matchLabels: {team: ml}}}
"""


def test_a_namespace_that_nobody_describes_leaves_a_selector_undecided(run: Run, write: Write) -> None:
    pod = write("pod.yaml", POD)
    asked = ("check", "-o", "json", "--policies", write("selecting.yaml", SELECTING))
    (result,) = run(*asked, pod).json["results"]
    assert (result["policy"], result["outcome"], result["line"]) == ("labels", "indeterminate", 6)
    assert result["reason"].startswith("match.namespaceSelector asks for labels of namespace default")
    assert run(*asked, write("clean.yaml", CLEAN_POD)).json["results"] == []
    state = write("namespace.yaml", NAMESPACE)
    assert run(*asked, pod, state).outcomes == run(*asked, pod, "--state", state).outcomes == [("labels", "deny")]


@pytest.mark.parametrize(
    ("state", "flags", "expected"),
    [
        (None, (), [("fallback", "deny")]),
        (ON_DEMAND_POOL, (), []),
        (ON_DEMAND_POOL, ("--partial",), [("fallback", "indeterminate")]),
        ("", (), [("fallback", "deny")]),
    ],
    ids=["no state", "a fallback", "partial", "empty state"],
)
def test_pools_are_complete_where_any_is_given_or_state_is(
    check: Check, write: Write, state: str | None, flags: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    given = () if state is None else ("--state", write("state.yaml", state))
    assert check(write("pool.yaml", SPOT_POOL), *given, *flags).outcomes == expected


def test_pools_are_unknown_where_no_pool_and_no_state_is_given(check: Check, write: Write) -> None:
    pod = """\
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {spotgate.dev/node-pool: gpu-spot}}
spec: {containers: [{name: main, image: busybox}]}
"""
    assert check(write("pod.yaml", pod)).json["patches"] == []
    assert check(write("pod.yaml", pod), "--state", write("pool.yaml", SPOT_POOL)).json["patches"] != []


def test_documents_are_state_for_each_other_whatever_their_order_and_file(check: Check, write: Write) -> None:
    write("d/1.yaml", SPOT_POOL)
    write("d/2.yaml", f"{CLEAN_POD}---\n{ON_DEMAND_POOL}")
    assert check("d").outcomes == []


def test_a_document_counts_instead_of_the_same_object_in_state(check: Check, write: Write) -> None:
    state = write("state.yaml", f"{ON_DEMAND_POOL}---\n{SPOT_POOL}")
    broken = write("gpu.yaml", ON_DEMAND_POOL.replace("targetNodes: 2", "targetNodes: 0"))
    pool = write("other.yaml", SPOT_POOL.replace("gpu-spot", "gpu-spot-2"))
    assert check(pool, "--state", state).outcomes == []
    assert check(pool, broken, "--state", state).outcomes == [("fallback", "deny")]


def test_update_compares_with_the_object_in_state(check: Check, write: Write) -> None:
    state = write("state.yaml", f"{ON_DEMAND_POOL}---\n{SPOT_POOL}")
    shrunk = write("gpu.yaml", ON_DEMAND_POOL.replace("targetNodes: 2", "targetNodes: 0"))
    assert check(shrunk, "--state", state, "--operation", "UPDATE").outcomes == [("fallback", "deny")]
    assert check(shrunk, "--state", state).outcomes == []
    same = write("pod.yaml", POD)
    there = write("there.yaml", POD.replace("name: web", "name: web\n  namespace: default"))
    assert check(same, "--state", there, "--operation", "UPDATE").outcomes == []
    assert check(same, "--operation", "UPDATE").outcomes == [("labels", "deny")]


def test_an_update_of_what_is_not_there_is_judged_as_new(check: Check, write: Write) -> None:
    pool = write("pool.yaml", SPOT_POOL)
    assert check(pool).outcomes == check(pool, "--operation", "UPDATE").outcomes == [("fallback", "deny")]
    assert check(pool, "--operation", "UPDATE", "--state", write("same.yaml", SPOT_POOL)).outcomes == []


def test_delete_takes_the_document_away(check: Check, write: Write) -> None:
    state = write("state.yaml", f"{ON_DEMAND_POOL}---\n{SPOT_POOL}")
    fallback = write("gpu.yaml", ON_DEMAND_POOL)
    done = check(fallback, "--state", state, "--operation", "DELETE")
    assert done.outcomes == [("fallback", "deny")]
    assert done.json["patches"] == []


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [((), "deny"), (("--group", "admins"), "warn"), (("--group", "others", "--group", "admins"), "warn")],
)
def test_break_glass_needs_a_group_of_the_user(
    check: Check, write: Write, arguments: tuple[str, ...], outcome: str
) -> None:
    urgent = SPOT_POOL.replace("name: gpu-spot", 'name: gpu-spot\n  annotations: {spotgate.dev/break-glass: "outage"}')
    nobody = [] if arguments else [("spotgate", "indeterminate")]
    assert check(write("pool.yaml", urgent), *arguments).outcomes == [("fallback", outcome), *nobody]


def test_exemption_by_user_holds_for_that_user_alone(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec: {domains: [example.com], exempt: [{users: ["jane"], reason: she knows}]}
"""
    arguments = ("check", write("pod.yaml", POD), "--policies", write("policy.yaml", policy))
    assert [run(*arguments, *user).code for user in ((), ("--user", "joe"), ("--user", "jane"))] == [1, 1, 0]


TODAY = date(2026, 2, 20)
ENDS = "the exemption ends on {last} (migration); extend it, or correct the objects that it exempts\n"
ENDED = "the exemption ended on {last} (migration); remove it, or extend it\n"


@pytest.mark.parametrize(("days", "says"), [(0, ENDS), (14, ENDS), (15, ""), (-1, ENDED)])
def test_exemption_that_ends_soon_or_has_ended_is_called_to_mind(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch, days: int, says: str
) -> None:
    monkeypatch.setattr(options, "utc_now", lambda: datetime.combine(TODAY, time.max, tzinfo=UTC))
    last = TODAY + timedelta(days=days)
    policy = f"""\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: labels}}
spec:
  domains: [example.org]
  exempt:
    - users: [jane]
      reason: migration
      expires: {last}
"""
    done = run("check", write("pod.yaml", POD), "--policies", write("policy.yaml", policy))
    warning = f"policy.yaml:9:7: spec.exempt[0].expires: warning: {says.format(last=last)}"
    assert (done.code, done.err) == (0, warning if says else "")


def test_namespace_of_a_document_is_its_own_or_default_and_none_for_cluster_scoped_kinds(
    check: Check, write: Write
) -> None:
    pods = f"{POD}---\n" + POD.replace("name: web", "name: web\n  namespace: team-a") + f"---\n{SPOT_POOL}"
    results = check(write("all.yaml", pods)).json["results"]
    assert [result["namespace"] for result in results] == ["default", "team-a", ""]


THEIRS = "apiVersion: v1\nkind: Namespace\nmetadata: {name: theirs, labels: {ns.coreweave.cloud/org: control-plane}}\n"
AKS_NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: aks-node, labels: {kubernetes.azure.com/agentpool: a}}\n"


@pytest.mark.parametrize("namespace", ["theirs", "cw-theirs"])
@pytest.mark.parametrize(
    ("state", "outcomes"),
    [
        ("", [("labels", "indeterminate")]),
        (SPOT_POOL, []),
        (AKS_NODE, [("labels", "deny")]),
    ],
)
def test_namespaces_of_a_provider_are_left_alone_where_that_provider_is_in_play(
    check: Check, write: Write, namespace: str, state: str, outcomes: list[tuple[str, str]]
) -> None:
    pod = write("pod.yaml", POD.replace("name: web", f"name: web\n  namespace: {namespace}"))
    cluster = write("state.yaml", f"{THEIRS}---\n{state}") if state else write("theirs.yaml", THEIRS)
    found = check(pod, cluster) if not state else check(pod, "--state", cluster)
    assert found.outcomes == outcomes


def test_a_namespace_that_may_be_the_platforms_is_told_with_what_to_pass(check: Check, write: Write) -> None:
    pod = write("pod.yaml", POD.replace("name: web", "name: web\n  namespace: cw-theirs"))
    (result,) = check(pod).json["results"]
    assert result["reason"] == "namespace cw-theirs may be one of the platform's own, which are never touched"
    assert "If it is not the platform's, this is `deny`: label " in result["detail"]
    assert "--state" in result["fix"]


def test_system_namespaces_of_kubernetes_are_left_alone_by_name(check: Check, write: Write) -> None:
    assert check(write("pod.yaml", POD.replace("name: web", "name: web\n  namespace: kube-system"))).outcomes == []


def test_items_of_lists_are_judged_one_by_one_where_they_are(check: Check, write: Write) -> None:
    text = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    metadata: {name: a, labels: {example.com/x: "1"}}
  - apiVersion: v1
    kind: PodList
    items:
      - metadata:
          name: b
          labels:
            example.com/y: "1"
"""
    report = check(write("list.yaml", text)).json
    assert [(result["name"], result["kind"], result["line"]) for result in report["results"]] == [
        ("a", "Pod", 6),
        ("b", "Pod", 13),
    ]
    assert report["summary"]["documents"] == 2


TAINTED_POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: gpu-spot
spec:
  computeClass: spot
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
  nodeTaints: [{key: spot, value: "true", effect: NoSchedule}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata:
      labels: {app: web}
    spec:
      nodeSelector: {compute.coreweave.com/node-pool: gpu-spot}
      tolerations:
      containers: [{name: main, image: busybox}]
"""


@pytest.mark.parametrize(
    "text",
    [
        SPOT_POD,
        SPOT_POD.replace("      image: busybox", "      image: busybox\n      lifecycle:"),
        SPOT_POD.replace("      image: busybox", "      image: busybox\n      lifecycle: {preStop: null}"),
        SPOT_POD.replace("  containers", "  tolerations: null\n  terminationGracePeriodSeconds: null\n  containers"),
        DEPLOYMENT,
        "apiVersion: v1\nkind: List\nitems:\n- " + "\n  ".join(DEPLOYMENT.splitlines()) + "\n",
        json.dumps(yaml.safe_load(SPOT_POD)),
    ],
    ids=["as it is", "null lifecycle", "null preStop", "nulls", "template", "in a list", "JSON"],
)
def test_patch_applies_to_the_document_as_it_is_written_and_leaves_nothing_to_patch(
    run: Run, write: Write, text: str
) -> None:
    policies = """\
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: placement}
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
"""
    arguments = ("--policies", write("policies.yaml", policies), "--state", write("pool.yaml", TAINTED_POOL))
    document = write("document.yaml", text)
    (patch,) = run("check", "-o", "json", document, *arguments).json["patches"]
    patched = jsonpatch.apply_patch(yaml.safe_load(text), patch["patch"])
    paths = {operation["path"] for operation in patch["patch"]}
    assert any("/tolerations" in path for path in paths)
    assert any("/lifecycle" in path for path in paths)
    report = run("check", "-o", "json", write("patched.yaml", yaml.safe_dump(patched)), *arguments).json
    assert (report["patches"], report["results"]) == ([], [])


def test_patch_follows_the_kubernetes_version_and_the_oldest_kubelet_in_state(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
"""
    pod = write("pod.yaml", SPOT_POD.replace("resources: {limits: {nvidia.com/gpu: 8}}", "ports: []"))
    arguments = ("check", pod, "-o", "json", "--policies", write("policy.yaml", policy), "--state")
    pool = write("pool.yaml", TAINTED_POOL)

    def handlers(*more: str | Path) -> list[str]:
        (patch,) = run(*arguments, pool, *more).json["patches"]
        return [name for each in patch["patch"] if "lifecycle" in each["path"] for name in each["value"]["preStop"]]

    assert handlers() == ["sleep"]
    assert handlers("--kubernetes-version", "1.28") == ["exec"]
    assert handlers("--state", write("node.yaml", NODE)) == ["exec"]


def test_kinds_that_nothing_names_are_counted_and_not_judged(check: Check, write: Write) -> None:
    done = check(write("x.yaml", "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: x}\n"))
    assert (done.code, done.json["results"], done.json["summary"]["documents"]) == (0, [], 1)


WIDGET = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: x, labels: {example.com/x: a}}\n"
WIDGETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec: {group: example.org, scope: Cluster, names: {kind: Widget, plural: widgets}}
"""


def test_kind_that_a_policy_may_mean_needs_its_definition(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec:
  domains: [example.com]
  match: {resourceRules: [{apiGroups: [example.org], resources: [widgets], operations: ["*"]}]}
"""
    arguments = ("check", "-o", "json", "--policies", write("policy.yaml", policy))
    widget, crd = write("widget.yaml", WIDGET), write("crd.yaml", WIDGETS)
    unknown = run(*arguments, widget)
    assert unknown.outcomes == [("spotgate", "indeterminate")]
    assert "CustomResourceDefinition" in unknown.json["results"][0]["fix"]
    for known in (run(*arguments, widget, "--state", crd), run(*arguments, widget, crd)):
        assert known.outcomes == [("labels", "deny")]
        assert known.json["results"][0]["namespace"] == ""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("apiVersion: v1\nkind: NodePool\nspec: {computeClass: spot}\n", "compute.coreweave.com/v1alpha1"),
        ("apiVersion: v1\nkind: NodePool\nspec: {template: {spec: {requirements: [{}]}}}\n", "karpenter.sh/v1"),
        ("apiVersion: v1\nkind: NodePool\nspec: {}\n", "compute.coreweave.com/v1alpha1 or karpenter.sh/v1"),
        ("apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n", "apps/..."),
        ("apiVersion: compute.coreweave.co/v1alpha1\nkind: NodePool\n", "compute.coreweave.com/v1alpha1"),
        ("apiVersion: karpenter.io/v1\nkind: NodePool\n", "karpenter.sh/v1"),
        ("apiVersion: eks.service.k8s.aws/v1alpha1\nkind: Nodegroup\n", "eks.services.k8s.aws/v1alpha1"),
    ],
)
def test_kind_that_its_api_version_does_not_have_is_an_error(check: Check, write: Write, text: str, meant: str) -> None:
    done = check(write("x.yaml", text))
    assert done.code == 2
    value = yaml.safe_load(text)
    said = f"{value['apiVersion']} has no kind {value['kind']}; did you mean apiVersion: {meant}?"
    assert done.err == f"x.yaml:1:1: apiVersion: {said}\n"


def test_node_pool_of_a_group_that_nobody_knows_is_not_passed_over(check: Check, write: Write) -> None:
    text = "apiVersion: hypershift.openshift.io/v1beta1\nkind: NodePool\nmetadata: {name: a, namespace: b}\n"
    (found,) = check(write("x.yaml", text)).json["results"]
    assert (found["outcome"], found["field"]) == ("indeterminate", "apiVersion")
    assert found["reason"] == "not judged: no CapacityProvider reads NodePool of hypershift.openshift.io/v1beta1"
    assert "compute.coreweave.com/v1alpha1 or karpenter.sh/v1 if it is one of these" in found["fix"]


def test_policy_files_among_the_manifests_are_skipped_and_counted(check: Check, write: Write, policies: Path) -> None:
    write("all.yaml", (policies / "policies.yaml").read_text() + f"---\n{POD}")
    summary = check("all.yaml").json["summary"]
    assert (summary["documents"], summary["skipped"]) == (1, 3)


def test_policies_are_the_shipped_ones_by_default(run: Run, write: Write) -> None:
    done = run("check", "-o", "json", write("pool.yaml", SPOT_POOL))
    assert ("on-demand-fallback", "deny") in done.outcomes


def test_policies_can_be_given_again(run: Run, write: Write, policies: Path) -> None:
    other = (
        "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: more}\nspec: {domains: [more.example]}\n"
    )
    pod = POD.replace("  labels:", "  labels:\n    more.example/team: a")
    arguments = ("--policies", policies, "--policies", write("more.yaml", other))
    done = run("check", "-o", "json", write("pod.yaml", pod), *arguments)
    assert done.outcomes == [("labels", "deny"), ("more", "deny")]


def test_the_same_input_gives_the_same_output(check: Check, write: Write) -> None:
    write("d/all.yaml", f"{POD}---\n{SPOT_POD}---\n{SPOT_POOL}")
    assert check("d").out == check("d").out


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("", ()),
        ("spec", ("spec",)),
        ('metadata.labels["a.b/c"]', ("metadata", "labels", "a.b/c")),
        ("spec.tolerations[10].key", ("spec", "tolerations", 10, "key")),
        ('spec.replicas["Worker"].template', ("spec", "replicas", "Worker", "template")),
        ('spec.nodeLabels["a\\"b"]', ("spec", "nodeLabels", 'a"b')),
        ('spec.nodeLabels["a\\qb"].x', ("spec", "nodeLabels", "a\\qb", "x")),
        ("spec.containers[*].name", ("spec", "containers")),
        ("spec.requirements[?key=='x'].values", ("spec", "requirements")),
    ],
)
def test_field_of_a_finding_is_a_path_as_far_as_it_goes(field: str, path: tuple[str | int, ...]) -> None:
    assert parse_field_path(field) == path


@pytest.mark.parametrize("path", [("a", 0, "b/c", 12), ("x.y",), ("q\"'\\", "z"), ("", "ü"), ("$a_b",)])
def test_path_survives_being_written_as_a_field(path: tuple[str | int, ...]) -> None:
    assert parse_field_path(field_path(path)) == path


def test_an_object_whose_name_is_to_be_made_up_is_judged_by_such_a_name_and_shown_as_it_is_written(
    run: Run, write: Write
) -> None:
    policies = write(
        "policy.yaml",
        """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: names}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [configmaps], operations: [CREATE]}]}
  exempt: [{names: ["ci-?????"], reason: the build makes them}]
  validations:
    - {expression: "object.metadata.name.startsWith('job-') && request.name == object.metadata.name", message: no job}
    - {expression: request.dryRun == false}
""",
    )
    text = "".join(
        f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{generateName: {begin}}}\n"
        for begin in ("job-", "ci-", "a-")
    )
    done = run("check", "-o", "json", write("all.yaml", text), "--policies", policies)
    assert [(result["name"], result["reason"]) for result in done.json["results"]] == [("a-", "no job")]


def test_a_namespace_has_its_name_as_a_label_also_where_that_is_to_be_made_up(run: Run, write: Write) -> None:
    policies = write(
        "policy.yaml",
        """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: owners}
spec:
  match:
    resourceRules: [{apiGroups: [""], resources: [namespaces], operations: [CREATE]}]
    namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [team-a]}]}
  validations:
    - expression: object.metadata.labels['kubernetes.io/metadata.name'] == object.metadata.name
    - {expression: "'owner' in object.metadata.labels", message: no owner}
""",
    )
    text = "".join(
        f"---\napiVersion: v1\nkind: Namespace\nmetadata: {{{name}}}\n"
        for name in ("name: team-a", "name: team-b", "generateName: team-")
    )
    done = run("check", "-o", "json", write("all.yaml", text), "--policies", policies)
    said = [(result["name"], result["reason"]) for result in done.json["results"]]
    assert said == [("team-b", "no owner"), ("team-", "no owner")]


def test_an_update_of_an_object_that_nobody_knows_decides_nothing_about_changes(run: Run, write: Write) -> None:
    write(
        "policy.yaml",
        "apiVersion: spotgate.dev/v1\nkind: Validation\nmetadata: {name: keeps-labels}\nspec:\n"
        "  match: {resourceRules: [{apiGroups: [''], resources: [configmaps], operations: [CREATE, UPDATE]}]}\n"
        "  validations: [{expression: 'oldObject == null || object.metadata.labels == oldObject.metadata.labels'}]\n",
    )
    write("now.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: web}}\n")
    write("old.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: shop}}\n")
    unknown = run("check", "--policies", "policy.yaml", "--operation", "UPDATE", "now.yaml", "-o", "json")
    (result,) = unknown.json["results"]
    assert (result["outcome"], result["detail"]) == ("indeterminate", "Nothing says what the object was before.")
    assert result["fix"] == "pass the object as it is in the cluster with --state"
    changed = run("check", "--policies", "policy.yaml", "--operation", "UPDATE", "--state", "old.yaml", "now.yaml")
    assert changed.code == 1
    created = run("check", "--policies", "policy.yaml", "now.yaml", "-o", "json")
    assert created.json["results"] == []
