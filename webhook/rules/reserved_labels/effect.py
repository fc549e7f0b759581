"""Find entries of a ReservedLabels policy that can never take effect, when the policy is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.globs import Globs
from webhook.policy.errors import SpecError, did_you_mean
from webhook.rules.reserved_labels.own import PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.policy.match import ResourceRule
    from webhook.rules.reserved_labels.spec import ReservedLabelsSpec


def allowed_keys(
    spec: ReservedLabelsSpec, workloads: Iterable[tuple[str, str]], rules: Iterable[ResourceRule]
) -> dict[str, Globs]:
    """Return the keys that users may set, by plural resource name.

    ``workloads`` are API group and plural of the kinds with pod templates; ``rules`` the default of
    ``match.resourceRules``.

    Raises:
        SpecError: an entry of ``allow`` or ``hints`` has no effect.
    """
    declared = (name for rule in spec.match.resource_rules or () for name in rule.resources)
    looked_at = {*declared, *(name for rule in rules for name in rule.resources)}
    allowed: dict[str, tuple[str, ...]] = {}
    for number, item in enumerate(spec.allow):
        for index, key in enumerate(item.labels):
            _expect_reserved(key, spec.domains, ("allow", number, "labels", index))
        for index, resource in enumerate(item.resources):
            if looked_at.isdisjoint({"*", resource}):
                text = f"the policy never looks at {resource}{did_you_mean(resource, looked_at)}"
                raise SpecError(("allow", number, "resources", index), text)
            allowed[resource] = (*allowed.get(resource, ()), *item.labels)
    # A workload usually carries the labels of its Pods.
    for resource in {resource for _, resource in workloads}:
        allowed[resource] = (*allowed.get(resource, ()), *allowed.get(PODS, ()))
    globs = {resource: Globs(keys) for resource, keys in allowed.items()}
    _expect_given(spec.hints, spec.domains, globs.values())
    return globs


def _expect_reserved(key: str, domains: Collection[str], path: tuple[str | int, ...]) -> None:
    prefix, slash, _ = key.partition("/")
    if not (prefix in domains or prefix.endswith(tuple(f".{domain}" for domain in domains))):
        text = f"{key!r} is in none of the `domains`: it is never rejected; remove it or mend its domain"
        raise SpecError(path, text)
    if not slash:
        raise SpecError(path, f"{key!r} is a domain alone, and never rejected: write a name too, as {key}/team")


def _expect_given(hints: Mapping[str, str], domains: Collection[str], allowed: Collection[Globs]) -> None:
    for key, meant in hints.items():
        path = ("hints", key)
        _expect_reserved(key, domains, path)
        able = [each for each in allowed if each.match(meant)]
        if not able:
            raise SpecError(path, f"{meant!r} is not allowed on any resource: list it under `allow`")
        if all(each.match(key) for each in able):
            raise SpecError(path, f"{key!r} is allowed itself wherever {meant!r} is, so this is never said: remove it")
