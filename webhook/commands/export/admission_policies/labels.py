"""Export `ReservedLabels`: one policy for each set of label fields."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final, cast

import msgspec

from webhook.base.globs import Globs
from webhook.capacity.providers.provider import readers_by_resource
from webhook.commands.export.admission_policies.matching import WRITES, ExportedPolicy, Part, exemption, templates_of
from webhook.policy.match import ResourceRule
from webhook.registration.cel import JSON, Fields, any_glob_matches, literal, quoted, selects
from webhook.rules.reserved_labels.places import PODS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.rules.reserved_labels.rule import ReservedLabels

_OWN_LABELS: Final = "metadata.labels"


class _Place(msgspec.Struct, frozen=True):
    """A field with labels, and the reserved keys that it allows."""

    field: str
    allowed: tuple[str, ...]


_Groups = dict[tuple[int, tuple[_Place, ...]], list[tuple[str, ResourceRule]]]
"""(sort, places) -> the resources with labels there, each with its rule."""

_OBJECTS, _NAMESPACES, _TEMPLATES = range(3)
"""The sorts of parts: labels of objects, of Namespaces, and of pod templates."""


def parts(exported: ExportedPolicy) -> Iterator[Part]:
    """Yield parts for the labels of objects, then for those of pod templates."""
    exported.leave_out((), "spotgate.dev keys without effect aren't checked: they only cause warnings")
    if cast("ReservedLabels", exported.policy.validator).disputed:
        exported.leave_out(("allow",), "labels with a `warning` are admitted without one")
    groups: _Groups = {}
    for rule in exported.policy.rules:
        for group, path in product(rule.api_groups, rule.resources):
            _add(exported, groups, rule, group, path)
    system = [glob for cloud in exported.bundle.providers.values() for glob in cloud.system_namespaces.names.patterns]
    if system and any(sort == _NAMESPACES for sort, _ in groups):
        why = f"names of namespaces in {', '.join(system)} are admitted: Kubernetes doesn't know the cluster's provider"
        exported.leave_out((), why)
    allowed = _allowed(exported, PODS)
    for workload in exported.bundle.index.workloads.values() if exported.policy.judges_templates() else ():
        places = tuple(_Place(f"{path.metadata}.labels", allowed) for path in workload.paths)
        groups.setdefault((_TEMPLATES, places), []).append(templates_of(workload))
    if any("*" in place.field for _, places in groups for place in places):
        exported.leave_out((), "labels in lists or maps, such as those of a RayCluster's worker groups, are left out")
    for (sort, places), named in sorted(groups.items(), key=lambda group: group[0][0]):
        (name, *_), rules = zip(*named, strict=True)
        yield _part(exported, name, places, list(rules), sort)


def _add(exported: ExportedPolicy, groups: _Groups, rule: ResourceRule, group: str, path: str) -> None:
    """Add one resource of one rule to its group."""
    resource, _, subresource = path.partition("/")
    operations = tuple(operation for operation in WRITES if {operation, "*"} & set(rule.operations))
    if group == "*":
        why = f"{path} of all API groups: the label fields depend on the resource; name the groups"
        exported.leave_out(("match", "resourceRules"), why)
        return
    readers = readers_by_resource(exported.bundle.providers.values()).get((group, resource))
    if not operations or (readers is not None and not readers.any.served):
        return
    sort = _NAMESPACES if (group, resource) == ("", "namespaces") else _OBJECTS
    name = ".".join(filter(None, (resource, subresource.replace("*", "all"), group)))
    narrow = msgspec.structs.replace(rule, api_groups=(group,), resources=(path,), operations=operations)
    groups.setdefault((sort, tuple(_places(exported, group, resource))), []).append((name, narrow))


def _places(exported: ExportedPolicy, group: str, resource: str) -> Iterator[_Place]:
    """Yield the places where objects of a resource have labels, except pod templates."""
    index = exported.bundle.index
    allowed = _allowed(exported, resource)
    yield _Place(_OWN_LABELS, allowed)
    if (group, resource) == ("", PODS):
        return
    if readers := readers_by_resource(index.providers.values()).get((group, resource)):
        queries = {reader.labels.text: reader.labels for reader in readers.readers if reader.labels is not None}
        for text, query in queries.items():
            if query.plain and len(queries) == 1:
                yield _Place(text, allowed)
            else:
                exported.leave_out((), f"labels that {resource} of {group} give their nodes: {text} is no plain field")
    workload = index.workloads.get((group, resource))
    for carried in workload.labels if workload is not None else ():
        yield _Place(carried.path.text, _allowed(exported, carried.resource))


def _allowed(exported: ExportedPolicy, resource: str) -> tuple[str, ...]:
    """Return the globs of the keys that a resource allows."""
    allowed = cast("ReservedLabels", exported.policy.validator).allowed
    resource = PODS if resource == "bindings" else resource
    return allowed[resource].patterns if resource in allowed else ()


def _part(
    exported: ExportedPolicy, name: str, places: tuple[_Place, ...], rules: list[ResourceRule], sort: int
) -> Part:
    fields = Fields()
    added: dict[str, str] = {}
    validations: list[JSON] = []
    for number, place in enumerate(places, start=1):
        if "*" in place.field:
            continue
        tail = f"_{number}" if len(places) > 1 else ""
        path = place.field.split(".")
        added[f"labels{tail}"], added[f"before{tail}"] = fields.map(path), fields.map(path, old=True)
        judged = f"variables.labels{tail}"
        added[f"added{tail}"] = f"{judged}.filter(key, {_reserved(exported, place, tail, template=sort == _TEMPLATES)})"
        validations.append(_validation(exported, place, f"variables.added{tail}"))
    return Part(
        name=name,
        rules=rules,
        validations=validations,
        variables={**fields.variables, **added},
        template_labels=None if sort == _TEMPLATES else "",
        guards_namespaces=sort == _NAMESPACES,
    )


def _reserved(exported: ExportedPolicy, place: _Place, tail: str, *, template: bool) -> str:
    """Return an expression that is true if the label is reserved, not allowed, and new or changed.

    The labels of a template also decide whether a policy selects or exempts it.
    """
    labels = f"variables.labels{tail}"
    domains = "|".join(map(re.escape, exported.spec.domains))
    tests = [f"key.matches({quoted(f'^([^/]*[.])?({domains})/')})"]
    tests += [f"!({any_glob_matches('key', place.allowed)})"] if place.allowed else []
    tests.append(f"variables.before{tail}[?key].orValue(null) != {labels}[key]")
    if template:
        selector = exported.spec.match.object_selector
        tests += [f"({selects(selector, labels)})"] if selector is not None else []
        tests += [f"!({exemption(spec, labels)})" for spec in exported.exempt if spec.object_selector is not None]
    return " && ".join(tests)


def _validation(exported: ExportedPolicy, place: _Place, added: str) -> JSON:
    domains = ", ".join(exported.spec.domains)
    key = f"{added}.min()"
    problem = f"'label ' + {key} + {quoted(f' is in a reserved domain ({domains}), at {place.field}: ')}"
    rest = "remove it, or use your own domain"
    allowed = Globs(place.allowed)
    hints = {word: f"did you mean {meant}?" for word, meant in exported.spec.hints.items() if allowed.match(meant)}
    hint = f"{literal(hints)}[?{key}].orValue({quoted(rest)})" if hints else quoted(rest)
    return {
        "expression": f"{added}.size() == 0",
        "message": f"a label at {place.field} is in a reserved domain ({domains}): {rest}",
        "messageExpression": f"{problem} + {hint}",
        "reason": "Forbidden",
    }
