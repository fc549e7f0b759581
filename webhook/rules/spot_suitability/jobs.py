"""Find Jobs that fail on a reclaim, and workloads that replace reclaimed Pods late.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy (needs restartPolicy Never;
a Pod that a drain or a taint removes has the condition DisruptionTarget) and #pod-replacement-policy;
https://jobset.sigs.k8s.io/docs/concepts/ (maxRestarts);
https://github.com/kubernetes/enhancements/tree/master/keps/sig-apps/3973-consider-terminating-pods-deployment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from webhook.base.field_paths import field_path
from webhook.kube.filling import items_of, mapping
from webhook.model.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.kube.layouts import FoundTemplate
    from webhook.rules.subject import Subject

_JOB: Final = "Job.batch"
_DISRUPTED: Final = "DisruptionTarget"
_SIGNALLED: Final = (137, 143)  # the exit codes after SIGKILL and SIGTERM
_JOBS: Final = "replicatedJobs"
_BACKOFF: Final = "BackoffLimitExceeded"
_LATE: Final = ("Failed", "TerminationComplete")
LONG_SECONDS: Final = 60
"""The grace period of a stateless service. A replacement that waits for a longer grace period comes too late."""


def job_violations(subject: Subject) -> Iterator[Violation]:
    """Yield the violations of the fields next to a pod template, in the ``spec`` of a Job or Deployment."""
    pod, template = subject.pod, subject.pod_template
    if template is None or not pod.spec.containers or not (spec := subject.holder(template.path[:-1])):
        return
    if pod.controller is not None and pod.controller.group_kind == _JOB:
        yield from _counted(subject, template, spec)
        if spec.get("podFailurePolicy") is not None:
            return  # with it, Kubernetes allows no other podReplacementPolicy
    if (policy := spec.get("podReplacementPolicy")) in _LATE and pod.grace_seconds > LONG_SECONDS:
        yield Violation(
            id="late-replacement",
            reason=f"a reclaimed Pod is replaced up to {pod.grace_seconds} s late: podReplacementPolicy is {policy}",
            field="spec.terminationGracePeriodSeconds",
            detail="The replacement is created when the old Pod has ended, not when it starts to terminate.",
            fix="shorten the grace period, or, to start replacements at once, set podReplacementPolicy: "
            + ("TerminatingOrFailed" if policy == "Failed" else "TerminationStarted"),
            outcome=Outcome.AUDIT,
        )


def _counted(subject: Subject, template: FoundTemplate, job: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield the violation for a Job that counts a reclaimed Pod as failed, unless a JobSet restarts the Job."""
    rules = items_of(mapping(job, "podFailurePolicy"), "rules")
    action = next((rule.get("action") for rule in rules if _matches(rule)), "")
    jobset = subject.holder(subject.path[: subject.path.index(_JOBS)]) if _JOBS in subject.path else {}
    if action == "Ignore" or _restarts(mapping(jobset, "failurePolicy")):
        return
    at = next((name for name in ("backoffLimit", "backoffLimitPerIndex") if job.get(name) == 0), "")
    whole = "whole " if at == "backoffLimit" or job.get("maxFailedIndexes") == 0 else ""
    reason = f"{at} is 0: one reclaimed node fails the {whole}Job"
    fix = "add a podFailurePolicy that ignores disruptions"
    if action in ("FailJob", "FailIndex"):
        at, reason = "podFailurePolicy", f"a {action} rule applies to Pods that a reclaim stops"
        fix = "put a rule that ignores disruptions first"
    if at:
        yield Violation(
            id="job-fails",
            reason=reason,
            field=field_path((*template.path[:-1], at)),
            outside=True,
            detail="A reclaimed Pod counts as failed, unless a podFailurePolicy ignores it.",
            fix=f"{fix}; the Job still fails if its program fails",
            other=_policy(template),
        )
    elif not rules and subject.pod.spec.restartPolicy == "Never":
        limit = "backoffLimitPerIndex" if "backoffLimitPerIndex" in job else "backoffLimit"
        yield Violation(
            id="job-failure-policy",
            reason=f"each reclaim counts against {limit}: no podFailurePolicy ignores disruptions",
            field="spec.restartPolicy",
            detail="After a few reclaimed nodes, the Job fails although its program never failed.",
            fix=fix,
            other=_policy(template),
            outcome=Outcome.AUDIT,
        )


def _restarts(policy: Mapping[str, Any]) -> bool:
    """Return whether a JobSet's failurePolicy restarts all Jobs if one of them fails by its ``backoffLimit``."""
    rules = ((rule.get("action"), rule.get("onJobFailureReasons")) for rule in items_of(policy, "rules"))
    applying = (
        action for action, reasons in rules if not isinstance(reasons, list) or _BACKOFF in (reasons or [_BACKOFF])
    )
    action = next(applying, "RestartJobSet")
    restarts = policy.get("maxRestarts")
    counted = action == "RestartJobSet" and isinstance(restarts, int) and restarts > 0
    return counted or action == "RestartJobSetAndIgnoreMaxRestarts"


def _matches(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule matches every reclaimed Pod, or fails those that a signal ends."""
    codes = mapping(rule, "onExitCodes")
    listed = codes["values"] if isinstance(codes.get("values"), list) else []
    if codes and rule.get("action") != "Ignore":
        return any((code in listed) is (codes.get("operator") == "In") for code in _SIGNALLED)
    conditions = items_of(rule, "onPodConditions")
    return any(each.get("type") == _DISRUPTED and each.get("status", "True") == "True" for each in conditions)


def _policy(template: FoundTemplate) -> dict[str, Any]:
    """Return a podFailurePolicy that ignores disruptions, at its place in the manifest of the Job or its owner."""
    rules = [{"action": "Ignore", "onPodConditions": [{"type": _DISRUPTED}]}]
    value: Any = {"podFailurePolicy": {"rules": rules}, "template": {"spec": {"restartPolicy": "Never"}}}
    for step, name in reversed([*zip(template.path, template.identity, strict=True)][:-1]):
        named = {"name": name} if isinstance(name, str) else {}
        value = {step: value} if isinstance(step, str) else [{**named, **value}]
    return cast("dict[str, Any]", value)
