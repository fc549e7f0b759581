"""`spotgate export vap`: its output, and its report of omissions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from tests.builders import BUNDLE
from webhook.documents import read_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run, Write


ROOT = Path(__file__).parents[3]
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
JSON = dict[str, Any]


def policies(text: str) -> dict[str, JSON]:
    """Return the spec of every policy, by its name without the common suffix."""
    documents = [item for item in yaml.load_all(text, yaml.CSafeLoader) if item["kind"] == POLICY]
    return {item["metadata"]["name"].removesuffix(".spotgate.dev"): item["spec"] for item in documents}


def conditions(spec: JSON) -> dict[str, str]:
    """Return the match conditions by the suffix of their names."""
    return {item["name"].rpartition("/")[2]: item["expression"] for item in spec["matchConditions"]}


def document(kind: str, name: str, spec: str) -> str:
    return f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"


@pytest.fixture
def exported(run: Run, write: Write) -> Callable[..., tuple[dict[str, JSON], str]]:
    """Return the export of documents, and the standard error."""

    def export(*documents: str) -> tuple[dict[str, JSON], str]:
        file = write("policies.yaml", "".join(documents))
        done = run("export", "vap", "--policies", str(file))
        assert done.code == 0, done.err
        return policies(done.out), done.err.replace(str(file), "policies.yaml")

    return export


def test_an_omission_is_one_line_even_if_its_source_is_multiline(exported: Callable[..., Any]) -> None:
    shipped = (ROOT / "policies" / "providers" / "cks.yaml").read_text()
    provider = shipped.replace("labels: spec.nodeLabels", 'labels: "merge(spec.nodeLabels,\\nspec.more)"')
    rules = "[{apiGroups: [compute.coreweave.com], resources: [nodepools], operations: [CREATE]}]"
    spec = f"{{domains: [example.com], match: {{resourceRules: {rules}}}}}"
    specs, report = exported(f"{provider}\n---\n", document("ReservedLabels", "labels", spec))
    assert list(specs) == ["labels.nodepools.compute.coreweave.com"]
    assert "give their nodes: merge(spec.nodeLabels, spec.more) is no plain field\n" in report


def test_every_policy_has_a_binding_and_a_unique_name(run: Run) -> None:
    done = run("export", "vap")
    documents = list(yaml.load_all(done.out, yaml.CSafeLoader))
    assert done.code == 0
    assert [item["kind"] for item in documents] == [POLICY, BINDING] * (len(documents) // 2)
    names = [item["metadata"]["name"] for item in documents[::2]]
    assert [item["spec"]["policyName"] for item in documents[1::2]] == names
    assert len(set(names)) == len(names) > 20
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name) for name in names)


def test_only_prints_the_named_policies_and_the_header_says_what_they_do(run: Run) -> None:
    done = run("export", "vap", "--only", "reserved-labels.jobsets", "--only=reserved-namespaces")
    names = ["reserved-labels.jobsets.jobset.x-k8s.io", "reserved-namespaces.namespaces"]
    assert list(policies(done.out)) == names
    lines = [line for line in done.out.splitlines() if line.startswith(("# reserved-", "#   "))]
    assert lines == [
        "# reserved-labels (deny): Rejects user-provided labels in reserved domains.",
        "#   reserved-labels.jobsets.jobset.x-k8s.io.spotgate.dev: jobsets",
        "# reserved-namespaces (deny): Rejects user-provided labels in reserved domains.",
        "#   reserved-namespaces.namespaces.spotgate.dev: namespaces, namespaces/finalize, namespaces/status",
    ]
    unknown = run("export", "vap", "--only", "reserved")
    assert (unknown.code, unknown.out) == (2, "")
    assert "--only: no exported policy is reserved; available: reserved-labels.pods.spotgate.dev, " in unknown.err


def test_omissions_of_the_shipped_policies_are_located_and_in_the_header(run: Run) -> None:
    done = run("export", "vap")
    lines = re.findall(r"^.*/policies/[\w-]+\.yaml:\d+:\d+: (.*)$", done.err, re.MULTILINE)
    assert len(lines) == len(done.err.splitlines())
    assert {
        "eviction-strategy: not exported: it checks the owner of a Pod, and the nodes that it can run on",
        "graceful-termination: not exported: it changes Pods",
        "on-demand-fallback: not exported: it looks up the cluster's node pools",
        "reserved-labels: spotgate.dev keys without effect aren't checked: they only cause warnings",
        "reserved-namespaces: names of namespaces in cw-* are admitted: Kubernetes doesn't know the cluster's provider",
        "node-pool-rules: not exported: while the webhook is down, the API server rejects node pools anyway",
    } <= set(lines)
    exported = {name.partition(".")[0] for name in policies(done.out)}
    assert exported == {"reserved-labels", "reserved-namespaces"}
    assert {policy.name for policy in BUNDLE.policies} == exported | {
        matched[1] for line in lines if (matched := re.search(r"([\w-]+): not exported", line))
    }
    head = re.findall(r"^# Differs from the webhook: ([^:]+: .*?)(?: \((spec\..*)\))?$", done.out, re.MULTILINE)
    assert [": ".join(filter(None, (field, text))) for text, field in head] == lines
    assert "eksctl.io" not in done.out  # its groups are in files, not in an API server


ROLES = (
    '{{enforcement: {}, match: {{resourceRules: [{{apiGroups: [""], resources: [pods], operations: [CREATE]}}]}}, {}}}'
)


@pytest.mark.parametrize(("enforcement", "action"), [("deny", "Deny"), ("warn", "Warn"), ("audit", "Audit")])
def test_enforcement_becomes_the_action_of_the_binding(enforcement: str, action: str, run: Run, write: Write) -> None:
    file = write("policies.yaml", document("ReservedLabels", "a", ROLES.format(enforcement, "domains: [a.example]")))
    done = run("export", "vap", "--policies", str(file))
    bindings = [binding for binding in yaml.load_all(done.out, yaml.CSafeLoader) if binding["kind"] == BINDING]
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {(action,)}
    # For controllers, spotgate weakens only denials.
    assert ("no-controllers" in conditions(policies(done.out)["a.pods"])) == (enforcement == "deny")


def test_a_disabled_policy_is_not_exported(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    on, off = (
        document("ReservedLabels", name, ROLES.format(name, "domains: [a.example]")) for name in ("warn", '"off"')
    )
    specs, _ = exported(on, off.replace('name: "off"', "name: switched-off"))
    assert {name.partition(".")[0] for name in specs} == {"warn"}


VALIDATION = """
  match:
    resourceRules: [{{apiGroups: [""], resources: [pods], operations: [CREATE]}}]
  validations: [{{expression: "{}", message: not so}}]
  variables: [{{name: spot, expression: "pools.filter(p, p.capacity == 'spot')"}}]
