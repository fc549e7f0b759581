"""ReservedLabels: users don't set labels in domains that belong to the platform.

Intent
    CoreWeave rejects customers' node labels in ``*.coreweave.cloud`` and ``*.coreweave.com``, and reads a few of these
    labels on Pods. Any other label in these domains is rejected by the platform, or is misspelled and has no effect.
    spotgate reports both at ``kubectl apply``.
Reads
    ``metadata.labels`` of any matching resource, a node pool's node labels (the ``labels`` query of its reader), the
    labels of pod templates, and other fields of a workload that become labels of Pods or other objects (``labels`` in
    ``WorkloadTemplates``). On UPDATE, only labels that the request adds or changes; removing is always allowed.
    Objects that are being deleted are evaluated like any other. For spotgate keys, also the annotations of Pods,
    workloads, and node pools. The status of a Pod, and a Binding, because both can set labels on the Pod. The names of
    Namespaces: spotgate skips those of a provider.
    A key is reserved if its prefix is a domain of the policy or ends in ``.<domain>``: ``foo.coreweave.com/bar`` is,
    ``notcoreweave.com/bar`` and ``coreweave.com`` (no prefix) are not. ``allow`` exempts keys, per resource.
    A key of ``spotgate.dev`` without effect is a warning (`webhook.rules.reserved_labels.own`). The label
    ``spotgate.dev/assigned`` is denied in pod templates, and in the selector of a workload with an on-demand floor.
    The annotation ``spotgate.dev/reclaim-at`` is denied in pod templates and in new Pods.
Writes
    Nothing.
Finds
    reserved, disputed, unknown-spotgate-key, misplaced-spotgate-key, provider-namespace, provider-namespace-unknown
Source
    CoreWeave, "Workload Scheduling on CKS", user-provided labels.
"""

from __future__ import annotations

import difflib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.bounds import HINTED_AT_MOST
from webhook.base.globs import Globs, is_glob
from webhook.capacity.placement.supply import in_play
from webhook.capacity.providers.provider import Provider, ResourceReader, readers_by_resource
from webhook.kube.filling import mapping
from webhook.model.decision import Violation, warning
from webhook.policy.match import ResourceRule, is_named, is_namespace, rules_for
from webhook.rules.protocol import Concern, Facts, Keys, PolicyKind, SpecWarning
from webhook.rules.reserved_labels.own import own_violations, selector_violations
from webhook.rules.reserved_labels.places import PODS, PREFIX, KeyPlace, places_of
from webhook.rules.reserved_labels.spec import ReservedLabelsSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from webhook.capacity.view import ClusterView
    from webhook.kube.templates import Workload
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_CLOSE: Final = 0.8
"""The minimum similarity of two label names for a hint: ``interruptible`` and ``interruptable`` have 0.92."""


_ReservedKey = tuple[str, str, str]
"""A reserved key that the request adds or changes, its field path, and the resource that gets it."""


