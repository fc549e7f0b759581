"""Find Jobs that fail on a reclaim, and workloads that replace reclaimed Pods late.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy (needs restartPolicy Never;
a Pod that a drain or a taint removes has the condition DisruptionTarget) and #pod-replacement-policy;
https://github.com/kubernetes/enhancements/tree/master/keps/sig-apps/3973-consider-terminating-pods-deployment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.base.field_paths import field_path
from webhook.kube.filling import items_of, mapping
from webhook.model.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.rules.subject import Subject

_JOB: Final = "Job.batch"
_DISRUPTED: Final = "DisruptionTarget"
_LATE: Final = ("Failed", "TerminationComplete")
LONG_SECONDS: Final = 60
"""The grace period of a stateless service. A replacement that waits for a longer grace period comes too late."""


def job_violations(subject: Subject) -> Iterator[Violation]:
    """Yield the violations of the fields next to a pod template, in the ``spec`` of a Job or Deployment."""
    pod = subject.pod
    if not subject.path or not pod.spec.containers:
        return
    spec = subject.holder(subject.path[:-1])
    if pod.controller is not None and pod.controller.group_kind == _JOB:
        if not _ignores_disruptions(spec):
            if spec.get("backoffLimit") == 0:
                yield Violation(
                    id="job-fails",
                    reason="backoffLimit is 0: one reclaimed node fails the whole Job",
                    field=field_path((*subject.path[:-1], "backoffLimit")),
                    outside=True,
                    detail="A Pod that a reclaim removes has failed, unless a podFailurePolicy ignores it.",
                    fix="add a podFailurePolicy that ignores disruptions; the Job still fails if its program does",
                    other=_policy(subject),
                )
            elif spec.get("podFailurePolicy") is None and pod.spec.restartPolicy == "Never":
                yield Violation(
                    id="job-failure-policy",
                    reason="each reclaim counts against backoffLimit: no podFailurePolicy ignores disruptions",
                    field="spec.restartPolicy",
                    detail="After a few reclaimed nodes the Job fails, although its program never did.",
                    fix="add a podFailurePolicy that ignores disruptions",
                    other=_policy(subject),
                    outcome=Outcome.AUDIT,
                )
        if spec.get("podFailurePolicy") is not None:
            return  # with it, Kubernetes allows no other podReplacementPolicy
    if (policy := spec.get("podReplacementPolicy")) in _LATE and pod.grace_seconds > LONG_SECONDS:
        yield Violation(
            id="late-replacement",
            reason=f"a reclaimed Pod is replaced up to {pod.grace_seconds} s late: podReplacementPolicy is {policy}",
            field="spec.terminationGracePeriodSeconds",
            detail="The replacement is created when the old Pod has ended, not when it starts to terminate.",
            fix="shorten the grace period, or start the replacement at once, with podReplacementPolicy: "
            + ("TerminatingOrFailed" if policy == "Failed" else "TerminationStarted"),
            outcome=Outcome.AUDIT,
        )


def _ignores_disruptions(job: Mapping[str, Any]) -> bool:
    return any(
        rule.get("action") == "Ignore"
        and any(condition.get("type") == _DISRUPTED for condition in items_of(rule, "onPodConditions"))
        for rule in items_of(mapping(job, "podFailurePolicy"), "rules")
    )


def _policy(subject: Subject) -> dict[str, Any]:
    """Return a podFailurePolicy that ignores disruptions, at its place in the manifest of the Job or its owner."""
    rule = {"action": "Ignore", "onPodConditions": [{"type": _DISRUPTED}]}
    never = {"spec": {"restartPolicy": "Never"}}
    value: dict[str, Any] = {"spec": {"podFailurePolicy": {"rules": [rule]}, "template": never}}
    for step in reversed([step for step in subject.path[:-2] if isinstance(step, str)]):
        value = {step: value}
    return value
