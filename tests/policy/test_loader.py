"""Loading policy files reports all mistakes together, each with its file, line, field, and a suggestion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from tests.specs import spec_of
from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.policy.common import KindGlob, PolicySpec
from webhook.policy.document import PolicyDocument, policy_files
from webhook.policy.errors import PolicyErrors, problem_lines
from webhook.policy.loader import load_documents
from webhook.policy.workloads import WorkloadTemplatesSpec

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.policy.common import Model
    from webhook.policy.errors import Problem

KINDS: dict[str, type[Model]] = {
    "Example": PolicySpec,
    "CapacityProvider": CapacityProviderSpec,
    "WorkloadTemplates": WorkloadTemplatesSpec,
}

HEAD = "apiVersion: spotgate.dev/v1\nkind: Example\nmetadata: {name: example}\n"


def load(folder: Path, **files: str) -> tuple[list[PolicyDocument], list[Problem]]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    problems: list[Problem] = []
    return load_documents(policy_files([folder]), KINDS, problems), problems


def test_a_policy_is_read_with_all_common_fields(tmp_path: Path) -> None:
    (policy,), problems = load(
        tmp_path,
        a=HEAD
        + """
spec:
  enforcement: warn
  match:
    resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]
    namespaces: {include: ["team-*"], exclude: [team-x]}
    namespaceSelector: {matchLabels: {tier: batch}}
    objectSelector: {matchExpressions: [{key: app, operator: Exists}]}
  exempt:
    - users: [jane]
      serviceAccounts: ["ci:deploy"]
      reason: agreed with the platform team
      expires: 2027-01-31
  breakGlass: {groups: [sre]}
