"""Match a request with the policies of its route, and find which of them decides."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from webhook.capacity.placement.target import Target
from webhook.engine.enforcement import UnknownMatch
from webhook.model.review import is_null
from webhook.policy.match import is_namespace
from webhook.policy.precedence import claim
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.engine.index import Index, Policy, Route
    from webhook.model.review import Request
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


class Matching:
    """The match of one request, with the state of the cluster, with the policies of its route.

    Attributes:
        whole: the object of the request, whose labels are those of a Namespace.
    """

    def __init__(
        self, request: Request, whole: Subject, namespace: str | None, route: Route, index: Index, context: Context
    ) -> None:
        self.whole = whole
        self._request = request
        self._namespace = namespace
        self._route = route
        self._index = index
        self._context = context

    def why_not(self, policy: Policy, subject: Subject) -> str:
        """Return which part of ``match`` leaves the subject out. Return an empty string if all match, or may match."""
        if self._route.restricted and (why_not := policy.why_not_request(self._request, template=subject.template)):
            return why_not
        if policy.matcher.trivial:
            return ""
        namespace_labels = None if self.is_unknown(policy) else self.namespace_labels
        return policy.matcher.why_not(self._namespace, namespace_labels, subject.labels)

    def decider(self, policy: Policy, subject: Subject) -> str:
        """Return the policy that decides on the subject in place of this one. Return an empty string if none does."""
        contests = self._route.contests[subject.template]
        contest = contests.get(policy.name)
        if contest is None:
            return ""
        for other in contest.over:
            if not (self.is_unknown(other) or self.why_not(other, subject)):
                return other.name
        rivals = [
            rival
            for rival in contest.rivals
            if not (self.is_unknown(rival) or self.why_not(rival, subject))
            and all(self.why_not(other, subject) for other in contests[rival.name].over)
        ]
        if not rivals:
            return ""
        view, providers = self._context.view, self._index.providers
        target = Targeting(providers).target(subject, view)
        shown = {provider.name for provider in target.providers} if isinstance(target, Target) else view.providers
        best = min((policy, *rivals), key=lambda rival: claim(rival.claims, shown))
        return best.name if best is not policy else ""

    def overridden(self, policy: Policy, subject: Subject) -> tuple[Policy, ...]:
        """Return the policies that match the subject, and that this one overrides."""
        contest = self._route.contests[subject.template].get(policy.name)
        return () if contest is None else tuple(other for other in contest.under if not self.why_not(other, subject))

    def unknown(self, policy: Policy, subject: Subject) -> UnknownMatch | None:
        """Return why it is unknown whether the policy matches and decides. Return None if it is known."""
        if self.is_unknown(policy):
            return UnknownMatch.of_selector(self._request.namespace)
        contest = self._route.contests[subject.template].get(policy.name)
        for other in contest.over if contest is not None else ():
            if self.is_unknown(other) and not self.why_not(other, subject):
                return UnknownMatch.of_override(self._request.namespace, other.name)
        return None

    def is_unknown(self, policy: Policy) -> bool:
        """Return whether the policy might match if the labels of the namespace were known."""
        if policy.matcher.trivial:
            return False
        return self.namespace_is_unknown and policy.matcher.could_select_with_others(self.namespace_labels())

    @cached_property
    def namespace_is_unknown(self) -> bool:
        """Return whether the namespace's labels are unknown.

        This happens only on the command line: a server takes a namespace that it has not seen yet to have no labels.
        """
        namespace = self._request.namespace
        given = not namespace or namespace in self._context.view.namespaces or self._is_of_namespace
        return self._context.offline and not given

    @property
    def _is_of_namespace(self) -> bool:
        return is_namespace(self._request) and not is_null(self._request.object)

    def namespace_labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace; of a Namespace that is created or updated, those it will have."""
        if self._is_of_namespace:
            return next(self.whole.labels(), {})
        return self._index.namespace_labels(self._request.namespace, self._context.view)
