"""ReservedLabels: labels that users may not set, because their domain belongs to the platform.

Intent
    CoreWeave rejects node labels that customers put into ``*.coreweave.cloud`` and ``*.coreweave.com``, and reads a few
    of its own on Pods. A label in such a domain that is not one of those is rejected by the platform, or misspelt and
    silently without effect; both are better said at ``kubectl apply``.
Reads
    ``metadata.labels`` of whatever resource matches, a node pool's node labels (the ``labels`` query of its reader) and
    the labels of pod templates. On UPDATE only what the request adds or changes; removing is always allowed. Objects
    that are being deleted are judged like any other.
Writes
    Nothing.
Values
    A key is reserved where its prefix is a domain of the policy or ends in ``.<domain>``: ``foo.coreweave.com/bar`` is,
    ``notcoreweave.com/bar`` and ``coreweave.com`` (no prefix) are not. ``allow`` takes keys out, per resource.
Source
    CoreWeave, "Workload Scheduling on CKS", user-provided labels.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pydantic import AfterValidator, Field

from webhook.capacity.provider import readers_by_resource
from webhook.decision import Outcome, Violation
from webhook.globs import Globs
from webhook.policy.common import Glob, Model, NonEmpty, PolicySpec, SpecError
from webhook.rules.protocol import PolicyKind, ResourceRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.reader import PoolReader
    from webhook.context import Context
    from webhook.rules.protocol import Facts, Subject

PODS: Final = "pods"
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_CLOSE: Final = 0.8
"""How alike two label names must be for a hint: ``interruptible`` and ``interruptable`` are (0.92)."""


def _check_domain(text: str) -> str:
    if not _DOMAIN.fullmatch(text):
        raise ValueError(
            f"{text!r} is no domain: write it alone, as coreweave.com; what is below it is reserved with it"
        )
    return text


class AllowedLabelsSpec(Model):
    """Labels that users may set although their domain is reserved."""

    resources: tuple[NonEmpty, ...] = Field(
        min_length=1, description="Plural resource names; 'pods' are pod templates and their workloads, too."
    )
    labels: tuple[Glob, ...] = Field(min_length=1, description="Label keys (globs).")


class ReservedLabelsSpec(PolicySpec):
    """Rejects user-provided labels in reserved domains."""

    domains: tuple[Annotated[str, AfterValidator(_check_domain)], ...] = Field(
        min_length=1,
        description="Reserved domains. A key is reserved when its prefix is the domain or a subdomain of it.",
    )
    allow: tuple[AllowedLabelsSpec, ...] = Field(default=(), description="What may be set all the same.")
    hints: dict[NonEmpty, NonEmpty] = Field(
        default={}, description="Typical misspellings: misspelt key -> right key. Similar keys are found without."
    )


class ReservedLabels(msgspec.Struct, frozen=True):
    """The rule, compiled.

    Attributes:
        domains: as written; ``suffixes`` the same with a leading dot.
        allowed: plural resource name -> keys that may be set.
        hints: misspelt key -> right key.
        readers: node-pool readers by API group and plural resource name.
    """

    domains: tuple[str, ...]
    suffixes: tuple[str, ...]
    allowed: Mapping[str, Globs]
    hints: Mapping[str, str]
    readers: Mapping[tuple[str, str], PoolReader]

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:  # noqa: ARG002 - labels say it all
        """One violation for each reserved label that the request adds or changes, by key."""
        if subject.operation == "DELETE":
            subject.trace.say("removing labels is always allowed")
            return ()
        kind = subject.request.resource
        if subject.template or (kind.resource == PODS and not kind.group):
            resource, old = PODS, subject.old_pod
            added = self._added(subject, PODS, subject.pod.labels, old.labels if old is not None else {})
            found = [(key, "metadata.labels") for key in added]
        else:
            resource, found = kind.resource, self._added_to_object(subject)
        if not found:
            subject.trace.say("the request adds no reserved label")
        # One by one: the engine stops asking when there are more than anybody reads.
        return (self._violation(key, field, resource) for key, field in sorted(found))

    def _added_to_object(self, subject: Subject) -> list[tuple[str, str]]:
        """Key and field of each: in an object's own labels, and in those that a node pool gives its nodes."""
        kind = subject.request.resource
        value, old_value = subject.object or {}, subject.old_object or {}
        labels, old_labels = _metadata_labels(value), _metadata_labels(old_value)
        found = [(key, "metadata.labels") for key in self._added(subject, kind.resource, labels, old_labels)]
        reader = self.readers.get((kind.group, kind.resource))
        if reader is not None and reader.labels is not None:
            labels, old_labels = _mapping(reader.labels(value)), _mapping(reader.labels(old_value))
            found += [(key, reader.labels.text) for key in self._added(subject, kind.resource, labels, old_labels)]
        return found

    def _added(
        self, subject: Subject, resource: str, labels: Mapping[str, Any], before: Mapping[str, Any]
    ) -> list[str]:
        """The reserved keys in ``labels`` that are neither allowed nor the same ``before``."""
        domains, suffixes = self.domains, self.suffixes
        added: list[str] = []
        for key, value in labels.items():
            prefix, slash, _ = key.partition("/")
            if not slash or not (prefix.endswith(suffixes) or prefix in domains):
                continue
            if resource in self.allowed and self.allowed[resource].match(key):
                subject.trace.say("label %s is reserved, and allowed on %s", key, resource)
            elif key in before and before[key] == value:
                subject.trace.say("label %s is reserved, and was there before", key)
            else:
                added.append(key)
        return added

    def _violation(self, key: str, field: str, resource: str) -> Violation:
        prefix, _, name = key.partition("/")
        domain = next(each for each in self.domains if prefix == each or prefix.endswith(f".{each}"))
        meant = self._meant(key, name, resource)
        remove = f"remove it, or use a domain of your own, e.g. example.com/{name}"
        return Violation(
            reason=f"label {key} is in the reserved domain {domain}",
            field=f'{field}["{key}"]',
            detail=f"Labels in {domain} and its subdomains belong to the platform, which rejects those that users set.",
            fix=f"did you mean {meant}? Otherwise {remove}" if meant else remove,
        )

    def _meant(self, key: str, name: str, resource: str) -> str:
        """The allowed key that was probably meant; empty when there is none."""
        allowed = self.allowed.get(resource)
        if allowed is None:
            return ""
        hint = self.hints.get(key, "")
        if hint and allowed.match(hint):
            return hint
        by_name = {each.partition("/")[2]: each for each in allowed.patterns if not set("*?[") & set(each)}
        close = difflib.get_close_matches(name, by_name, n=1, cutoff=_CLOSE)
        return by_name[close[0]] if close else ""


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _metadata_labels(value: Mapping[str, Any]) -> dict[str, Any]:
    return _mapping(_mapping(value.get("metadata")).get("labels"))


