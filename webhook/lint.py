"""What is no mistake and yet not meant: policies without effect, exemptions that end, rules too wide for a webhook.

They are warnings: a policy set that has them is in force all the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from webhook.capacity.provider import pool_resources
from webhook.globs import Globs
from webhook.kube.resources import is_built_in
from webhook.policy.document import EXEMPTION
from webhook.policy.never import Ground, Never, Rule
from webhook.policy.never_names import nearly_known, unlikely_resources
from webhook.policy.never_scope import (
    exempts_all,
    never_denying,
    never_exempting,
    never_matching,
    nobody,
    odd_groups,
)
from webhook.policy.terms import Enforcement
from webhook.policy.workloads import WORKLOAD_TEMPLATES
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

_TOO_MANY: Final = {
    "": "every Event and Node, among others",
    "authentication.k8s.io": "every token that is looked at",
    "authorization.k8s.io": "every access that is looked at",
    "coordination.k8s.io": "every Lease",
    "discovery.k8s.io": "every EndpointSlice",
    "events.k8s.io": "every Event",
}
"""What the API server would call for, by API group. The cluster lives on these, and the webhook itself too."""

_RESERVED_LABELS: Final = "ReservedLabels"
"""Named here, as EvictionStrategy's policies leave labels to it, and no policy knows of others as it is compiled."""

_ALL: Final = frozenset({"*", "*/*", "*/status"})
"""Other subresources (``*/scale``) are asked for seldom."""


def warnings(bundle: Bundle, today: date) -> list[Problem]:
    """All warnings about the policies of a bundle, in the order of the files."""
    refused = [
        replace(each, text=f"warning: `webhook-config` refuses the policy: {each.text}") for each in too_wide(bundle)
    ]
    return sorted([*_Linter(bundle, today).warnings(), *refused, *bundle.passed_over])


def too_wide(bundle: Bundle) -> Iterator[Problem]:
    """Rules for every resource of an API group, where a webhook that is called for all of it can stop a cluster."""
    groups = {each.group for each in pool_resources(bundle.providers.values())}
    of_pools = {group: f"all of {group}, where node pools are judged with failurePolicy Fail" for group in groups}
    of_any = {"*": "every resource", **of_pools}
    for policy in bundle.documents:
        if not policy.is_policy or policy.spec.enforcement is Enforcement.OFF:
            continue
        for number, rule in enumerate(policy.spec.match.resource_rules or ()):
            for index, resource in enumerate(rule.resources):
                too_many = of_any | _TOO_MANY if resource in _ALL else of_any
                what = [too_many[group] for group in rule.api_groups if group in too_many]
                if what and resource.startswith("*"):
                    text = f"{resource!r} would have the API server call for {what[0]}; name those that are meant"
                    yield policy.problem(("spec", "match", "resourceRules", number, "resources", index), text)


class _Linter:
    def __init__(self, bundle: Bundle, today: date) -> None:
        index = bundle.index
        pools = pool_resources(bundle.providers.values())
        self._today = today
        self._documents = bundle.documents
        self._ground = Ground(
            namespaced={
                **dict.fromkeys(index.workloads, True),
                **{(each.group, each.plural): each.namespaced for each in pools},
            },
            system_namespaces=index.system_namespaces.patterns,
            workload_groups=frozenset(group for group, _ in index.workloads if not is_built_in(group)),
        )
        self._workloads = index.workloads.values()
        self._places = {
            policy.name: self._ground.places(Rule(each.api_groups, each.resources, each.scope) for each in policy.rules)
            for policy in bundle.policies
        }
        rules: dict[str, object] = {policy.name: policy.validator for policy in bundle.policies}
        self._nevers = {name: rule.nevers for name, rule in rules.items() if isinstance(rule, Doubtful)}

        self._reserved = tuple(
            f".{domain}"
            for each in self._documents
            if each.kind == _RESERVED_LABELS and each.spec.enforcement is not Enforcement.OFF
            for domain in each.spec.domains
        )

    def warnings(self) -> Iterator[Problem]:
        policies = [each for each in self._documents if each.is_policy and each.spec.enforcement is not Enforcement.OFF]
        for policy in policies:
            yield from _told(policy, (), never_matching(policy.spec.match, self._places[policy.name], self._ground))
            yield from _told(policy, (), self._nevers.get(policy.name, ()))
            yield from _told(policy, (), _never_denied(policy))
            yield from _told(policy, (), self._left_to_nobody(policy))
            yield from _told(policy, (), nearly_known(policy.spec, self._workloads))
            if policy.spec.enforcement is Enforcement.DENY:
                yield from _told(policy, (), never_denying(policy.spec.match, self._places[policy.name], self._ground))
            if policy.spec.break_glass is not None:
                yield from _told(policy, ("breakGlass",), odd_groups(policy.spec.break_glass.groups))
            for number, entry in enumerate(policy.spec.exempt):
                yield from self._exempt(policy, ("exempt", number), entry, [policy])
        for document in self._documents:
            if document.kind == EXEMPTION:
                names = Globs(document.spec.policies)
                named = [policy for policy in policies if names.match(policy.name)]
                yield from self._exempt(document, (), document.spec, named)
            elif document.kind == WORKLOAD_TEMPLATES:
                yield from _told(document, (), unlikely_resources(document.spec))

    def _left_to_nobody(self, policy: PolicyDocument) -> Iterator[Never]:
        """Domains of an EvictionStrategy in which nobody speaks of misspelt labels."""
        for number, domain in enumerate(getattr(policy.spec, "left_to_reserved_labels", ())):
            if not f".{domain}".endswith(self._reserved):
                text = f"no {_RESERVED_LABELS} policy judges labels of {domain}: misspelt ones are found by nobody"
                yield Never(("leftToReservedLabels", number), text)

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
        yield from _told(document, path, nobody(spec))
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


def _never_denied(policy: PolicyDocument) -> Iterator[Never]:
    """Findings that somebody wrote to deny, in a policy that denies nothing: of such kinds that is the default."""
    enforcement = policy.spec.enforcement
    if enforcement is Enforcement.DENY:
        return
    spec = cast("dict[str, Any]", policy.document.value).get("spec") or {}
    why = "" if "enforcement" in spec else " by default"
    denied = [name for name, level in spec.get("findings", {}).items() if level == Enforcement.DENY]
    if denied:
        lowered = f"{', '.join(denied)} can't be denied: the policy's enforcement is {enforcement}{why}"
        text = f"{lowered}; write `enforcement: deny`, and `warn` for the findings that are not to deny"
        yield Never(("findings", denied[0]), text)


def _ending(last: date, reason: str, today: date) -> str:
    if today > last:
        return f"the exemption ended on {last} ({reason}) and holds no longer; remove it, or renew it"
    if today >= last - WARN_BEFORE:
        return f"the exemption ends on {last} ({reason}); renew it, or mend what it lets through"
    return ""
