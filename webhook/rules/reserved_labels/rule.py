"""ReservedLabels: users do not set labels in domains that belong to the platform.

Intent
    CoreWeave rejects node labels that customers put into ``*.coreweave.cloud`` and ``*.coreweave.com``, and reads a few
    of its own on Pods. Any other label in such a domain is rejected by the platform, or misspelt and without effect;
    spotgate reports both at ``kubectl apply``.
Reads
    ``metadata.labels`` of whatever resource matches, a node pool's node labels (the ``labels`` query of its reader),
    the labels of pod templates, and whatever else of a workload ends up as labels of Pods or of what it makes
    (``labels`` in ``WorkloadTemplates``). On UPDATE only what the request adds or changes; removing is always allowed.
    Objects that are being deleted are judged like any other. Of Pods, workloads and node pools also the annotations,
    for spotgate's own keys. The status of a Pod and a Binding, which put labels on the Pod as well. Of Namespaces
    the name, too (`webhook.rules.reserved_labels.namespaces`).
    A key is reserved if its prefix is a domain of the policy or ends in ``.<domain>``: ``foo.coreweave.com/bar`` is,
    ``notcoreweave.com/bar`` and ``coreweave.com`` (no prefix) are not. ``allow`` exempts keys, per resource.
    A key of ``spotgate.dev`` without effect is a warning (`webhook.rules.reserved_labels.own`).
Writes
    Nothing.
Finds
    reserved, unknown-spotgate-key, misplaced-spotgate-key, provider-namespace, provider-namespace-unknown
Source
    CoreWeave, "Workload Scheduling on CKS", user-provided labels.
"""

from __future__ import annotations

import difflib
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.base.bounds import HINTED_AT_MOST, OverBoundError
from webhook.base.globs import Globs
from webhook.capacity.providers.provider import readers_by_resource
from webhook.capacity.view import Needs
from webhook.documents import field_path
from webhook.kube.filling import mapping
from webhook.kube.pod_decoding import pod_from_template
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.model.decision import Outcome, Violation
from webhook.model.review import GroupVersionKind, MalformedObjectError
from webhook.policy.match import ResourceRule, is_namespace
from webhook.rules.concern import Concern, Keys
from webhook.rules.protocol import PolicyKind
from webhook.rules.reserved_labels.namespaces import claims
from webhook.rules.reserved_labels.own import (
    PODS,
    PREFIX,
    own_keys_of_namespace,
    own_keys_of_object,
    own_keys_of_pod,
)
from webhook.rules.reserved_labels.spec import ReservedLabelsSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.provider import Provider, ResourceReader
    from webhook.kube.templates import Workload
    from webhook.rules.context import Context
    from webhook.rules.protocol import Facts
    from webhook.rules.subject import Subject

_LABELS: Final = "metadata.labels"
_BINDING: Final = GroupVersionKind("", "v1", "Binding")

_CLOSE: Final = 0.8
"""The least similarity of two label names for a hint: ``interruptible`` and ``interruptable`` have 0.92."""


class _Found(NamedTuple):
    """Describe a reserved key that the request adds or changes."""

    key: str
    field: str
    resource: str