def _compile(spec: ReservedLabelsSpec, facts: Facts) -> ReservedLabels:
    suffixes = tuple(f".{domain}" for domain in spec.domains)

    def refuse_unreserved(key: str, path: tuple[str | int, ...]) -> None:
        prefix = key.partition("/")[0]
        if not (prefix in spec.domains or prefix.endswith(suffixes)):
            raise SpecError(
                path, f"{key!r} is in none of the `domains`: it is never rejected; remove it or mend its domain"
            )

    allowed: dict[str, tuple[str, ...]] = {}
    for number, item in enumerate(spec.allow):
        for index, key in enumerate(item.labels):
            refuse_unreserved(key, ("allow", number, "labels", index))
        for resource in item.resources:
            allowed[resource] = (*allowed.get(resource, ()), *item.labels)
    # A workload usually carries the labels of its Pods.
    for resource in {workload.resource for workload in facts.workloads}:
        allowed[resource] = (*allowed.get(resource, ()), *allowed.get(PODS, ()))
    globs = {resource: Globs(keys) for resource, keys in allowed.items()}
    for key, meant in spec.hints.items():
        refuse_unreserved(key, ("hints", key))
        if not any(each.match(meant) for each in globs.values()):
            raise SpecError(("hints", key), f"{meant!r} is not allowed on any resource: list it under `allow`")
    readers = readers_by_resource(facts.providers.values())
    return ReservedLabels(spec.domains, suffixes, globs, spec.hints, readers)


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    workloads = ((workload.group, workload.resource) for workload in facts.workloads)
    kinds = [("", PODS), *workloads, *readers_by_resource(facts.providers.values())]
    return tuple(
        ResourceRule(api_groups=(group,), resources=(resource,), operations=("CREATE", "UPDATE"))
        for group, resource in kinds
    )


KIND: Final = PolicyKind(
    name="ReservedLabels",
    spec=ReservedLabelsSpec,
    compile=_compile,
    rules=_rules,
    template_outcome=Outcome.DENY,
)
