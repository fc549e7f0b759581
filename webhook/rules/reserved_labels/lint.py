"""Warn about ReservedLabels policies that never evaluate pod templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.policy.match import is_named
from webhook.rules.spec_warnings import SpecWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload
    from webhook.rules.reserved_labels.spec import ReservedLabelsSpec

_PODS: Final = ("", "pods")


def lint(spec: ReservedLabelsSpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield rules that name workloads but not Pods: a rule must name Pods to evaluate pod templates."""
    rules = spec.match.resource_rules or ()
    if any(is_named(rule, *_PODS) for rule in rules):
        return
    named = {(workload.group, workload.resource) for workload in workloads}
    for number, rule in enumerate(rules):
        for place, resource in enumerate(rule.resources):
            if any(name == resource and is_named(rule, group, name) for group, name in named):
                text = f"never matches the pod templates of {resource}, only their own labels: also list pods"
                yield SpecWarning(("match", "resourceRules", number, "resources", place), text)