class ReservedLabels(msgspec.Struct, frozen=True):
    """The compiled rule.

    Attributes:
        suffixes: the reserved domains, with a leading dot.
        allowed: plural resource name -> keys that users may set.
        disputed: the allowed keys with a warning: plural resource names, keys, and the warning.
        foreign: provider -> the reserved domains that belong only to other providers, each with a leading dot.
        readers: node-pool readers by API group and plural resource name, like ``workloads``.
    """

    spec: ReservedLabelsSpec
    suffixes: tuple[str, ...]
    allowed: Mapping[str, Globs]
    disputed: tuple[tuple[tuple[str, ...], Globs, str], ...]
    providers: Mapping[str, Provider]
    foreign: Mapping[str, tuple[str, ...]]
    readers: Mapping[tuple[str, str], ResourceReader]
    workloads: Mapping[tuple[str, str], Workload]

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the reserved keys and the spotgate keys."""
        domains = frozenset(f"{domain}/" for domain in self.spec.domains)
        return Concern(labels=Keys(containing=domains | {PREFIX}), annotations=Keys(containing=frozenset({PREFIX})))

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        """Return a violation for each reserved key that the request adds or changes, then for keys without effect."""
        if subject.operation == "DELETE":
            subject.trace.say("removing labels is always allowed")
            return ()
        key = (subject.request.resource.group, subject.request.resource.resource)
        readers = self.readers.get(key)
        reader = readers.of(subject.object or {}) if readers is not None else None
        places = places_of(subject, reader, self.workloads.get(key), self._reserved)
        reserved = [item for place in places for item in self._added(subject, place)]
        if reader is not None and (foreign := self.foreign[reader.provider]):
            # CoreWeave rejects labels in its domains on its nodes. Its charts require them on other providers' nodes.
            reserved = [item for item in reserved if not f".{item[0].partition('/')[0]}".endswith(foreign)]
        if not reserved:
            subject.trace.say("the request adds no reserved label")
        claimed: Iterable[Violation] = ()
        if is_namespace(subject.request):
            claimed = _claims(subject, self.providers, context.view, {key for key, *_ in reserved})
        # Yield lazily: the engine stops at its bound on violations.
        own = own_violations(places, creating=subject.operation == "CREATE")
        return chain(self._violations(reserved), claimed, selector_violations(subject), own)

    def _reserved(self, labels: Mapping[str, Any]) -> list[str]:
        """Return the keys in reserved domains."""
        return [key for key in labels if "/" in key and f".{key.partition('/')[0]}".endswith(self.suffixes)]

    def _added(self, subject: Subject, place: KeyPlace) -> Iterator[_ReservedKey]:
        """Yield the reserved label keys that are neither allowed nor unchanged by the request."""
        allowed, before = self.allowed.get(place.resource), place.before
        for key in self._reserved(place.keys) if place.member == "labels" else ():
            if allowed is not None and allowed.match(key) and not self._doubt(key, place.resource):
                subject.trace.say("label %s is reserved, and allowed on %s", key, place.resource)
            elif key in before and before[key] == place.keys[key]:
                subject.trace.say("label %s is reserved, and existed before", key)
            else:
                yield key, place.field, place.resource

    def _violations(self, reserved: list[_ReservedKey]) -> Iterator[Violation]:
        for key, field, resource in sorted(reserved):
            meant = self._intended_key(key, resource)
            if doubt := self._doubt(key, resource):
                yield warning(
                    id="disputed",
                    reason=f"sources disagree on whether users can set label {key}",
                    field=f'{field}["{key}"]',
                    detail=doubt,
                    fix="keep the label if the platform accepts it; otherwise, remove it",
                )
                continue
            prefix, _, name = key.partition("/")
            domain = next(domain for domain in self.spec.domains if f".{prefix}".endswith(f".{domain}"))
            remove = f"remove the label, or use your own domain, such as example.com/{name}"
            yield Violation(
                id="reserved",
                reason=f"label {key} is in the reserved domain {domain}",
                field=f'{field}["{key}"]',
                detail=f"The platform rejects labels that users set in {domain} and its subdomains.",
                fix=f"did you mean {meant}? Otherwise, {remove}" if meant else remove,
            )

    def _doubt(self, key: str, resource: str) -> str:
        """Return why the platform may reject an allowed key, or an empty string."""
        doubts = (text for resources, keys, text in self.disputed if resource in resources and keys.match(key))
        return next(doubts, "")

    def _intended_key(self, key: str, resource: str) -> str:
        """Return the allowed key that the user probably meant, or an empty string."""
        allowed = self.allowed.get(resource)
        if allowed is None or len(key) > HINTED_AT_MOST:
            return ""
        hint = self.spec.hints.get(key, "")
        if hint and allowed.match(hint):
            return hint
        by_name = {pattern.partition("/")[2]: pattern for pattern in allowed.patterns if not is_glob(pattern)}
        close = difflib.get_close_matches(key.partition("/")[2], by_name, n=1, cutoff=_CLOSE)
        return by_name[close[0]] if close else ""


_GENERATED: Final = "xxxxx"
"""A placeholder for the suffix that the API server appends to a ``generateName``."""


def _claims(
    subject: Subject, providers: Mapping[str, Provider], view: ClusterView, denied: Container[str]
) -> Iterator[Violation]:
    """Yield a violation for each name (on CREATE) or label that marks the Namespace as a provider's.

    Only a provider in use owns namespaces. Skip the labels in ``denied``, which other violations deny.
    """
    metadata, before = (mapping(value, "metadata") for value in (subject.object, subject.old_object))
    labels, old_labels = mapping(metadata, "labels"), mapping(before, "labels")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{_GENERATED}"
    providers_in_play = in_play(view, providers)
    for provider in providers.values():
        owned: list[tuple[str, str]] = []
        if subject.operation == "CREATE":
            named = (glob for glob in provider.system_namespaces.names.patterns if Globs((glob,)).match(str(name)))
            owned += ((f"a name that matches {glob}", "metadata.name") for glob in named)
        owned += (
            (f"the label {label.key}: {label.value}", f'metadata.labels["{label.key}"]')
            for label in provider.system_namespaces.labels
            if labels.get(label.key) == label.value != old_labels.get(label.key) and label.key not in denied
        )
        for what, field in owned:
            if provider.name in providers_in_play:
                yield Violation(
                    id="provider-namespace",
                    reason=f"{what} is reserved for namespaces of {provider.title}",
                    field=field,
                    detail="spotgate doesn't evaluate objects in these namespaces.",
                    fix="choose another name" if field == "metadata.name" else "remove the label",
                )
            elif view.pools is None:
                yield Violation(
                    id="provider-namespace-unknown",
                    reason=f"can't tell whether {what} is reserved for namespaces of {provider.title}",
                    field=field,
                    detail=view.why_unknown,
                    fix=view.remedy,
                    unknown=True,
                )


def _compile(spec: ReservedLabelsSpec, facts: Facts) -> ReservedLabels:
    readers = readers_by_resource(facts.providers.values())
    workloads = {(workload.group, workload.resource): workload for workload in facts.workloads}
    return ReservedLabels(
        spec=spec,
        suffixes=tuple(f".{domain}" for domain in spec.domains),
        allowed=_allowed_keys(spec, facts.workloads),
        disputed=tuple((item.resources, Globs(item.labels), item.warning) for item in spec.allow if item.warning),
        providers=facts.providers,
        foreign=_foreign_domains(spec, facts.providers),
        readers=readers,
        workloads=workloads,
    )


def _foreign_domains(spec: ReservedLabelsSpec, providers: Mapping[str, Provider]) -> dict[str, tuple[str, ...]]:
    """Return, for each provider, the reserved domains that only other providers use for labels and taints."""
    domains = {f".{domain}" for domain in spec.domains}
    own: dict[str, set[str]] = {}
    for name, provider in providers.items():
        marks = (label.key for label in provider.spot_node_labels)
        keys = (*provider.pool_labels, *marks, *(taint.key for taint in provider.never_tolerate))
        prefixes = [f".{key.partition('/')[0]}" for key in keys]
        own[name] = {domain for domain in domains if any(prefix.endswith(domain) for prefix in prefixes)}
    return {name: tuple(sorted(set().union(*own.values()) - its)) for name, its in own.items()}


def _allowed_keys(spec: ReservedLabelsSpec, workloads: Iterable[Workload]) -> dict[str, Globs]:
    """Return the keys that users may set, by plural resource name."""
    allowed: dict[str, tuple[str, ...]] = {}
    for item in spec.allow:
        for resource in item.resources:
            allowed[resource] = (*allowed.get(resource, ()), *item.labels)
    # A workload usually carries the labels of its Pods.
    for resource in {workload.resource for workload in workloads}:
        allowed[resource] = (*allowed.get(resource, ()), *allowed.get(PODS, ()))
    return {resource: Globs(keys) for resource, keys in allowed.items()}


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    workloads = ((workload.group, workload.resource) for workload in facts.workloads)
    kinds = [("", PODS), *workloads, *readers_by_resource(facts.providers.values())]
    bindings = ResourceRule(api_groups=("",), resources=("bindings", "pods/binding"), operations=("CREATE",))
    return (*rules_for(kinds, "CREATE", "UPDATE"), *rules_for([("", "pods/status")], "UPDATE"), bindings)


def _lint(spec: ReservedLabelsSpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield rules that name workloads but not Pods: a rule must name Pods to evaluate pod templates."""
    rules = spec.match.resource_rules or ()
    if any(is_named(rule, "", PODS) for rule in rules):
        return
    named = {(workload.group, workload.resource) for workload in workloads}
    for number, rule in enumerate(rules):
        for place, resource in enumerate(rule.resources):
            if any(name == resource and is_named(rule, group, name) for group, name in named):
                text = f"never matches the pod templates of {resource}, only their own labels: also list pods"
                yield SpecWarning(("match", "resourceRules", number, "resources", place), text)


KIND: Final = PolicyKind(
    name="ReservedLabels",
    spec=ReservedLabelsSpec,
    compile=_compile,
    rules=_rules,
    guards_namespaces=True,
    any_size=True,
    lint=_lint,
)
