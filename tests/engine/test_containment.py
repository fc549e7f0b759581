"""An unexpected exception of one policy on one object becomes a finding, and all other policies decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import CKS
from tests.engine.rules import (
    POD,
    RAY,
    TEMPLATE,
    WRONG,
    Finds,
    Tolerates,
    index,
    mutate,
    outcomes,
    policy,
    request,
    validate,
)
from webhook.base.bounds import OverBoundError
from webhook.base.globs import Globs
from webhook.engine.index import Index
from webhook.kube.edit import native_sleep
from webhook.kube.pod import Requirement, Toleration
from webhook.model.decision import Outcome
from webhook.model.review import MalformedObjectError
from webhook.policy.match import ResourceRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.kube.edit import PodEditor
    from webhook.model.decision import Decision, Violation
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

OF_AN_OBJECT = "hunter2"
FAILED = "object/internal-error"
NODE_POOLS = {"group": "compute.coreweave.com", "resource": "nodepools"}
OTHER = replace(WRONG, id="other")
ANY = ResourceRule(api_groups=("*",), resources=("*",), operations=("*",))


@dataclass(frozen=True)
class Fails:
    """A rule that raises an exception after its first violation, and after a change of each kind."""

    error: Callable[[str], BaseException] = KeyError

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        del subject, context
        yield WRONG
        raise self.error(OF_AN_OBJECT)

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        del subject, context
        for key in ("a", "b"):
            editor.add_toleration(Toleration(key=key, operator="Exists"))
            editor.add_node_selector(key, "c")
            editor.require([Requirement(key, "Exists")], [Requirement(f"{key}2", "Exists")])
            editor.prefer(1, Requirement(key, "Exists"))
            editor.gate("gate", closed=key == "a")
            editor.set_grace(60)
        editor.set_pre_stop(0, native_sleep(5))
        raise self.error(OF_AN_OBJECT)


@dataclass(frozen=True)
class FailsToMutate:
    """A rule that fails only while it changes a Pod."""

    mutate = Fails.mutate
    error: Callable[[str], BaseException] = KeyError


def endless(subject: Subject, context: Context) -> Iterable[Violation]:
    """Validate without an end."""
    return endless(subject, context)


@dataclass(frozen=True)
class Recurses:
    """A rule that calls itself."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        return endless(subject, context)


def ids(decision: Decision) -> list[tuple[str, str, str]]:
    return [(finding.policy, str(finding.outcome), finding.id) for finding in decision.findings]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize(("rules", "outcome"), [({}, "warn"), ({"unknown_outcome": Outcome.DENY}, "deny")])
def test_all_other_policies_decide(operation: str, rules: dict[str, Any], outcome: str) -> None:
    both = index(policy(Fails(), "failing", rules=(ANY,), **rules), policy(Finds((OTHER,)), "other", rules=(ANY,)))
    new, old = {"CREATE": (POD, None), "UPDATE": (POD, {}), "DELETE": (None, POD)}[operation]
    decision = validate(both, request(new, oldObject=old, operation=operation))
    assert ids(decision) == [
        ("failing", "deny", "test/unwanted"),
        ("failing", outcome, FAILED),
        ("other", "deny", "test/other"),
    ]
    assert FAILED in decision.audit["failing"]
    assert decision.unknown == 0


def test_a_failure_on_a_node_pool_denies_within_the_policys_enforcement_unless_break_glass_is_used() -> None:
    def judged(enforcement: Outcome, annotations: dict[str, str], **asked: Any) -> list[str]:
        failing = policy(Recurses(), rules=(ANY,), enforcement=enforcement, break_glass=Globs(("devs",)))
        pools = Index([failing], [], {"cks": CKS}, "spotgate-system")
        pool = {"metadata": {"name": "gpu", "annotations": annotations}}
        return outcomes(validate(pools, request(pool, **NODE_POOLS), **asked))

    assert judged(Outcome.DENY, {}) == ["deny"]
    assert judged(Outcome.WARN, {}) == ["warn"]
    assert judged(Outcome.AUDIT, {}) == ["audit"]
    assert judged(Outcome.DENY, {"spotgate.dev/break-glass": "fire"}) == ["warn"]
    assert judged(Outcome.DENY, {}, offline=True) == ["indeterminate"]


