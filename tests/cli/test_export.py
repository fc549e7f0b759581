"""`spotgate export vap`: what is printed, and what is said to be left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from webhook.bundle import load_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run

    Write = Callable[[str, str | bytes], Path]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "export-vap.md"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
JSON = dict[str, Any]


def policies(text: str) -> dict[str, JSON]:
    """The spec of every policy, by its name without the end that all have."""
    documents = [each for each in yaml.safe_load_all(text) if each["kind"] == POLICY]
    return {each["metadata"]["name"].removesuffix(".spotgate.dev"): each["spec"] for each in documents}


def conditions(spec: JSON) -> dict[str, str]:
    """Its match conditions, by the end of their names."""
    return {each["name"].rpartition("/")[2]: each["expression"] for each in spec["matchConditions"]}


def document(kind: str, name: str, spec: str) -> str:
    return f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"


@pytest.fixture
def exported(run: Run, write: Write) -> Callable[..., tuple[dict[str, JSON], str]]:
    """What is exported of documents, and what standard error says."""

    def export(*documents: str) -> tuple[dict[str, JSON], str]:
        file = write("policies.yaml", "".join(documents))
        done = run("export", "vap", "--policies", str(file))
        assert done.code == 0, done.err
        return policies(done.out), done.err.replace(str(file), "policies.yaml")

    return export


def test_every_policy_has_its_binding_and_a_name_of_its_own(run: Run) -> None:
    done = run("export", "vap")
    documents = list(yaml.safe_load_all(done.out))
    assert done.code == 0
    assert [each["kind"] for each in documents] == [POLICY, BINDING] * (len(documents) // 2)
    names = [each["metadata"]["name"] for each in documents[::2]]
    assert [each["spec"]["policyName"] for each in documents[1::2]] == names
    assert len(set(names)) == len(names) > 30
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name) for name in names)


def test_what_is_left_out_of_the_shipped_policies_is_said_with_its_place_and_in_the_head(run: Run) -> None:
    done = run("export", "vap")
    said = re.findall(r"^.*/policies/[\w-]+\.yaml:\d+:\d+: (.*)$", done.err, re.MULTILINE)
    assert len(said) == len(done.err.splitlines())
    assert {
        "eviction-strategy: not exported: it asks who owns a Pod, and where it can land",
        "graceful-termination: not exported: it changes Pods",
        "on-demand-fallback: not exported: it looks up the cluster's node pools",
        "reserved-labels: keys of spotgate.dev that have no effect are not looked for: they are only ever warned of",
        "spec.match.namespaces.include[1]: karpenter-controller: kube-system is a system namespace, and left alone",
        "spec.resources[0].checks[0].when: karpenter-controller: CEL has no equal of this JMESPath (pipe)",
    } <= set(said)
    exported = {name.partition(".")[0] for name in policies(done.out)}
    assert exported == {"node-pool-rules", "reserved-labels", "reserved-node-labels"}
    assert {each.name for each in load_bundle().policies} == exported | {
        found[1] for each in said if (found := re.search(r"([\w-]+): (?:not exported|CEL has)", each))
    }
    head = re.findall(r"^# Not as the webhook has it: ([^:]+: .*?)(?: \((spec\..*)\))?$", done.out, re.MULTILINE)
    assert [": ".join(filter(None, (field, text))) for text, field in head] == said


def test_the_page_shows_what_is_exported(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (policy,) = [text for language, text in blocks if language == "yaml"]
    (example,) = [text for language, text in blocks if language == "console"]
    command, _, expected = example.removeprefix("$ ").partition("\n")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "team.yaml").write_text(policy)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from webhook.cli import main; sys.exit(main())", *command.split()[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    pattern = re.escape(expected).replace(re.escape("...\n"), r"(?s:.*?)").replace(re.escape(" ...") + "\n", " .*\n")
    assert re.fullmatch(pattern, done.stdout), done.stdout


ROLES = (
    '{{enforcement: {}, match: {{resourceRules: [{{apiGroups: [""], resources: [pods], operations: [CREATE]}}]}}, {}}}'
)


@pytest.mark.parametrize(("enforcement", "action"), [("deny", "Deny"), ("warn", "Warn"), ("audit", "Audit")])
def test_enforcement_becomes_the_action_of_the_binding(enforcement: str, action: str, run: Run, write: Write) -> None:
    file = write("policies.yaml", document("ReservedLabels", "a", ROLES.format(enforcement, "domains: [a.example]")))
    done = run("export", "vap", "--policies", str(file))
    bindings = [each for each in yaml.safe_load_all(done.out) if each["kind"] == BINDING]
    assert {tuple(each["spec"]["validationActions"]) for each in bindings} == {(action,)}
    # Only of a denial spotgate makes less for controllers.
    assert ("no-controllers" in conditions(policies(done.out)["a.pods"])) == (enforcement == "deny")


def test_a_policy_that_is_off_is_not_exported(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    on, off = (
        document("ReservedLabels", name, ROLES.format(name, "domains: [a.example]")) for name in ("warn", '"off"')
    )
    found, _ = exported(on, off.replace('name: "off"', "name: switched-off"))
    assert {name.partition(".")[0] for name in found} == {"warn"}


VALIDATION = """
  match:
    resourceRules: [{{apiGroups: [""], resources: [pods], operations: [CREATE]}}]
  validations: [{{expression: "{}", message: not so}}]
  variables: [{{name: spot, expression: "pools.filter(p, p.capacity == 'spot')"}}]