"""
RIGHT = "object.spec.containers.size() < 9"


@pytest.mark.parametrize(
    ("expression", "names", "omission"),
    [
        (RIGHT, {"a.objects", "a.templates"}, "pod templates of rayclusters"),
        ("pools.size() > 0", set(), "validations[0]: a: not exported: it reads the cluster's node pools"),
        ("variables.spot.size() > 0", set(), "validations[0]: a: not exported: it reads the cluster's node pools"),
        ("object.spec.x in [dyn(0), dyn('0%')]", {"a.objects", "a.templates"}, "pod templates of rayclusters"),
        ("object.metadata.name != 'x'", {"a.objects"}, "a: pod templates: it reads fields of `object` or `request`"),
        ("object.metadata.?namespace.orValue('') != 'x'", {"a.objects"}, "a: pod templates: it reads fields"),
        ("object.kind == 'Pod'", {"a.objects"}, "a: pod templates: it reads fields"),
        ("[object].size() == 1", {"a.objects"}, "a: pod templates: it reads fields"),
        ("request.operation == 'CREATE'", {"a.objects"}, "a: pod templates: it reads fields"),
        ("object.spec.x == 'the object' // of a request", {"a.objects", "a.templates"}, "pod templates of rayclusters"),
        ("request.namespace != 'x' || oldObject == null", {"a.objects", "a.templates"}, "pod templates of rayclusters"),
    ],
)
def test_a_validation_is_exported_unless_it_needs_a_lookup(
    expression: str, names: set[str], omission: str, exported: Callable[..., tuple[dict[str, JSON], str]]
) -> None:
    specs, left_out = exported(document("Validation", "a", VALIDATION.format(expression)))
    assert {".".join(name.split(".")[:2]) for name in specs} == names
    assert omission in left_out
    assert all("spot" not in {item["name"] for item in spec["variables"]} for spec in specs.values())


PODS = """{apiGroups: [""], resources: [pods], operations: [CREATE]}"""
COUNTED = """
  match: {{resourceRules: [{}]}}
  params: {{most: 3, names: [a, 1]}}
  variables: [{{name: count, expression: "object.spec.containers.size() // all of them"}}]
  matchConditions: {}
  validations: [{{expression: "variables.count < params.most // few"}}]
