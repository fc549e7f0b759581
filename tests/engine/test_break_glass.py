"""Who may write the break-glass annotation, and how long it is in effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.rules import (
    DEPLOYMENT,
    NOW,
    POD,
    POOLS,
    Finds,
    JudgesPools,
    Tolerates,
    index,
    outcomes,
    policy,
    request,
    validate,
)
from tests.specs import spec_of
from webhook.base.globs import Globs
from webhook.engine.break_glass import why_void
from webhook.model.decision import Decision, Outcome
from webhook.policy.common import MatchSpec
from webhook.policy.match import Matcher, ResourceRule

SRE = Globs(("sre",))
MEMBER = {"username": "ann", "groups": ["sre"]}
OTHER = {"username": "joe", "groups": ["devs"]}
POD_CREATE_UPDATE = ResourceRule(api_groups=("",), resources=("pods",), operations=("CREATE", "UPDATE"))


def excused(reason: str | None = None, *, bad: bool = False, **metadata: Any) -> dict[str, Any]:
    annotations = {} if reason is None else {"spotgate.dev/break-glass": reason}
    return {"metadata": {"name": "a", "annotations": annotations, **metadata}, "spec": {"bad": bad}}


def judged(
    value: dict[str, Any] | None, old: dict[str, Any] | None = None, user: dict[str, Any] = OTHER, **changes: Any
) -> Decision:
    operation = "CREATE" if old is None else "DELETE" if value is None else "UPDATE"
    guarded = index(policy(JudgesPools(), **{"rules": (POOLS,), "break_glass": SRE, **changes}))
    asked = request(value, group="example.com", resource="pools", operation=operation, oldObject=old, userInfo=user)
    return validate(guarded, asked)


def verdicts(decision: Decision) -> list[Outcome]:
    return [finding.outcome for finding in decision.findings if finding.policy == "spotgate"]


@pytest.mark.parametrize(
    ("before", "after", "user", "denied"),
    [
        (excused(), excused("fire"), OTHER, True),
        (None, excused("fire"), OTHER, True),
        (excused("fire"), excused("fire, still"), OTHER, True),
        (excused("fire until 2026-11-20T00:00:00Z"), excused("fire until 2027-11-20T00:00:00Z"), OTHER, True),
        (excused("fire"), excused(), OTHER, False),
        (excused("fire"), excused("fire"), OTHER, False),
        (excused(), excused("fire"), MEMBER, False),
        (None, excused("fire"), MEMBER, False),
        (excused("fire"), excused("fire, still"), MEMBER, False),
        (excused(), excused("fire"), {"username": "system:serviceaccount:kube-system:replicaset-controller"}, False),
    ],
)
def test_only_group_members_may_add_or_change_the_annotation(
    before: dict[str, Any] | None, after: dict[str, Any], user: dict[str, Any], *, denied: bool
) -> None:
    decision = judged(after, before, user)
    assert decision.denied is denied
    assert verdicts(decision) == ([Outcome.DENY] if denied else [])


def test_the_denial_explains_that_the_annotation_would_affect_a_members_request() -> None:
    (finding,) = judged(excused("go on"), excused()).findings
    assert finding.field == 'metadata.annotations["spotgate.dev/break-glass"]'
    assert finding.reason == "only members of these groups may write the annotation spotgate.dev/break-glass: sre"
    detail = (
        "The user is in none of these groups. The annotation would override a later denial, in a request of a member."
    )
    assert finding.detail == detail


def test_any_user_may_write_the_annotation_if_no_policy_on_the_object_has_break_glass() -> None:
    annotated = {**POD, "metadata": {"name": "web", "annotations": {"spotgate.dev/break-glass": "x"}}}
    assert not verdicts(validate(index(policy(Finds(()))), request(annotated)))
    elsewhere = Matcher(spec_of(MatchSpec, {"namespaces": {"include": ["team-b"]}}))
    assert not verdicts(validate(index(policy(Finds(()), break_glass=SRE, matcher=elsewhere)), request(annotated)))


def test_a_policy_on_DELETE_also_guards_the_annotation_on_UPDATE() -> None:
    deletions = ResourceRule(api_groups=("example.com",), resources=("pools",), operations=("DELETE",))
    assert verdicts(judged(excused("fire"), excused(), rules=(deletions,))) == [Outcome.DENY]
    assert not judged(None, excused("fire"), MEMBER, rules=(deletions,)).denied


def test_only_group_members_may_annotate_a_pod_over_its_bound() -> None:
    guarded = index(policy(Tolerates(), rules=(POD_CREATE_UPDATE,), break_glass=SRE))
    large = {"nodeSelector": dict.fromkeys(map(str, range(1000)), "")}
    before, after = ({**excused(reason), "spec": large} for reason in (None, "fire"))
    for user, expected in ((OTHER, ["deny", "warn"]), (MEMBER, ["warn"])):
        asked = request(after, operation="UPDATE", oldObject=before, userInfo=user)
        assert outcomes(validate(guarded, asked)) == expected


def test_the_outcome_is_limited_to_the_policys_enforcement() -> None:
    assert verdicts(judged(excused("fire"), excused(), enforcement=Outcome.WARN)) == [Outcome.WARN]


CONTROLLED: dict[str, Any] = {
    "ownerReferences": [{"kind": "RayCluster", "name": "a", "apiVersion": "ray.io/v1", "controller": True}]
}
COPIED = {"name": "web", "annotations": {"spotgate.dev/break-glass": "fire"}}


@pytest.mark.parametrize("resource", ["pods", "deployments"])
def test_an_annotation_that_a_controller_copies_is_allowed_and_has_no_effect(resource: str) -> None:
    guarded = index(policy(Finds(), rules=(POD_CREATE_UPDATE,), break_glass=SRE))
    value = {**(POD if resource == "pods" else DEPLOYMENT), "metadata": {**COPIED, **CONTROLLED}}
    group = "" if resource == "pods" else "apps"
    asked = request(value, group=group, resource=resource, userInfo={"username": "system:serviceaccount:ray:operator"})
    decision = validate(guarded, asked)
    assert not verdicts(decision)
    by_member = validate(guarded, replace(asked, user_info=replace(asked.user_info, groups=("sre",))))
    (finding,) = by_member.findings
    assert finding.outcome is Outcome.DENY
    assert finding.detail.endswith(
        "has no effect: a controller created the object, and may have copied the annotation."
    )


def test_a_node_pool_with_an_owner_does_not_count_as_a_copy() -> None:
    assert verdicts(judged(excused("fire", **CONTROLLED), excused(**CONTROLLED))) == [Outcome.DENY]
    assert not judged(excused("fire", bad=True, **CONTROLLED), excused(**CONTROLLED), MEMBER).denied


def test_offline_an_unknown_user_makes_the_finding_indeterminate() -> None:
    guarded = index(policy(JudgesPools(), rules=(POOLS,), break_glass=SRE))
    asked = request(excused("fire"), group="example.com", resource="pools", userInfo={"username": ""})
    (finding,) = validate(guarded, asked, offline=True).findings
    assert finding.outcome is Outcome.INDETERMINATE
    assert finding.fix == "pass --user and --group"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("fire", ""),
        ("fire until Monday", "Monday isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z"),
        ("fire UNTIL 2026-11-20T00:00:00Z", "it ended at 2026-11-20T00:00:00Z"),
        ("fire until", "a time must follow `until`, such as 2026-11-22T18:00:00Z"),
        ("fire until the pool is back", ""),
        ("fire until 2026-11-21T00:00:01Z", ""),
        ("fire until 2026-11-21T02:00:00.5+02:00", ""),
        ("fire until 2026-11-20T23:59:59Z", "it ended at 2026-11-20T23:59:59Z"),
        ("fire until 2026-11-21T01:59:59+02:00 ", "it ended at 2026-11-21T01:59:59+02:00"),
        ("until 2026-11-22T00:00:00Z", "it gives no reason"),
        ("  ", "it gives no reason"),
        ("fire until 2026-11-30", "2026-11-30 isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z"),
        (
            "fire until 2026-02-30T00:00:00Z",
            "2026-02-30T00:00:00Z isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z",
        ),
        ("fire until 2026-11-30T00:00:00", "2026-11-30T00:00:00 isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z"),
        ("fire until 18:00", "18:00 isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z"),
    ],
)
def test_the_annotation_needs_a_reason_and_can_have_an_end(value: str, why: str) -> None:
    assert why_void(value, NOW) == why


def test_an_expired_annotation_no_longer_prevents_a_denial() -> None:
    ending = excused("fire until 2026-11-21T12:00:00Z", bad=True)
    guarded = index(policy(JudgesPools(), rules=(POOLS,), break_glass=SRE))
    asked = request(ending, group="example.com", resource="pools", userInfo=MEMBER)
    assert outcomes(validate(guarded, asked)) == ["warn"]
    (finding,) = validate(guarded, asked, now=NOW + timedelta(days=1)).findings
    assert finding.outcome is Outcome.DENY
    assert finding.detail == "spotgate.dev/break-glass has no effect: it ended at 2026-11-21T12:00:00Z."


def test_a_DELETE_reads_the_annotation_from_the_old_object() -> None:
    assert outcomes(judged(None, excused("fire", bad=True), MEMBER)) == ["warn"]