""",
    )
    assert not problems
    spec: PolicySpec = policy.spec
    assert spec.enforcement == "warn"
    assert str(spec.exempt[0].expires) == "2027-01-31"
    assert spec.match.namespaces.include == ("team-*",)


@pytest.mark.parametrize(
    ("spec", "line", "message"),
    [
        ("spec: {enforcment: warn}", 4, "spec.enforcment: unknown field `enforcment`, did you mean `enforcement`?"),
        ("spec: {enforcement: warning}", 4, "spec.enforcement: 'warning' is not one of deny, warn, audit or off, did you mean `warn`?"),
        ("spec:\n  match:\n    namespace: [a]", 6, "unknown field `namespace`, did you mean `namespaces`?"),
        ("spec:\n  match:\n    namespaces: {include: ['']}", 6, "spec.match.namespaces.include[0]: an empty glob"),
        ("spec:\n  match:\n    namespaces: {exclude: ['a[b']}", 6, "opens a `[` that it does not close"),
        ("spec:\n  match:\n    namespaces: {exclude: ['" + "a*" * 600 + "']}", 6, "a glob has 1,024 characters at most"),
        ("spec: {exempt: [{users: [a]}]}", 4, "spec.exempt[0].reason: is missing"),
        ("spec: {exempt: [{reason: because}]}", 4, "set users, groups"),
        ("spec: {exempt: [{users: [a], reason: b, expires: 31.01.2027}]}", 4, "spec.exempt[0].expires: "),
        ("spec: {exempt: [{users: [a], reason: b, expires: 2027-02-30}]}", 4, "2027-02-30 is not a date"),
        ("spec: {exempt: [{users: [a], reason: b, expires: '2027-01-31T00:00:00Z'}]}", 4, "expected a date such as 2027-01-31"),
        ("spec: {exempt: [{serviceAccounts: [ci-deploy], reason: b}]}", 4, "expected namespace:name, without a prefix; got 'ci-deploy'"),
        ("spec: {match: {objectSelector: {matchExpressions: [{key: a, operator: In}]}}}", 4, "operator In needs `values`"),
        ("spec: {match: {resourceRules: [{apiGroups: [''], resources: [pods], operations: [PATCH]}]}}", 4, "'PATCH' is not one of"),
        ("spec: {match: {resourceRules: []}}", 4, "spec.match.resourceRules: "),
        ("spec: {breakGlass: {groups: []}}", 4, "spec.breakGlass.groups: "),
        ("spec:\n  match:\n    namespaceSelector:", 6, "spec.match.namespaceSelector: is empty; set a value, or remove the field"),
        ("spec: []", 4, "spec: must be a map (key: value), got a list"),
        ("spec: {enforcement: true}", 4, "spec.enforcement: the boolean true (YAML reads y, yes and on as true) is not one of deny,"),
        ("spec: {exempt: [{names: no, reason: n}]}", 4, "spec.exempt[0].names: must be a list, got the boolean false (YAML reads n, no and off as false)"),
        ("spec: {exempt: [{names: [a], reason: n}]}", 4, "spec.exempt[0].reason: must be text, got the boolean false (YAML reads n, no and off as false); put it in quotes"),
        ("spec: {exempt: [{names: [a], reason: 17}]}", 4, "spec.exempt[0].reason: must be text, got 17; put it in quotes"),
        ("specs: {}", 4, "unknown field `specs`, did you mean `spec`?"),
        ("metdata: {}", 4, "unknown field `metdata`, did you mean `metadata`?"),
        ("enforcement: warn", 4, "enforcement: unknown field `enforcement`; write it under `spec`"),
        ("spec: {match: {objectSelector: {matchLabel: {app: x}}}}", 4, "unknown field `matchLabel`, did you mean `matchLabels`?"),
    ],
)  # fmt: skip
def test_a_mistake_has_a_line_a_field_and_a_suggestion(tmp_path: Path, spec: str, line: int, message: str) -> None:
    _, problems = load(tmp_path, a=HEAD + spec)
    assert any(message in str(problem) for problem in problems), [str(problem) for problem in problems]
    assert {problem.line for problem in problems} == {line}


def test_only_the_first_mistakes_of_a_document_are_reported(tmp_path: Path) -> None:
    _, problems = load(tmp_path, a=HEAD + f"spec: {{match: {{namespaces: {{include: {[1] * 5000}}}}}}}")
    assert len(problems) == 101
    assert "4900 more mistakes are not shown" in str(problems[0])


def test_all_mistakes_of_all_files_are_reported_together(tmp_path: Path) -> None:
    _, problems = load(
        tmp_path,
        a=HEAD + "spec: {enforcment: warn, exempt: [{users: [x]}]}",
        b="apiVersion: spotgate.dev/v1\nkind: Exmaple\nmetadata: {name: other}\n",
        c="a: [b",
        d=HEAD.replace("name: example", "name: Example_1"),
        e=HEAD.replace("example", "third"),
        f=HEAD.replace("kind: Example", "kind: {}").replace("example", "fourth"),
        g="a: [b",
    )
    texts = [str(problem) for problem in sorted(problems)]
    assert str(PolicyErrors(problems)).splitlines() == texts
    assert problem_lines(problems)[3] == f"{texts[3]} (also at {tmp_path}/g.yaml:2:1)"
    assert len(texts) == 7
    assert "a.yaml:4" in texts[0]
    assert "b.yaml:2:1: kind: unknown kind 'Exmaple', did you mean `Example`?" in texts[2]
    assert "c.yaml:" in texts[3]
    assert "metadata.name" in texts[4]
    assert "f.yaml:2:1: kind: unknown kind a map" in texts[5]


def test_a_document_with_mistakes_is_not_loaded(tmp_path: Path) -> None:
    text = HEAD.replace("Example", "WorkloadTemplates") + "spec: {workload: []}"
    loaded, problems = load(tmp_path, a=text)
    assert [problem.field for problem in problems] == ["spec.workloads", "spec.workload"]
    assert not loaded


@pytest.mark.parametrize("name", ["a..b", "a.-b", "a-.b", ".a", "a.", "a" * 64, "A", "a\\nb"])
def test_a_name_that_an_exported_policy_cannot_have_is_rejected(tmp_path: Path, name: str) -> None:
    _, (problem,) = load(tmp_path, a=HEAD.replace("name: example", f'name: "{name}"'))
    assert problem.text.startswith(
        "expected up to 63 lowercase letters, digits, '-', and single '.', such as team-labels; got"
    )


@pytest.mark.parametrize("name", ["a", "a.b", "a--b.c-1.0", "a" * 63])
def test_a_name_with_letters_and_digits_around_each_dot_is_accepted(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, a=HEAD.replace("name: example", f'name: "{name}"'))[1] == []


def test_a_name_must_be_unique(tmp_path: Path) -> None:
    _, problems = load(tmp_path, a=HEAD, b="# moved\n" + HEAD)
    (problem,) = problems
    assert (problem.line, problem.field) == (4, "metadata.name")
    assert "is also the name of Example at" in problem.text
    assert "a.yaml:3" in problem.text


def test_documents_without_a_name_are_not_duplicates(tmp_path: Path) -> None:
    nameless = HEAD.replace("name: example", "")
    _, problems = load(tmp_path, a=nameless, b=nameless)
    assert [problem.text for problem in problems] == ["is missing", "is missing"]


def test_other_documents_in_a_policy_folder_are_mistakes(tmp_path: Path) -> None:
    _, problems = load(tmp_path, a="apiVersion: v1\nkind: Pod\n")
    assert "expected spotgate.dev/v1, got 'v1'" in str(problems[0])


def test_policy_tests_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "case.yaml").write_text("not: a policy")
    (tmp_path / ".hidden.yaml").write_text("not: a policy")
    loaded, problems = load(tmp_path, a="apiVersion: spotgate.dev/v1\nkind: PolicyTest\n", b=HEAD)
    assert [policy.name for policy in loaded] == ["example"]
    assert not problems


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.YAML", "sub/a.json"])
def test_policy_files_are_recognized_by_extension(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(HEAD)
    (tmp_path / "notes.txt").write_text("not: a policy")
    assert policy_files([tmp_path]) == [file]


def test_a_mounted_configmap_is_read_once(tmp_path: Path) -> None:
    data = tmp_path / "..2026_11_21"
    data.mkdir()
    (data / "a.yaml").write_text(HEAD)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    loaded, problems = load(tmp_path)
    assert [policy.name for policy in loaded] == ["example"]
    assert not problems


def test_a_dangling_link_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to("/nowhere/gone.yaml")
    (tmp_path / ".#edited.yaml").symlink_to("jane@host.4711")  # a lock file of Emacs
    _, problems = load(tmp_path, a=HEAD)
    text = "can't be read: it is a link to /nowhere/gone.yaml, which doesn't exist; correct the link or remove it"
    assert list(map(str, problems)) == [f"{tmp_path}/gone.yaml: {text}"]


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    problems: list[Problem] = []
    assert not load_documents([tmp_path / "none.yaml"], KINDS, problems)
    assert "can't be read: No such file or directory" in str(problems[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("templates: ['spec..template']", "is not a template path"),
        ("templates: ['spec.items[0].template']", "is not a template path"),
        ("templates: []", "set `templates`, or `pods`"),
    ],
)
def test_a_template_path_is_checked_at_load(tmp_path: Path, text: str, message: str) -> None:
    document = (
        HEAD.replace("Example", "WorkloadTemplates") + "spec:\n  workloads:\n    - {group: a, kind: A, resource: as, "
    )
    _, problems = load(tmp_path, a=f"{document}{text}}}\n")
    assert message in str(problems[0])
    assert problems[0].line == 6


def test_an_empty_value_is_reported_as_nothing(tmp_path: Path) -> None:
    _, problems = load(tmp_path, a="kind: Example\n", b="apiVersion: spotgate.dev/v1\nmetadata:\n")
    assert [(problem.field, problem.text) for problem in problems] == [
        ("apiVersion", "expected spotgate.dev/v1, got nothing"),
        ("metadata", "must be a map (key: value), got nothing"),
        ("kind", "is missing; available: CapacityProvider, Example, WorkloadTemplates"),
    ]


@pytest.mark.parametrize("kind", ["deployments", "Deploymnet.apps", "jobsets.jobset.x-k8s.io", "kubeflow.org/MPIJob"])
def test_a_kind_that_cannot_exist_is_rejected(kind: str) -> None:
    message = f"{kind!r} would match nothing; write Kind.group, such as Deployment.apps"
    with pytest.raises(ValidationError, match=re.escape(message)):
        spec_of(KindGlob, kind)


@pytest.mark.parametrize(
    "kind",
    [
        "Deployment.apps",
        "*.jobset.x-k8s.io",
        "[jJ]obSet.*",
        "ReplicationController",
        "Rollout.argoproj.io",
        "*Job.batch",
        "job*",
    ],
)
def test_a_kind_that_may_exist_is_accepted(kind: str) -> None:
    assert spec_of(KindGlob, kind) == kind