"""
RIGHT = "object.spec.containers.size() < 9"


@pytest.mark.parametrize(
    ("expression", "names", "said"),
    [
        (RIGHT, {"a.objects", "a.templates"}, "pod templates of rayclusters"),
        ("pools.size() > 0", set(), "validations[0]: a: not exported: it asks for the cluster's node pools"),
        ("variables.spot.size() > 0", set(), "validations[0]: a: not exported: it asks for the cluster's node pools"),
        ("object.metadata.name != 'x'", {"a.objects"}, "a: pod templates: it reads more of `object` or `request`"),
        ("object.metadata.?namespace.orValue('') != 'x'", {"a.objects"}, "a: pod templates: it reads more"),
        ("object.kind == 'Pod'", {"a.objects"}, "a: pod templates: it reads more"),
        ("[object].size() == 1", {"a.objects"}, "a: pod templates: it reads more"),
        ("request.operation == 'CREATE'", {"a.objects"}, "a: pod templates: it reads more"),
        ("request.namespace != 'x' || oldObject == null", {"a.objects", "a.templates"}, "pod templates of rayclusters"),
    ],
)
def test_a_validation_is_exported_as_far_as_it_needs_no_look_up(
    expression: str, names: set[str], said: str, exported: Callable[..., tuple[dict[str, JSON], str]]
) -> None:
    found, left_out = exported(document("Validation", "a", VALIDATION.format(expression)))
    assert {".".join(name.split(".")[:2]) for name in found} == names
    assert said in left_out
    assert all("spot" not in {each["name"] for each in spec["variables"]} for spec in found.values())


def test_in_match_conditions_variables_and_params_are_written_out(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    spec = """
  match:
    resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]
  params: {most: 3, names: [a, 1]}
  variables: [{name: count, expression: object.spec.containers.size()}, {name: more, expression: variables.count + 1}]
  matchConditions: [{name: many, expression: variables.more > params.most && 'params.most' != "x"}]
  validations: [{expression: variables.count < params.most}]
"""
    found, _ = exported(document("Validation", "a", spec))
    params = "({'most': dyn(3), 'names': dyn([dyn('a'), dyn(1)])})"
    assert conditions(found["a.objects"])["many"] == (
        f"((object.spec.containers.size()) + 1) > {params}.most && 'params.most' != \"x\""
    )
    template = found["a.templates.deployments.apps"]
    assert "object.spec.template.spec.containers.size()" in conditions(template)["many"]
    assert template["validations"][0]["expression"] == "variables.count < variables.params.most"
    assert template["variables"][1]["expression"] == "object.spec.template.spec.containers.size()"


def test_exemptions_that_have_ended_are_not_exported_and_those_that_will_end_are_named(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    exempt = """
        exempt: [{users: [old], reason: r, expires: 2020-01-01}, {users: [new], reason: r, expires: 2999-01-01}]"""
    own = document("ReservedLabels", "a", ROLES.format("deny", f"domains: [a.example], {exempt.strip()}"))
    spec = "{policies: [a], groups: [team], reason: r, expires: 2999-02-01}"
    found, said = exported(own, document("Exemption", "theirs", spec))
    assert {name: text for name, text in conditions(found["a.pods"]).items() if name.startswith("exempt")} == {
        "exempt-1": "!(request.userInfo.username in ['new'])",
        "exempt-2": "!(request.userInfo.?groups.orValue([]).exists(group, group in ['team']))",
    }
    assert "a: the exemption holds after 2999-01-01, too, until it is exported anew: Kubernetes has no clock" in said
    assert "spec.expires: a: the exemption holds after 2999-02-01, too" in said


def test_more_exemptions_than_kubernetes_takes_conditions_are_refused_aloud(
    exported: Callable[..., tuple[dict[str, JSON], str]],
) -> None:
    exempt = ", ".join(f"{{users: [user-{n}], reason: r}}" for n in range(64))
    spec = ROLES.format("deny", f"domains: [a.example], exempt: [{exempt}]")
    found, said = exported(document("ReservedLabels", "a", spec))
    assert found == {}
    assert "a: pods: not exported: 67 match conditions, and Kubernetes takes 64 at most" in said


def test_a_list_in_a_list_of_templates_is_left_out(exported: Callable[..., tuple[dict[str, JSON], str]]) -> None:
    workloads = "{workloads: [{group: a.example, kind: Tree, resource: trees, templates: ['spec.a[*].b[*].template']}]}"
    labels = document("ReservedLabels", "a", ROLES.format("deny", "domains: [a.example]"))
    found, said = exported(labels, document("WorkloadTemplates", "trees", workloads))
    assert "a.templates.trees.a.example" not in found
    assert "a: labels at spec.a[*].b[*].template.metadata.labels: a list in a list" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["export"], "the following arguments are required: what"),
        (["export", "map"], "invalid choice: 'map'"),
        (["export", "vap", "--policies", "nowhere.yaml"], "nowhere.yaml"),
        (["export", "vap", "--namespace", "Spot Gate"], "'Spot Gate' is no name of a Service or namespace"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], text: str, run: Run) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert text in done.err


def test_a_policy_for_every_resource_is_refused(run: Run, write: Write) -> None:
    spec = VALIDATION.format(RIGHT).replace("[pods]", '["*"]').replace("{{", "{").replace("}}", "}")
    done = run("export", "vap", "--policies", str(write("policies.yaml", document("Validation", "a", spec))))
    assert (done.code, done.out) == (2, "")
    assert "'*' would have the API server call for every resource; name those that are meant" in done.err