"""


def test_match_conditions_are_part_of_each_validation(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    many = "variables.count > params.most && 'params.most' != \"x\" // many"
    both = f"[{{name: many, expression: {json.dumps(many)}}}, {{name: other, expression: has(object.spec.x)}}]"
    specs, _ = exported(document("Validation", "a", COUNTED.format(PODS, both)))
    spec = specs["a.objects"]
    assert conditions(spec).keys() == {"no-system-namespaces", "no-mirror-pods", "no-controllers"}
    guard = many.replace(" params.most &&", " variables.params.most &&").removesuffix("// many")
    # Not `||`, which would hide a failing condition if the validation is true.
    assert spec["validations"] == [
        {
            "expression": f"({guard}) && (has(object.spec.x)) ? (variables.count < variables.params.most ) : true",
            "message": "failed expression: variables.count < params.most // few",
            "reason": "Forbidden",
        }
    ]
    template = specs["a.templates.deployments.apps"]
    assert " && (has(object.spec.template.spec.x)) ? (" in template["validations"][0]["expression"]
    assert template["variables"][1]["expression"].strip() == "object.spec.template.spec.containers.size()"


def scalers(name: str, versions: str, more: str = "") -> str:
    """Return a Validation of HorizontalPodAutoscalers of these versions."""
    rule = f"{{apiGroups: [autoscaling], {versions} resources: [horizontalpodautoscalers], operations: [CREATE]}}"
    match = f"{{resourceRules: [{rule}], {more.format(rule)}}}"
    return document("Validation", name, f"{{match: {match}, validations: [{{expression: has(object.spec)}}]}}")


def test_versions_that_other_policies_may_see_are_not_converted(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    specs, report = exported(scalers("a", "apiVersions: [v1],"), scalers("all", ""))
    assert specs["a.objects"]["matchConstraints"]["matchPolicy"] == "Exact"
    assert specs["all.objects"]["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert "a: requests in other `apiVersions` are not converted, and admitted" in report


def test_exclusions_apply_to_all_versions(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    excluding = scalers("a", "apiVersions: [v2],", "excludeResourceRules: [{}]").replace("[v2]", "[v1]", 2)
    specs, _ = exported(excluding.replace("[v1]", "[v2]", 1), scalers("b", ""))
    constraints = specs["a.objects"]["matchConstraints"]
    assert constraints["matchPolicy"] == "Exact"
    assert [rule["apiVersions"] for rule in constraints["resourceRules"]] == [["v2"]]
    assert [rule["apiVersions"] for rule in constraints["excludeResourceRules"]] == [["*"]]


def test_the_output_is_read_by_kubernetes_as_intended(run: Run, write: Write) -> None:
    rule = '{apiGroups: [""], resources: [pods], operations: [CREATE], resourceNames: [a, a]}'
    labels = {"y": "n", "short": "1e3", "octal": "0o7"}
    match = f"{{resourceRules: [{rule}], objectSelector: {{matchLabels: {json.dumps(labels)}}}}}"
    spec = f"{{match: {match}, validations: [{{expression: has(object.spec)}}]}}"
    done = run("export", "vap", "--policies", str(write("policies.yaml", document("Validation", "a", spec))))
    assert done.code == 0, done.err
    # As kubectl parses it: `y` is true and `1e3` is a number.
    values = [item.value for item in read_documents(done.out.encode(), "exported.yaml")]
    constraints = cast("JSON", values[0])["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchLabels": labels}
    assert constraints["resourceRules"][0]["resourceNames"] == ["a"]


def test_namespaces_with_generated_names_are_admitted(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    rule = PODS.replace("pods", "namespaces")
    specs, _ = exported(document("Validation", "a", COUNTED.format(rule, "[]")))
    assert conditions(specs["a.objects"])["named"] == (
        "request.resource.resource != 'namespaces' || has(request.namespace)"
    )


def test_expired_exemptions_are_dropped_and_expiring_ones_reported(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    exempt = """
        exempt: [{users: [old], reason: r, expires: 2020-01-01}, {users: [new], reason: r, expires: 2999-01-01}]"""
    own = document("ReservedLabels", "a", ROLES.format("deny", f"domains: [a.example], {exempt.strip()}"))
    spec = "{policies: [a], groups: [team], reason: r, expires: 2999-02-01}"
    specs, report = exported(own, document("Exemption", "theirs", spec))
    assert {name: text for name, text in conditions(specs["a.pods"]).items() if name.startswith("exempt")} == {
        "exempt-1": "!(request.userInfo.username in ['new'])",
        "exempt-2": "!(request.userInfo.?groups.orValue([]).exists(group, group in ['team']))",
    }
    assert "a: the exemption applies after 2999-01-01, until you export again: Kubernetes has no clock" in report
    assert "spec.expires: a: the exemption applies after 2999-02-01" in report


def test_service_account_and_label_exemptions_are_exported(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    entries = (
        "{serviceAccounts: ['*:deployer'], reason: r}",
        "{serviceAccounts: ['ci:deployer'], reason: r}",
        "{objectSelector: {matchLabels: {a: b}}, reason: r}",
        "{users: [jane], objectSelector: {}, reason: r}",
    )
    spec = """
      match: {resourceRules: [{apiGroups: [''], resources: [%s], operations: ['*']}]}
      exempt: [%s]
      validations: [{expression: 'false'}]
    """
    specs, _ = exported(
        document("Validation", "evictions", spec % ("'pods/eviction'", ", ".join(entries))),
        document("Validation", "pods", spec % ("pods", entries[2])),
    )
    labelled = "'a' in (object == null ? oldObject : object).?metadata.?labels.orValue({})"
    exempt = conditions(specs["evictions.objects"])
    assert exempt["exempt-1"].startswith("!(request.userInfo.username.split(':').size() == 4 && ")
    assert exempt["exempt-2"] == "!(request.userInfo.username in ['system:serviceaccount:ci:deployer'])"
    assert exempt["exempt-3"].startswith("!(request.?subResource.orValue('') in ['', 'approval', ")
    assert f" && {labelled}" in exempt["exempt-3"]
    assert exempt["exempt-4"] == "!(request.userInfo.username in ['jane'])"
    assert conditions(specs["pods.objects"])["exempt-1"].startswith(f"!({labelled}")


def test_a_list_of_templates_is_left_out(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    workloads = "{workloads: [{group: a.example, kind: Tree, resource: trees, templates: ['spec.a[*].template']}]}"
    labels = document("ReservedLabels", "a", ROLES.format("deny", "domains: [a.example]"))
    specs, report = exported(labels, document("WorkloadTemplates", "trees", workloads))
    assert "a.templates.trees.a.example" not in specs
    assert "a: labels in lists or maps, such as those of a RayCluster's worker groups, are left out" in report
