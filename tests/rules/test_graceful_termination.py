"""GracefulTermination: invariants for any Pod, policy, and version of Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests import strategies
from tests.builders import NOW, cks_pool
from tests.rules.conftest import owned_by, patched, shipped_provider, subject_of, with_fields
from tests.specs import spec_of
from webhook.capacity.providers.pool import Taint
from webhook.capacity.view import ClusterView
from webhook.kube.pod_decoding import decode_pod
from webhook.rules.context import Context, Phase
from webhook.rules.graceful_termination.rule import KIND, GracefulTermination
from webhook.rules.protocol import Facts, Mutator
from webhook.rules.spot_placement import rule as spot_placement

if TYPE_CHECKING:
    from tests.rules.conftest import FakeSubject
    from webhook.kube.edit import PodEditor
    from webhook.model.decision import Violation

JSON = dict[str, Any]

CKS = shipped_provider("cks")
ONLY_CKS = {"cks": CKS}
GRACE = "terminationGracePeriodSeconds"
SPOT = {"spotgate.dev/capacity": "spot"}
GPU = {"limits": {"nvidia.com/gpu": "8"}}
OLD = (1, 29)


POOLS = (
    cks_pool("spot-cpu", instance_type="turin-gp"),
    cks_pool("spot-gpu", instance_type="gd-8xh100ib-i128"),
    cks_pool("cpu-control-plane", spot=False, gpu=False),
)
VIEW = ClusterView(pools=POOLS, providers=frozenset({"cks"}))


def rule(*, budget: int | None = None, **spec: Any) -> GracefulTermination:
    """Return the rule for a spec; ``budget`` replaces the budget and margin of CKS."""
    providers = ONLY_CKS
    if budget is not None:
        grace = with_fields(CKS.grace_period, budget_seconds=budget, safety_margin_seconds=0)
        providers = {"cks": with_fields(CKS, grace_period=grace)}
    compiled = KIND.compile(spec_of(KIND.spec, spec), Facts(providers))
    assert isinstance(compiled, GracefulTermination)
    return compiled


def context(phase: Phase = Phase.MUTATE, **changes: Any) -> Context:
    return Context(phase=phase, now=NOW, **{"view": VIEW, **changes})


def owned_pod(*, labels: JSON, owner: tuple[str, str], app: JSON) -> JSON:
    """Return a Pod with the default grace period."""
    metadata: JSON = {"name": "web", "namespace": "team-a", "labels": labels, "ownerReferences": owned_by(*owner)}
    spec = {"restartPolicy": "Never", "containers": [{"name": "app", **app}], "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": spec}


def mutate(value: JSON, policy: GracefulTermination, where: Context | None = None) -> tuple[JSON, list[JSON]]:
    """Return the Pod after mutation, and the patch."""

    def change(subject: FakeSubject, editor: PodEditor) -> None:
        policy.mutate(subject, editor, where or context())

    return patched(value, subject_of(value), change)


def violations_of(value: JSON, policy: GracefulTermination, **changes: Any) -> list[Violation]:
    """Return the violations of the unchanged Pod."""
    return list(policy.validate(subject_of(value), context(Phase.VALIDATE, **changes)))


def judge_after(value: JSON, policy: GracefulTermination, **changes: Any) -> list[Violation]:
    """Return the violations of the Pod after mutation."""
    result, _ = mutate(value, policy, context(**changes))
    return violations_of(result, policy, **changes)


# preStop sleep -------------------------------------------------------------------------------------------------------


def test_an_annotation_with_many_unknown_words_gives_one_short_finding() -> None:
    words = ",".join(f"{number}{'x' * 1000}" for number in range(100))
    metadata = {"labels": SPOT, "annotations": {"spotgate.dev/keep": f"{words},pre-stop"}}
    (violation,) = violations_of({"metadata": metadata, "spec": {"containers": [{"name": "app"}], GRACE: 60}}, rule())
    assert len(violation.reason) < 100


@pytest.mark.parametrize("capacity", ["spot", "spot-preferred"])
@pytest.mark.parametrize("app", [{}, {"resources": GPU}])
def test_the_order_of_placement_and_graceful_termination_does_not_matter(capacity: str, app: JSON) -> None:
    pools = tuple(replace(pool, taints=(Taint("spot", "true", "NoSchedule"),)) for pool in POOLS[:2])
    where = context(view=replace(VIEW, pools=(*pools, POOLS[2])))
    placement = spot_placement.KIND.compile(spot_placement.KIND.spec(), Facts(ONLY_CKS))
    assert isinstance(placement, Mutator)
    value = owned_pod(labels={"spotgate.dev/capacity": capacity}, owner=("Job", "batch/v1"), app=app)

    def in_order(*rules: Mutator) -> JSON:
        def change(subject: FakeSubject, editor: PodEditor) -> None:
            for step in rules:
                step.mutate(subject, editor, where)

        return patched(value, subject_of(value), change)[0]

    first, last = in_order(placement, rule()), in_order(rule(), placement)

    assert first == last
    assert first["spec"]["tolerations"]
    assert first["spec"][GRACE] == (270 if app else 30)
    assert mutate(first, rule(), where) == (first, [])


# Invariants ----------------------------------------------------------------------------------------------------------

spot_pods = strategies.pods(
    labels={
        "spotgate.dev/capacity": st.sampled_from(("spot", "spot-preferred")),
        "spotgate.dev/workload-class": st.sampled_from(("stateless", "queue-worker", "checkpointing", "batch", "typo")),
    },
    annotations={"spotgate.dev/keep": st.sampled_from(("grace-period", "pre-stop", "grace-period,pre-stop", "typo"))},
)
policies = st.builds(
    rule,
    budget=st.one_of(st.none(), st.integers(0, 400)),
    untuned=st.sampled_from(("fit-budget", "raise-only")),
    overBudget=st.sampled_from(("warn", "clamp", "deny")),
    method=st.sampled_from(("auto", "sleep", "exec")),
)
versions = st.sampled_from((OLD, (1, 30), (1, 34)))


@given(spot_pods, policies, versions)
def test_mutation_keeps_the_users_grace_period_or_stays_within_the_budget(
    value: JSON, policy: GracefulTermination, version: tuple[int, int]
) -> None:
    budget = policy.budgets._by_provider["cks"].seconds
    before = decode_pod(msgspec.json.encode(value)).grace_seconds

    result, _ = mutate(value, policy, context(oldest_kubelet=version))

    after = decode_pod(msgspec.json.encode(result)).grace_seconds
    assert after <= max(before, budget)
    assert before in {after, 30} or after == budget


@given(spot_pods, policies, versions)
def test_a_mutated_pod_has_no_violation_that_mutation_fixes(
    value: JSON, policy: GracefulTermination, version: tuple[int, int]
) -> None:
    left = judge_after(value, policy, oldest_kubelet=version)

    assert not [issue for issue in left if "should be" in issue.reason or "is missing" in issue.reason]
    assert all(issue.reason and issue.field and issue.fix and len(issue.reason) <= 110 for issue in left)
