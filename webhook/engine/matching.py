"""Match a request with the policies of its route, and find the policy that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.base.field_paths import field_path
from webhook.capacity.placement.target import Target
from webhook.engine.enforcement import UnknownMatch
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.model.decision import StepKind
from webhook.model.review import is_null
from webhook.policy.match import is_namespace
from webhook.policy.precedence import ALONE, claim
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.engine.index import Policy, Route
    from webhook.model.decision import Trace
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


class Matching(msgspec.Struct, frozen=True):
    """The match of one request with the policies of its route, given the state of the cluster.

    Attributes:
        whole: the object of the request.
        namespace: the namespace to match; None for cluster-scoped objects.
        of_provider: the object is a Namespace that a provider owns.
        owner_unknown: whether a provider owns the namespace is unknown.
        audit: the audit annotations of the decision. Exemptions that apply are added.
    """

    whole: Subject
    namespace: str | None
    trace: Trace
    route: Route
    providers: Mapping[str, Provider]
    context: Context
    of_provider: bool
    owner_unknown: bool
    audit: dict[str, str]

    def applies(self, policy: Policy, subject: Subject) -> bool:
        """Return whether the policy matches the subject, no other policy decides for it, and no exemption applies."""
        trace, request = self.trace, self.whole.request
        if trace.kept:
            trace.policy, trace.where = policy.name, field_path(subject.path)
        if self.is_foreign(policy):
            trace.skip("not evaluated: namespace %s belongs to the provider", self.namespace)
            return False
        if self.route.restricted or not policy.matcher.trivial:
            if why_not := self.why_not(policy, subject):
                trace.skip("%s", why_not)
                return False
            if self.is_unknown(policy):
                text = "the labels of namespace %s are not known: evaluated as if match.namespaceSelector selected it"
                trace.say(text, request.namespace)
        if self.route.contested and (decider := self.decider(policy, subject)):
            trace.say("overridden: %s decides", decider, kind=StepKind.OVERRIDDEN)
            return False
        return not ((self.route.contested or policy.exemptions) and self.exempts(policy, subject))

    def is_foreign(self, policy: Policy) -> bool:
        """Return whether a provider owns the namespace and the policy doesn't guard these namespaces."""
        return self.of_provider and not policy.kind.guards_namespaces

    def exempts(self, policy: Policy, subject: Subject) -> bool:
        """Return whether the policy, or a matching policy that it overrides, exempts the subject."""
        exemptions = policy.exemptions
        overrides = self._others(policy.standing.overrides, subject)
        if overridden := [other for other in overrides if not self.why_not(other, subject)]:
            exemptions += tuple(exemption for other in overridden for exemption in other.exemptions)
            self.trace.say("decides in place of %s", ", ".join(other.name for other in overridden))
        for exemption in dict.fromkeys(exemptions):
            failing = exemption.failing(self.whole.request, subject.labels, self.context.now.date())
            if not failing:
                self.trace.say("%s", exemption.sentence, kind=StepKind.EXEMPTED, cause=exemption)
                known = self.audit.get(policy.name, "")
                if f"; {exemption.sentence};" not in f"; {known};":  # once for all pod templates
                    self.audit[policy.name] = "; ".join(filter(None, (known, exemption.sentence)))
                return True
            text = 'not exempt by %s "%s": %s doesn\'t match'
            self.trace.say(text, exemption.name, exemption, failing, kind=StepKind.NOT_EXEMPTED)
        return False

    def guards(self, policy: Policy) -> bool:
        """Return whether the policy matches the object, whatever the operation, and no other policy decides for it."""
        namespace_labels = None if self.namespace_is_unknown else self.namespace_labels
        matches = not policy.matcher.why_not(self.namespace, namespace_labels, self.whole.labels)
        return matches and not self.decider(policy, self.whole)

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
        for other in self._others(policy.standing.overridden_by, subject):
            if not (self.is_unknown(other) or self.why_not(other, subject)):
                return other.name
        rivals = [
            rival
            for rival in self._others(policy.standing.rivals, subject)
            if not (self.is_unknown(rival) or self.why_not(rival, subject))
            and all(self.why_not(other, subject) for other in self._others(rival.standing.overridden_by, subject))
        ]
        if not rivals:
            return ""
        view = self.context.view
        target = Targeting(self.providers).target(subject, view)
        shown = {provider.name for provider in target.providers} if isinstance(target, Target) else view.providers
        best = min((policy, *rivals), key=lambda rival: claim(rival.claims, shown))
        return best.name if best is not policy else ""

    def _others(self, names: frozenset[str], subject: Subject) -> list[Policy]:
        """Return the policies with these names that may match the subject."""
        policies = self.route.projected if subject.template else self.route.direct
        return [other for other in policies if other.name in names] if names else []

    def unknown(self, policy: Policy, subject: Subject) -> UnknownMatch | None:
        """Return why it is unknown whether the policy matches and decides, or None if it is known."""
        request = self.whole.request
        if self.owner_unknown and not (is_namespace(request) and policy.kind.guards_namespaces):
            return UnknownMatch.of_owner(self.namespace or "", self.context.view)
        if self.is_unknown(policy):
            return UnknownMatch.of_selector(request.namespace)
        for other in self._others(policy.standing.overridden_by, subject):
            if self.is_unknown(other) and not self.why_not(other, subject):
                return UnknownMatch.of_override(request.namespace, other.name)
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
