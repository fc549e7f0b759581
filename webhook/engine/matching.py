"""Match a request with the policies of its route, and find the policy that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.capacity.placement.target import Target
from webhook.engine.enforcement import UnknownMatch
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.model.review import is_null
from webhook.policy.match import is_namespace
from webhook.policy.precedence import ALONE, claim
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.engine.index import Policy, Route
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


class Matching(msgspec.Struct, frozen=True):
    """The match of one request with the policies of its route, given the state of the cluster.

    Attributes:
        whole: the object of the request.
        namespace: the namespace to match; None for cluster-scoped objects.
    """

    whole: Subject
    namespace: str | None
    route: Route
    providers: Mapping[str, Provider]
    context: Context

    def why_not(self, policy: Policy, subject: Subject) -> str:
        """Return the part of ``match`` that excludes the subject, or an empty string if all parts may match."""
        if self.route.restricted and (why_not := policy.why_not_request(self.whole.request, template=subject.template)):
            return why_not
        if policy.matcher.trivial:
            return ""
        namespace_labels = None if self.is_unknown(policy) else self.namespace_labels
        return policy.matcher.why_not(self.namespace, namespace_labels, subject.labels)

    def decider(self, policy: Policy, subject: Subject) -> str:
        """Return the name of the policy that decides in place of this one, or an empty string if none does."""
        if policy.standing is ALONE:
            return ""
        for other in self._overriding(policy, subject):
            if not (self.is_unknown(other) or self.why_not(other, subject)):
                return other.name
        rivals = [
            rival
            for rival in self._policies(subject)
            if rival.name in policy.standing.rivals
            and not (self.is_unknown(rival) or self.why_not(rival, subject))
            and all(self.why_not(other, subject) for other in self._overriding(rival, subject))
        ]
        if not rivals:
            return ""
        view = self.context.view
        target = Targeting(self.providers).target(subject, view)
        shown = {provider.name for provider in target.providers} if isinstance(target, Target) else view.providers
        best = min((policy, *rivals), key=lambda rival: claim(rival.claims, shown))
        return best.name if best is not policy else ""

    def _policies(self, subject: Subject) -> tuple[Policy, ...]:
        return self.route.projected if subject.template else self.route.direct

    def _overriding(self, policy: Policy, subject: Subject) -> list[Policy]:
        names = policy.standing.overridden_by
        return [other for other in self._policies(subject) if other.name in names] if names else []

    def overridden(self, policy: Policy, subject: Subject) -> list[Policy]:
        """Return the policies that match the subject and that this policy overrides."""
        names = policy.standing.overrides
        under = (other for other in self._policies(subject) if other.name in names) if names else ()
        return [other for other in under if not self.why_not(other, subject)]

    def unknown(self, policy: Policy, subject: Subject) -> UnknownMatch | None:
        """Return why it is unknown whether the policy matches and decides, or None if it is known."""
        if self.is_unknown(policy):
            return UnknownMatch.of_selector(self.whole.request.namespace)
        for other in self._overriding(policy, subject):
            if self.is_unknown(other) and not self.why_not(other, subject):
                return UnknownMatch.of_override(self.whole.request.namespace, other.name)
        return None

    def is_unknown(self, policy: Policy) -> bool:
        """Return whether the match depends on unknown labels of the namespace."""
        if policy.matcher.trivial:
            return False
        return self.namespace_is_unknown and policy.matcher.could_select_with_others(self.namespace_labels())

    @property
    def namespace_is_unknown(self) -> bool:
        """Return whether the namespace's labels are unknown.

        This happens only on the command line. A server assumes that a namespace it hasn't seen yet has no labels.
        """
        namespace = self.whole.request.namespace
        given = not namespace or namespace in self.context.view.namespaces or self._is_of_namespace
        return self.context.offline and not given

    @property
    def _is_of_namespace(self) -> bool:
        return is_namespace(self.whole.request) and not is_null(self.whole.request.object)

    def namespace_labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace. For an unknown namespace, return only its name label.

        For a request that creates or updates a Namespace, return the labels in the request.
        """
        if self._is_of_namespace:
            return next(self.whole.labels(), {})
        namespace = self.whole.request.namespace
        return self.context.view.namespaces.get(namespace) or {NAMESPACE_NAME_LABEL: namespace}
