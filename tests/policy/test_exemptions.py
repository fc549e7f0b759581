"""Exempt entries and Exemption documents: which requests they exempt, and what they record; and break-glass."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.rules import DEPLOYMENT, NOW, POD, POOLS, Finds, JudgesPools, index, mutate, policy, request, validate
from webhook.base.globs import Globs
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.engine.index import Index
from webhook.model.decision import Outcome
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from webhook.engine.bundle import Bundle

JSON = dict[str, Any]

HEAD: Final = (
    "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\nspec:\n  domains: [example.com]\n"
)
OTHER: Final = HEAD.replace("name: labels", "name: other-labels").replace("example.com", "example.org")


def exemption(spec: str, name: str = "team-a") -> str:
    return (
        f"apiVersion: spotgate.dev/v1\nkind: Exemption\nmetadata: {{name: {name}}}\nspec: {{reason: agreed, {spec}}}\n"
    )


def loaded(folder: Path, *documents: str) -> Bundle:
    (folder / "policies.yaml").write_text("---\n".join(documents))
    return load_bundle([folder])


def mistakes(folder: Path, *documents: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyErrors) as caught:
        loaded(folder, *documents)
    return [(problem.line, problem.field, problem.text) for problem in caught.value.problems]


def judged(bundle: Bundle, value: JSON, **asked: Any) -> tuple[list[str], JSON]:
    decision = decide(request(value, **asked), bundle.index, Context(phase=Phase.VALIDATE, now=NOW))
    return [finding.policy for finding in decision.findings], dict(decision.audit)


LABELLED: Final = {**POD, "metadata": {"labels": {"example.com/a": "x", "example.org/a": "x", "team": "a"}}}


@pytest.mark.parametrize(
    ("policies", "left"),
    [("[labels]", ["other-labels"]), ("['*']", []), ("['other-*']", ["labels"]), ("[labels, other-labels]", [])],
)
def test_an_exemption_document_exempts_from_the_policies_it_names(
    tmp_path: Path, policies: str, left: list[str]
) -> None:
    bundle = loaded(tmp_path, HEAD, OTHER, exemption(f"policies: {policies}, groups: [devs]"))
    assert judged(bundle, LABELLED)[0] == left
    assert judged(bundle, LABELLED, userInfo={"username": "joe"})[0] == ["labels", "other-labels"]


def test_the_audit_log_has_the_exemptions_name_reason_and_position(tmp_path: Path) -> None:
    bundle = loaded(
        tmp_path, HEAD + "  exempt: [{users: [joe], reason: he may}]\n", exemption("policies: [labels], users: [jane]")
    )
    file = tmp_path / "policies.yaml"
    assert judged(bundle, LABELLED) == ([], {"labels": f"exempt: agreed, by Exemption team-a at {file}:11"})
    _, audit = judged(bundle, LABELLED, userInfo={"username": "joe"})
    assert audit == {"labels": f"exempt: he may, by exempt[0] at {file}:6"}


def test_the_audit_log_has_the_exemption_of_several_templates_once(tmp_path: Path) -> None:
    bundle = loaded(tmp_path, HEAD + "  exempt: [{users: [jane], reason: she may}]\n")
    workers = [{"groupName": name, "template": POD} for name in "ab"]
    _, audit = judged(
        bundle, {"spec": {"workerGroupSpecs": workers}}, group="ray.io", resource="rayclusters", namespace="team-a"
    )
    assert audit["labels"].count("she may") == 1


@pytest.mark.parametrize(
    ("document", "mistake"),
    [
        (exemption("policies: [label], users: [jane]"), (10, "spec.policies[0]", "no policy is named label, did you mean `labels`?")),
        (exemption("policies: ['x-*'], users: [jane]"), (10, "spec.policies[0]", "no policy is named x-*")),
        (exemption("policies: [cks], users: [jane]"), (10, "spec.policies[0]", "no policy is named cks")),
        (exemption("policies: [], users: [jane]"), (10, "spec.policies", "")),
        (exemption("users: [jane]"), (10, "spec.policies", "is missing")),
        (exemption("policies: [labels]"), (10, "spec", "set users, groups, serviceAccounts, namespaces, names, or a non-empty objectSelector")),
        (exemption("policies: [labels], objectSelector: {}"), (10, "spec", "set users")),
        (exemption("policies: [labels], users: [a]").replace("agreed", "' '"), (10, "spec.reason", "expected a reason, for readers of the audit log; got ' '")),
        (exemption("policies: [labels], users: [a]", "labels"), (9, "metadata.name", "'labels' is also the name of ReservedLabels at ")),
        (exemption("policies: [labels], groups: [' a']"), (10, "spec.groups[0]", "' a' has white space in it")),
        (exemption("policies: [labels], users: ['a [b c']"), (10, "spec.users[0]", "'a [b c' opens a `[` that it does not close")),
        (exemption("policies: [labels], policy: x, users: [a]"), (10, "spec.policy", "unknown field `policy`, did you mean `policies`?")),
    ],
)  # fmt: skip
def test_an_exemption_document_is_read_strictly(tmp_path: Path, document: str, mistake: tuple[int, str, str]) -> None:
    ((line, field, text),) = mistakes(tmp_path, HEAD, document)
    assert (line, field) == mistake[:2]
    assert text.startswith(mistake[2])


@pytest.mark.parametrize("group", ["Domain Admins", "K8s *", "[DK]omain Admins", "K8s Admins - *"])
def test_groups_may_have_spaces_in_their_names(tmp_path: Path, group: str) -> None:
    bundle = loaded(tmp_path, HEAD, exemption(f"policies: [labels], groups: ['{group}']"))
    asked = {"Domain Admins": "Domain Admins", "[DK]omain Admins": "Domain Admins"}.get(group, "K8s Admins - Prod")
    findings, _ = judged(bundle, LABELLED, userInfo={"username": "Jane Doe", "groups": [asked]})
    assert not findings
    assert judged(bundle, LABELLED, userInfo={"username": "Jane Doe", "groups": ["Domain"]})[0]


def test_exemptions_without_policies_are_rejected(tmp_path: Path) -> None:
    problems = mistakes(tmp_path, exemption("policies: ['*'], users: [jane]"))
    assert "contains no policy; name the policies too" in problems[0][2]


def test_an_exemption_changes_the_hash_of_the_bundle(tmp_path: Path) -> None:
    alone = loaded(tmp_path, HEAD).hash
    assert loaded(tmp_path, HEAD, exemption("policies: [labels], users: [jane]")).hash != alone


LABEL: Final = "  exempt: [{objectSelector: {matchLabels: {team: a}}, reason: agreed}]\n"


@pytest.mark.parametrize(
    ("asked", "denied"),
    [
        ({"obj": LABELLED}, False),
        ({"obj": {**LABELLED, "metadata": {"labels": {"example.com/a": "x"}}}}, True),
        ({"obj": {**LABELLED, "metadata": {"labels": {"example.com/a": "x"}}}, "operation": "UPDATE",
          "oldObject": {**POD, "metadata": {"labels": {"team": "a"}}}}, True),
    ],
)  # fmt: skip
def test_an_object_that_loses_the_label_loses_the_exemption(tmp_path: Path, asked: JSON, *, denied: bool) -> None:
    asked = dict(asked)
    rules = "  match: {resourceRules: [{apiGroups: [''], resources: [pods], operations: [CREATE, UPDATE]}]}\n"
    bundle = loaded(tmp_path, HEAD + rules + LABEL)
    assert bool(judged(bundle, asked.pop("obj"), **asked)[0]) is denied


some = st.lists(st.sampled_from(("*", "a", "b", "a*")), min_size=1, max_size=2)
entries = st.fixed_dictionaries(
    {"reason": st.just("agreed")},
    optional={
        "users": some,
        "groups": some,
        "serviceAccounts": st.sampled_from((["*:a"], ["ci:*"], ["ci:b"])),
        "namespaces": some,
        "names": some,
        "objectSelector": st.sampled_from(({"matchLabels": {"t": "a"}}, {"matchExpressions": [{"key": "t", "operator": "Exists"}]})),
        "expires": st.sampled_from(("2020-01-01", "2999-01-01")),
    },
).filter(lambda entry: set(entry) - {"reason", "expires"})  # fmt: skip
requests = st.builds(
    lambda user, groups, namespace, name, labels: request(
        {**POD, "metadata": {"labels": labels}},
        name=name,
        namespace=namespace,
        userInfo={"username": user, "groups": groups},
    ),
    st.sampled_from(("", "a", "b", "ab", "system:serviceaccount:ci:a", "system:serviceaccount:ci:b")),
    st.lists(st.sampled_from(("a", "b")), max_size=2),
    st.sampled_from(("a", "b", "ab")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(({}, {"t": "a"}, {"t": "b"})),
)


@settings(max_examples=10)  # each example loads a bundle
@given(st.lists(entries, min_size=2, max_size=3), st.booleans(), st.lists(requests, min_size=1, max_size=10))
def test_several_exemptions_exempt_exactly_the_union_of_their_requests(
    parts: list[JSON],
    documents: bool,  # noqa: FBT001
    asked: list[Any],
) -> None:
    head = {"apiVersion": "spotgate.dev/v1"}
    spec = {"domains": ["example.com"], **({} if documents else {"exempt": parts})}
    written = [{**head, "kind": "ReservedLabels", "metadata": {"name": "labels"}, "spec": spec}]
    for number, part in enumerate(parts if documents else ()):
        document = {"kind": "Exemption", "metadata": {"name": f"e{number}"}, "spec": {**part, "policies": ["l*"]}}
        written.append({**head, **document})
    with tempfile.TemporaryDirectory() as folder:
        bundle = loaded(Path(folder), *(f"{json.dumps(document)}\n" for document in written))
    (whole,) = bundle.policies
    assert len(whole.exemptions) == len(parts)

    def exempted_by(*exemptions: Any) -> list[bool]:
        judging = Index([replace(whole, validator=Finds(), exemptions=exemptions)], [], {}, "spotgate-system")
        return [not validate(judging, item).findings for item in asked]

    alone = [exempted_by(exemption) for exemption in whole.exemptions]
    assert exempted_by(*whole.exemptions) == [any(exempted) for exempted in zip(*alone, strict=True)]


KEY: Final = "spotgate.dev/break-glass"


def broken(reason: str) -> JSON:
    return {**POD, "metadata": {"annotations": {KEY: reason}}}


@pytest.mark.parametrize(
    ("reason", "groups", "offline", "why"),
    [
        ("", ("sre",), False, "it gives no reason"),
        ("  ", ("sre",), False, "it gives no reason"),
        ("outage", (), False, "policy policy has no breakGlass"),
        ("outage", ("sre", "oncall-*"), False, "jane is in none of these groups: sre, oncall-*"),
    ],
)
def test_ineffective_break_glass_has_a_reason_and_is_audited(
    reason: str, groups: tuple[str, ...], *, offline: bool, why: str
) -> None:
    decision = validate(index(policy(Finds(), break_glass=Globs(groups))), request(broken(reason)), offline=offline)
    (finding,) = (finding for finding in decision.findings if finding.policy == "policy")
    assert finding.outcome is Outcome.DENY
    assert finding.detail == f"{KEY} has no effect: {why}."
    assert decision.audit["break-glass-refused"] == f"jane: {reason}"


def test_break_glass_offline_needs_the_user() -> None:
    judging = index(policy(Finds(), break_glass=Globs(("sre",))))
    findings = validate(judging, request(broken("outage"), userInfo={}), offline=True).findings
    (finding,) = (candidate for candidate in findings if candidate.policy == "policy")
    assert finding.detail == f"{KEY} has no effect: the user is unknown: pass --user and --group."


def test_break_glass_on_an_update_is_read_from_the_new_object() -> None:
    judging = index(policy(JudgesPools(), rules=(POOLS,), break_glass=Globs(("devs",))))
    bad = {"spec": {"bad": True}}
    opened = {**bad, "metadata": {"annotations": {KEY: "outage"}}}
    for new, old, outcome in ((opened, bad, Outcome.WARN), (bad, opened, Outcome.DENY)):
        asked = request(new, group="example.com", resource="pools", operation="UPDATE", oldObject=old)
        assert [finding.outcome for finding in validate(judging, asked).findings] == [outcome]


def test_break_glass_on_a_workload_covers_its_templates() -> None:
    judging = index(policy(Finds(), break_glass=Globs(("devs",))))
    workload = {**DEPLOYMENT, "metadata": {"name": "web", "annotations": {KEY: "outage"}}}
    decision = validate(judging, request(workload, group="apps", resource="deployments"))
    assert [finding.outcome for finding in decision.findings] == [Outcome.WARN]
    assert decision.audit["break-glass"] == "jane: outage"


def test_break_glass_does_not_exempt_from_mutation() -> None:
    assert not mutate(index(policy(Finds(), break_glass=Globs(("devs",)))), request(broken("outage"))).audit


def test_an_exemption_can_name_an_invalid_policy(tmp_path: Path) -> None:
    problems = mistakes(tmp_path, HEAD.replace("domains:", "domain:"), exemption("policies: [labels], users: [jane]"))
    assert {field for _, field, _ in problems} == {"spec.domain", "spec.domains"}


def test_exemptions_for_other_namespaces_are_not_evaluated(tmp_path: Path) -> None:
    many = (exemption(f"policies: [labels], namespaces: [team-{n}]", f"e{n}") for n in range(20))
    bundle = loaded(tmp_path, HEAD, *many)
    route = bundle.index.route(Phase.VALIDATE, request(POD))
    assert route is not None
    ((within,), _) = route.within("team-7")
    assert [exemption.name for exemption in within.exemptions] == ["Exemption e7"]
    assert judged(bundle, LABELLED, namespace="team-7")[0] == []