class ReservedLabels(msgspec.Struct, frozen=True):
    """Hold the compiled rule.

    Attributes:
        domains: the reserved domains; ``suffixes`` have a leading dot.
        allowed: plural resource name -> keys that users may set.
        hints: misspelt key -> right key.
        foreign: provider -> the domains of the policy that belong to other providers alone, each with its leading dot.
        readers: node-pool readers by API group and plural resource name, like ``workloads``.
    """

    domains: tuple[str, ...]
    suffixes: tuple[str, ...]
    allowed: Mapping[str, Globs]
    hints: Mapping[str, str]
    providers: Mapping[str, Provider]
    foreign: Mapping[str, tuple[str, ...]]
    readers: Mapping[tuple[str, str], ResourceReader]
    workloads: Mapping[tuple[str, str], Workload]

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the reserved keys and spotgate's own."""
        domains = frozenset(f"{domain}/" for domain in self.domains)
        return Concern(labels=Keys(containing=domains | {PREFIX}), annotations=Keys(containing=frozenset({PREFIX})))

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        """Return a violation for each reserved key that the request adds or changes, then for keys without effect."""
        if subject.operation == "DELETE":
            subject.trace.say("removing labels is always allowed")
            return ()
        request = subject.request
        own: Iterable[Violation]
        if request.kind == _BINDING:  # the API server copies its labels to the Pod
            found, own = (
                self._added(subject, PODS, _LABELS, mapping(subject.object or {}, "metadata", "labels"), {}),
                (),
            )
        elif subject.template or (request.resource.resource == PODS and not request.resource.group):
            old = subject.old_pod
            before = old.labels if old is not None else {}
            found = self._added(subject, PODS, _LABELS, subject.pod.labels, before)
            own = own_keys_of_pod(subject)
        else:
            found, own = self._of_object(subject)
            if is_namespace(request):
                claimed = claims(subject, self.providers, context.view, {each.key for each in found})
                own = chain(claimed, own_keys_of_namespace(subject.object or {}, subject.old_object or {}))
        if not found:
            subject.trace.say("the request adds no reserved label")
        # One by one: the engine stops asking when there are more than anybody reads.
        return chain(self._violations(found), own)

    def _of_object(self, subject: Subject) -> tuple[list[_Found], Iterable[Violation]]:
        """Return the reserved keys of an object that is no Pod, and the violations of keys without effect.

        The keys are those of its own labels, of the labels that a node pool gives its nodes, and of a workload's Pods.
        """
        kind = subject.request.resource
        key = (kind.group, kind.resource)
        value, old = subject.object or {}, subject.old_object or {}
        labels, old_labels = mapping(value, "metadata", "labels"), mapping(old, "metadata", "labels")
        found = self._added(subject, kind.resource, _LABELS, labels, old_labels)
        readers, workload = self.readers.get(key), self.workloads.get(key)
        if readers is None and workload is None:
            return found, ()
        reader = readers.of(value) if readers is not None else None
        if reader is not None and reader.labels is not None:
            given, before = mapping(reader.labels(value)), mapping(reader.labels(old))
            found += self._added(subject, kind.resource, reader.labels.field, given, before)
        if reader is not None and (foreign := self.foreign[reader.provider]):
            # CoreWeave rejects labels of its domains on its own nodes. On nodes of others its charts ask for them.
            found = [item for item in found if not f".{item.key.partition('/')[0]}".endswith(foreign)]
        if workload is not None:
            found += chain(
                self._in_workload_labels(subject, workload, value, old),
                self._in_unreadable_templates(subject, workload, value, old),
            )
        return found, own_keys_of_object(subject.request.kind.kind, workload, value, old)

    def _in_workload_labels(
        self, subject: Subject, workload: Workload, value: dict[str, Any], old: dict[str, Any]
    ) -> Iterator[_Found]:
        """Yield the reserved keys in labels that a workload gives to other objects, outside its pod templates."""
        for carried in workload.labels:
            before = {each.identity: each.value for each in carried.path.find(old)}
            places = list(islice(carried.path.find(value), TEMPLATES_AT_MOST + 1))
            if len(places) > TEMPLATES_AT_MOST and not subject.labels_only:
                reason = f"there are more than the {TEMPLATES_AT_MOST} maps of labels that are judged"
                raise OverBoundError(carried.path.text, reason)
            for each in places:
                there = before.get(each.identity, {})
                yield from self._added(subject, carried.resource, field_path(each.path), each.value, there)

    def _in_unreadable_templates(
        self, subject: Subject, workload: Workload, value: dict[str, Any], old: dict[str, Any]
    ) -> Iterator[_Found]:
        """Yield the reserved keys of templates that cannot be parsed as Pods."""
        for found in islice(workload.templates(value), TEMPLATES_AT_MOST):  # with more of them it is refused
            labels = mapping(found.value, "metadata", "labels")
            if not self._reserved(labels) or not (subject.labels_only or _is_unread(found.value)):
                continue
            there = next((each.value for each in workload.templates(old) if each.identity == found.identity), {})
            yield from self._added(subject, PODS, found.field(_LABELS), labels, mapping(there, "metadata", "labels"))

    def _reserved(self, labels: Mapping[str, Any]) -> list[str]:
        """Return the keys in reserved domains."""
        domains, suffixes = self.domains, self.suffixes
        return [
            key
            for key in labels
            if "/" in key and ((prefix := key.partition("/")[0]).endswith(suffixes) or prefix in domains)
        ]

    def _added(
        self,
        subject: Subject,
        resource: str,
        field: str,
        labels: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> list[_Found]:
        """Return the reserved keys in ``labels``, at ``field``, that are neither allowed nor the same ``before``."""
        added: list[_Found] = []
        for key in self._reserved(labels):
            if resource in self.allowed and self.allowed[resource].match(key):
                subject.trace.say("label %s is reserved, and allowed on %s", key, resource)
            elif key in before and before[key] == labels[key]:
                subject.trace.say("label %s is reserved, and was there before", key)
            else:
                added.append(_Found(key, field, resource))
        return added

    def _violations(self, found: list[_Found]) -> Iterator[Violation]:
        for key, field, resource in sorted(found):
            meant = self._intended_key(key, resource)
            prefix, _, name = key.partition("/")
            domain = next(each for each in self.domains if prefix == each or prefix.endswith(f".{each}"))
            remove = f"remove it, or use a domain of your own, e.g. example.com/{name}"
            yield Violation(
                id="reserved",
                reason=f"label {key} is in the reserved domain {domain}",
                field=f'{field}["{key}"]',
                detail=f"The platform reserves labels in {domain} and its subdomains, and rejects those that users "
                "set.",
                fix=f"did you mean {meant}? Otherwise {remove}" if meant else remove,
            )

    def _intended_key(self, key: str, resource: str) -> str:
        """Return the allowed key that was probably meant, or an empty string."""
        allowed = self.allowed.get(resource)
        if allowed is None or len(key) > HINTED_AT_MOST:
            return ""
        hint = self.hints.get(key, "")
        if hint and allowed.match(hint):
            return hint
        by_name = {each.partition("/")[2]: each for each in allowed.patterns if not set("*?[") & set(each)}
        close = difflib.get_close_matches(key.partition("/")[2], by_name, n=1, cutoff=_CLOSE)
        return by_name[close[0]] if close else ""


def _is_unread(template: dict[str, Any]) -> bool:
    try:
        pod_from_template(template, "")
    except MalformedObjectError:
        return True
    except OverBoundError:
        return False
    return False


def _compile(spec: ReservedLabelsSpec, facts: Facts) -> ReservedLabels:
    readers = readers_by_resource(facts.providers.values())
    workloads = {(workload.group, workload.resource): workload for workload in facts.workloads}
    return ReservedLabels(
        domains=spec.domains,
        suffixes=tuple(f".{domain}" for domain in spec.domains),
        allowed=_allowed_keys(spec, facts.workloads),
        hints=spec.hints,
        providers=facts.providers,
        foreign=_foreign_domains(spec, facts.providers),
        readers=readers,
        workloads=workloads,
    )


def _foreign_domains(spec: ReservedLabelsSpec, providers: Mapping[str, Provider]) -> dict[str, tuple[str, ...]]:
    """Return for each provider the reserved domains in which only other providers have labels and taints."""
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
    objects = tuple(
        ResourceRule(api_groups=(group,), resources=(resource,), operations=("CREATE", "UPDATE"))
        for group, resource in kinds
    )
    status = ResourceRule(api_groups=("",), resources=("pods/status",), operations=("UPDATE",))
    bindings = ResourceRule(api_groups=("",), resources=("bindings", "pods/binding"), operations=("CREATE",))
    return (*objects, status, bindings)


KIND: Final = PolicyKind(
    name="ReservedLabels",
    spec=ReservedLabelsSpec,
    compile=_compile,
    rules=_rules,
    needs=Needs(pools=True),
    template_outcome=Outcome.DENY,
    guards_namespaces=True,
    any_size=True,
)
