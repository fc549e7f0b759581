"""Export `match`, `exempt`, and `breakGlass` as constraints and conditions of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.globs import Globs, is_glob
from webhook.engine.enforcement import BUILT_IN_CONTROLLERS, NEVER_DENIED
from webhook.model.decision import Outcome
from webhook.policy.document import EXEMPTION, PolicyDocument
from webhook.policy.match import SAME_OBJECT, SERVICE_ACCOUNT, ResourceRule
from webhook.policy.terms import BREAK_GLASS
from webhook.registration.cel import JSON, any_glob_matches, literal, quoted, selects
from webhook.registration.configurations import NO_MIRROR_PODS, without_system_namespaces
from webhook.report.report import alike, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.kube.templates import Workload
    from webhook.policy.common import ExemptSpec, LabelSelectorSpec
    from webhook.policy.errors import Problem

LABELS_OF_OBJECT: Final = "(object == null ? oldObject : object).?metadata.?labels.orValue({})"
_ANNOTATIONS: Final = "(object == null ? oldObject : object).?metadata.?annotations"
_NAMESPACE: Final = "request.?namespace.orValue('')"
_NAME: Final = "request.?name.orValue('')"
_GROUPS: Final = "request.userInfo.?groups.orValue([])"
_USER: Final = "request.userInfo.username"
_HAS_ITS_OBJECT: Final = f"request.?subResource.orValue('') in {literal(sorted(SAME_OBJECT))}"
WRITES: Final = ("CREATE", "UPDATE")
OWN: Final = "spotgate.dev/"
"""The name prefix of spotgate's conditions."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a policy that becomes one ValidatingAdmissionPolicy.

    Attributes:
        name: the name suffix, such as ``pods`` or ``templates.deployments.apps``.
        conditions: conditions of this part, before those of every policy; name -> expression.
        template_labels: the labels of the evaluated pod template. Empty: the part evaluates the object. None: its
            expressions evaluate label selectors.
        guards_namespaces: whether it evaluates Namespaces, including those with a provider's system labels.
    """

    name: str
    rules: list[ResourceRule]
    validations: list[JSON] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    template_labels: str | None = ""
    guards_namespaces: bool = False


class ExportedPolicy:
    """A policy to export, with the fields that Kubernetes can't express, and today's exemptions."""

    def __init__(self, bundle: Bundle, policy: Policy, document: PolicyDocument, today: date) -> None:
        self.bundle = bundle
        self.policy = policy
        self.document = document
        self.spec: Any = document.spec
        self.left_out: list[Problem] = []
        self.exempt = [spec for spec in self._entries(today) if spec.expires is None or spec.expires >= today]

    def leave_out(self, path: tuple[str | int, ...], why: str) -> None:
        """Record that a field of ``spec`` is omitted, and why. () is the whole ``spec``."""
        problem = self.document.problem(("spec", *path) if path else (), why)
        self.left_out.append(replace(problem, text=f"{self.policy.name}: {why}"))

    def _entries(self, today: date) -> Iterator[ExemptSpec]:
        """Yield all exemptions. One with an expiry date applies until the next export: it must not expire too early."""
        shared = [document for document in self.bundle.documents if document.kind == EXEMPTION]
        for document, path, spec in (
            *((self.document, ("spec", "exempt", number), spec) for number, spec in enumerate(self.spec.exempt)),
            *((entry, ("spec",), entry.spec) for entry in shared if Globs(entry.spec.policies).match(self.policy.name)),
        ):
            if spec.expires is not None and spec.expires >= today:
                until = "until you export again: Kubernetes has no clock"
                why = f"the exemption applies after {spec.expires}, {until}"
                self.left_out.append(document.problem((*path, "expires"), f"{self.policy.name}: {why}"))
            yield spec

    def leave_out_matches(self) -> None:
        """Record the parts of `match` that are exported in a narrower form: system namespaces and versions."""
        if any("*" not in rule.api_versions for rule in self.policy.rules):
            self.leave_out(
                ("match", "resourceRules"), "requests in other `apiVersions` are not converted, and admitted"
            )
        for number, glob in enumerate(self.spec.match.namespaces.include):
            if self.bundle.index.system_namespaces.names.match(glob):
                path = ("match", "namespaces", "include", number)
                self.leave_out(path, f"{glob} is a system namespace, which spotgate skips")

    def constraints(self, part: Part) -> JSON:
        """Return ``matchConstraints`` without the system namespaces, as in the webhook configurations."""
        match = self.spec.match
        namespaces = without_system_namespaces(self.bundle)
        if not part.guards_namespaces:
            # Exclude those of all providers: Kubernetes doesn't know the cluster's provider.
            labels = (label for cloud in self.bundle.providers.values() for label in cloud.system_namespaces.labels)
            namespaces["matchExpressions"] += [
                {"key": key, "operator": "NotIn", "values": list(dict.fromkeys(label.value for label in same))}
                for key, same in alike(labels, lambda label: label.key).items()
            ]
        if match.namespace_selector is not None:
            own = _as_selector(match.namespace_selector)
            expressions = [*own.pop("matchExpressions", []), *namespaces["matchExpressions"]]
            namespaces = {**own, "matchExpressions": expressions}
        constraints: JSON = {
            # Other policies may match other versions; the API server must not convert those requests for this policy.
            "matchPolicy": "Equivalent" if all("*" in rule.api_versions for rule in part.rules) else "Exact",
            "resourceRules": [_as_rule(rule) for rule in _merged(part.rules)],
            "namespaceSelector": namespaces,
        }
        if self.policy.exclude:
            # Exclude all versions, as with `Equivalent`, because `matchPolicy` may be `Exact`.
            excluded = [replace(rule, api_versions=("*",)) for rule in self.policy.exclude]
            constraints["excludeResourceRules"] = [_as_rule(rule) for rule in excluded]
        if match.object_selector is not None and part.template_labels == "":
            constraints["objectSelector"] = _as_selector(match.object_selector)
        return constraints

    def conditions(self, part: Part) -> dict[str, str]:
        """Return ``matchConditions`` for namespaces, exemptions, and break-glass."""
        conditions = chain(self._conditions(part), self._exemptions(part))
        return part.conditions | {f"{OWN}{name}": text for name, text in conditions}

    def _conditions(self, part: Part) -> Iterator[tuple[str, str]]:
        given, prefix = self.spec.match.namespaces, f"{_NAMESPACE} == '' || "
        if given.include:
            yield "include", prefix + any_glob_matches(_NAMESPACE, given.include)
        if given.exclude:
            yield "exclude", f"{prefix}!({any_glob_matches(_NAMESPACE, given.exclude)})"
        system = [glob for cloud in self.bundle.providers.values() for glob in cloud.system_namespaces.names.patterns]
        if system and not part.guards_namespaces:
            yield "no-system-namespaces", f"!({any_glob_matches(_NAMESPACE, system)})"
        resources = {path.partition("/")[0] for rule in part.rules for path in rule.resources}
        if "pods" in resources:
            yield NO_MIRROR_PODS["name"], NO_MIRROR_PODS["expression"]
        if "namespaces" in resources:
            yield "named", "request.resource.resource != 'namespaces' || has(request.namespace)"
        selector = self.spec.match.object_selector
        if selector is not None and part.template_labels:
            yield "object-selector", selects(selector, part.template_labels)
        if part.validations and self.policy.enforcement is Outcome.DENY:  # spotgate lowers denials for these users
            users = NEVER_DENIED if self.policy.controller_denies else NEVER_DENIED | BUILT_IN_CONTROLLERS
            yield "no-controllers", f"!({any_glob_matches(_USER, sorted(users))})"
            if self.policy.break_glass:
                reason = f"{_ANNOTATIONS}[?{quoted(BREAK_GLASS)}].orValue('').trim()"
                groups = any_glob_matches("group", self.policy.break_glass.patterns)
                yield "break-glass", f"{reason} == '' || !{_GROUPS}.exists(group, {groups})"

    def _exemptions(self, part: Part) -> Iterator[tuple[str, str]]:
        labels = LABELS_OF_OBJECT if part.template_labels == "" else part.template_labels
        # Whether the part evaluates subresources whose object isn't the resource's object.
        others = any(path.partition("/")[2] not in SAME_OBJECT for rule in part.rules for path in rule.resources)
        for number, spec in enumerate(self.exempt, start=1):
            if spec.object_selector is None or labels is not None:
                of_object = f"{_HAS_ITS_OBJECT} && " if spec.object_selector is not None and others else ""
                yield f"exempt-{number}", f"!({of_object}{exemption(spec, labels or '')})"


def templates_of(workload: Workload) -> tuple[str, ResourceRule]:
    """Return the name of the part for a workload's pod templates, and the rule that matches the workload."""
    rule = ResourceRule(api_groups=(workload.group,), resources=(workload.resource,), operations=WRITES)
    return ".".join(filter(None, ("templates", workload.resource, workload.group))), rule