@pytest.mark.parametrize("phase", [mutate, validate])
def test_a_failure_names_the_place_without_the_exceptions_text(phase: Callable[..., Decision]) -> None:
    decision = phase(index(policy(Fails(), "failing")), request(POD))
    (failure,) = decision.failures
    assert (failure.policy, failure.error) == ("failing", "KeyError")
    assert "test_containment.py" in failure.where[-1]
    assert failure.where[-1].endswith(f" {phase.__name__}")
    assert OF_AN_OBJECT not in f"{decision}{failure}"


def test_a_recursion_is_a_failure_of_few_frames() -> None:
    (failure,) = validate(index(policy(Recurses())), request(POD)).failures
    assert failure.error == "RecursionError"
    assert len(failure.where) < 50


@dataclass(frozen=True)
class Records:
    """A rule that records the Pods that it sees."""

    pods: list[bytes] = field(default_factory=list)

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        del editor, context
        self.pods.append(msgspec.json.encode(subject.pod))


TERMS: Any = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "own", "operator": "Exists"}]}]}
AFFINITY: Any = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}


@pytest.mark.parametrize("own", [{}, {"nodeSelector": {"own": "x"}, "affinity": AFFINITY}])
def test_no_part_of_a_failed_policys_patch_remains(own: dict[str, Any]) -> None:
    asked = request({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}], **own}})
    first, last, without = policy(Tolerates(), "first"), Records(), Records()
    failing = policy(FailsToMutate(), "failing")
    decision = mutate(index(first, failing, policy(last)), asked)
    assert ids(decision) == [("failing", "warn", FAILED)]
    assert decision.patch == mutate(index(first, policy(without)), asked).patch
    assert last.pods == without.pods


def test_a_failure_in_a_pod_template_is_reported_there() -> None:
    both = index(policy(FailsToMutate(), "failing"), policy(Tolerates(), "other"))
    workers = {"spec": {"workers": [{"template": TEMPLATE}, {"template": TEMPLATE}]}}
    asked = request(workers, group=RAY.group, resource=RAY.resource)
    fields = ["spec.workers[0].template", "spec.workers[1].template"]
    for decision in (validate(both, asked), mutate(both, asked, patch_templates=True)):
        assert [(finding.id, finding.field) for finding in decision.findings] == [(FAILED, field) for field in fields]
    assert [operation.policy for operation in decision.patch] == ["other", "other"]


def test_a_failure_while_the_engine_matches_a_policy_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.engine.matching.Matching.decider", lambda *_: 1 // 0)
    written = {"metadata": {"name": "web", "annotations": {"spotgate.dev/break-glass": "fire"}}, "spec": POD["spec"]}
    contested = policy(Finds(), "contested", break_glass=Globs(("sre",)))
    index_of_both = index(replace(contested, standing=replace(contested.standing, rivals=frozenset({"x"}))))
    assert ids(validate(index_of_both, request(written))) == [("contested", "warn", FAILED)]


@pytest.mark.parametrize("error", [partial(MalformedObjectError, "wrong"), partial(OverBoundError, "spec.x")])
def test_an_object_that_cant_be_judged_is_no_failure(error: Callable[[str], Exception]) -> None:
    decision = validate(index(policy(Fails(error)), policy(Finds(), "other")), request(POD))
    assert not decision.failures
    assert FAILED not in {finding.id for finding in decision.findings}


def test_an_interruption_is_not_contained() -> None:
    with pytest.raises(KeyboardInterrupt):
        validate(index(policy(Fails(KeyboardInterrupt))), request(POD))
