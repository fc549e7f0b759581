"""What is no mistake and yet not meant: policies and exemptions without effect, and exemptions that end.

They are warnings: a policy set that has them is in force all the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from webhook.capacity.provider import sizers_by_resource
from webhook.globs import Globs
from webhook.policy.document import EXEMPTION
from webhook.policy.never import Ground, Never, Rule
from webhook.policy.never_scope import exempts_all, never_exempting, never_matching
from webhook.policy.terms import Enforcement
from webhook.rules.protocol import Doubtful

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from webhook.bundle import Bundle
    from webhook.policy.common import ExemptSpec
    from webhook.policy.document import PolicyDocument
    from webhook.policy.errors import Problem

WARN_BEFORE: Final = timedelta(days=14)
"""How long before its last day an exemption is called to mind."""


def warnings(bundle: Bundle, today: date) -> list[Problem]:
    """All warnings about the policies of a bundle, in the order of the files."""
    return sorted(_Linter(bundle, today).warnings())


class _Linter:
    def __init__(self, bundle: Bundle, today: date) -> None:
        index = bundle.index
        sizers = sizers_by_resource(bundle.providers.values()).values()
        self._today = today
        self._documents = bundle.documents
        self._ground = Ground(
            namespaced={
                **{(each[0].group, each[0].resource): True for each in sizers},
                **dict.fromkeys(index.workloads, True),
                **{(each.group, each.resource): each.namespaced for each in bundle.readers},
            },
            system_namespaces=index.system_namespaces.patterns,
        )
        self._places = {
            policy.name: self._ground.places(Rule(each.api_groups, each.resources, each.scope) for each in policy.rules)
            for policy in bundle.policies
        }
        rules: dict[str, object] = {policy.name: policy.validator for policy in bundle.policies}
        self._nevers = {name: rule.nevers for name, rule in rules.items() if isinstance(rule, Doubtful)}

    def warnings(self) -> Iterator[Problem]:
        policies = [each for each in self._documents if each.is_policy and each.spec.enforcement is not Enforcement.OFF]
        for policy in policies:
            yield from _told(policy, (), never_matching(policy.spec.match, self._places[policy.name], self._ground))
            yield from _told(policy, (), self._nevers.get(policy.name, ()))
            yield from _told(policy, (), _false_conditions(policy))
            for number, entry in enumerate(policy.spec.exempt):
                yield from self._exempt(policy, ("exempt", number), entry, [policy])
        for document in self._documents:
            if document.kind == EXEMPTION:
                names = Globs(document.spec.policies)
                named = [policy for policy in policies if names.match(policy.name)]
                yield from self._exempt(document, (), document.spec, named)

    def _exempt(
        self,
        document: PolicyDocument,
        path: tuple[str | int, ...],
        spec: ExemptSpec,
        policies: Sequence[PolicyDocument],
    ) -> Iterator[Problem]:
        """What is to be said of an entry of ``exempt``, or of an Exemption document."""
        if spec.expires is not None and (text := _ending(spec.expires, spec.reason, self._today)):
            yield document.problem(("spec", *path, "expires"), f"warning: {text}")
            if self._today > spec.expires:
                return
        never = [never_exempting(spec, each.spec.match, self._places[each.name], self._ground) for each in policies]
        if never and all(never):
            yield from _told(document, path, never[:1])
        for each in policies:
            if exempts_all(spec, each.spec.match, self._places[each.name]):
                text = f"lets everything through that {each.name} looks at; if that is meant, write `enforcement: off`"
                yield document.problem(("spec", *path), f"warning: {text}")


def _told(document: PolicyDocument, path: tuple[str | int, ...], found: Iterable[Never | None]) -> Iterator[Problem]:
    for each in filter(None, found):
        yield document.problem(("spec", *path, *each.path), f"warning: {each.text}")


def _false_conditions(policy: PolicyDocument) -> Iterator[Never]:
    """What somebody wrote to switch a policy off."""
    for number, each in enumerate(getattr(policy.spec, "match_conditions", ())):
        if each.expression.strip() == "false":
            text = "never matches: this condition is never true; if that is meant, write `enforcement: off`"
            yield Never(("matchConditions", number, "expression"), text)


def _ending(last: date, reason: str, today: date) -> str:
    if today > last:
        return f"the exemption ended on {last} ({reason}) and holds no longer; remove it, or renew it"
    if today >= last - WARN_BEFORE:
        return f"the exemption ends on {last} ({reason}); renew it, or mend what it lets through"
    return ""