def exported_policies(bundle: Bundle, today: date) -> Iterator[ExportedPolicy]:
    """Yield the policies to export, ordered by kind and name."""
    documents = {document.name: document for document in bundle.documents if document.is_policy}
    for policy in sorted(bundle.policies, key=lambda policy: (policy.kind.name, policy.name)):
        yield ExportedPolicy(bundle, policy, documents[policy.name], today)


def exemption(spec: ExemptSpec, labels: str) -> str:
    """Return an expression that is true if the exemption applies to the request and these labels."""
    parts = []
    if spec.users:
        parts.append(any_glob_matches(_USER, spec.users))
    if spec.groups:
        parts.append(f"{_GROUPS}.exists(group, {any_glob_matches('group', spec.groups)})")
    if spec.service_accounts:
        if any(map(is_glob, spec.service_accounts)):  # a glob also matches ':'
            parts.append(f"{_USER}.split(':').size() == 4")
        parts.append(any_glob_matches(_USER, [f"{SERVICE_ACCOUNT}{account}" for account in spec.service_accounts]))
    if spec.namespaces:
        parts.append(f"{_NAMESPACE} != '' && {any_glob_matches(_NAMESPACE, spec.namespaces)}")
    if spec.names:
        parts.append(f"{_NAME} != '' && {any_glob_matches(_NAME, spec.names)}")
    if spec.object_selector is not None:
        parts.append(selects(spec.object_selector, labels))
    return " && ".join(parts)


def _as_rule(rule: ResourceRule) -> JSON:
    """Return one of ``resourceRules`` with the API server's defaults: otherwise every apply changes it."""
    names = tuple(dict.fromkeys(rule.resource_names))  # Kubernetes rejects duplicates
    return without_empty(msgspec.to_builtins(replace(rule, resource_names=names)))


def _merged(rules: Iterable[ResourceRule]) -> Iterator[ResourceRule]:
    """Merge rules that differ only in their resources."""
    for rule, same in alike(rules, lambda rule: replace(rule, resources=())).items():
        yield replace(rule, resources=tuple(dict.fromkeys(path for rule in same for path in rule.resources)))


def _as_selector(spec: LabelSelectorSpec) -> JSON:
    expressions = [without_empty(msgspec.to_builtins(item)) for item in spec.match_expressions]
    return without_empty({"matchLabels": spec.match_labels, "matchExpressions": expressions})
