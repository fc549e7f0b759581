"""Decide whether a Pod targets spot, and word it, for the policy kinds that depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.target import CAPACITY_LABEL, ON_DEMAND, NotTargeting, Target, target_of
from webhook.rules.protocol import Concern, Keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod
    from webhook.policy.common import TargetingSpec
    from webhook.rules.protocol import Facts
    from webhook.rules.subject import Subject


NOT_MUTATED: Final = "Either the mutating webhook was skipped, something undid its change, or the policy only audits."
"""The possible reasons why a planned change of a Pod is missing."""


class Targeting(msgspec.Struct, frozen=True):
    """The settings of a policy that decide which Pods target spot.

    Attributes:
        provider: the providers that the policy names, for clusters that show no provider.
        tolerating: a Pod targets spot if it tolerates a provider's spot taint by name.
    """

    providers: Mapping[str, Provider]
    provider: tuple[str, ...] = ()
    tolerating: bool = False

    @classmethod
    def of_policy(cls, spec: TargetingSpec, facts: Facts) -> Targeting:
        """Return the settings of a policy."""
        return cls(facts.providers, spec.provider, spec.tolerating_is_targeting)

    def target(self, subject: Subject, view: ClusterView) -> Target | NotTargeting:
        """Return the Pod's target. Policies with the same settings share it: injected changes don't alter it."""
        settings = (self.provider, self.tolerating)
        target: Target | NotTargeting | None = subject.memo.get(settings)
        if target is None:
            target = subject.memo[settings] = self.target_of_pod(subject.pod, subject.pod_namespace, view)
        return target

    def target_of_pod(self, pod: Pod, namespace: str, view: ClusterView) -> Target | NotTargeting:
        """Return the target of a Pod in this namespace."""
        return target_of(
            pod,
            view.namespaces.get(namespace) or {},
            view,
            self.providers,
            namespace=namespace,
            provider=self.provider,
            tolerating=self.tolerating,
        )

    def concern(self) -> Concern:
        """Return the fields that may make a Pod target spot."""
        return Concern(
            labels=Keys(frozenset({CAPACITY_LABEL})),
            annotations=Keys(frozenset({NODE_POOL_ANNOTATION})),
            selectors=True,
            tolerations=Keys(containing=frozenset({""} if self.tolerating else ())),
            in_spot_namespaces=True,
        )


def pod_noun(subject: Subject) -> str:
    """Return the name of the object with the Pod's labels and annotations in the manifest."""
    return "the pod template" if subject.template else "the Pod"


def run_on_demand(subject: Subject, target: Target | NotTargeting) -> str:
    """Return how to run the Pod on demand, as an instruction. A label doesn't override the Pod's other choices of spot.

    spotgate may have injected a selector because of the label. If the user wrote the selector, changing the label leads
    to the finding `on-demand-and-spot`.
    """
    if isinstance(target, NotTargeting):
        return f"select a {target.chosen[0].kind} without spot nodes"
    if target.own and target.own == target.field:
        return f"remove `{target.own}`, which selects spot"
    return f"label {pod_noun(subject)} with `{CAPACITY_LABEL}: {ON_DEMAND}`"
