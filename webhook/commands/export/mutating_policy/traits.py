"""Declare the Pod traits that decide the changes, each as CEL that recognizes it and as patches of a sample Pod."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.base.globs import is_glob
from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT, SPOT_PREFERRED
from webhook.kube.containers import ARCH_LABEL, OS_LABEL
from webhook.kube.edit import as_json
from webhook.kube.tolerations import HARD_EFFECTS, toleration_for
from webhook.registration.cel import JSON, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.pool import Taint
    from webhook.capacity.providers.provider import Provider
    from webhook.rules.context import Context

NOT_ASKED: Final = "n"
_ASKED: Final = {"s": SPOT, "p": SPOT_PREFERRED}
"""The letter of each capacity that a Pod or its namespace can request."""

_NO_SHAPE: Final = "x"
"""A key part that no table contains."""

_PLATFORMS: Final = ((OS_LABEL, "linux"), (ARCH_LABEL, "amd64"), (ARCH_LABEL, "arm64"))
_NOT_ZERO: Final = "^[-+0.]*[1-9]"

_EFFECT: Final = "each.?effect.orValue('')"
_OPERATOR: Final = "each.?operator.orValue('')"
_KEY: Final = "each.?key.orValue('')"
_VALUE: Final = "each.?value.orValue('')"
_EQUALS: Final = f"({_OPERATOR} == '' || {_OPERATOR} == 'Equal')"

# As in `webhook.kube.tolerations`: whether `each` covers the wanted toleration, and whether it tolerates the taint.
COVERS: Final = (
    f"({_EFFECT} == '' || {_EFFECT} == wanted.effect) && !has(each.tolerationSeconds) && "
    f"({_OPERATOR} == 'Exists' ? ({_KEY} == '' || {_KEY} == wanted.key) : "
    f"{_EQUALS} && wanted.operator == 'Equal' && {_KEY} == wanted.key && {_VALUE} == wanted.?value.orValue(''))"
)
_TOLERATES: Final = (
    f"({_EFFECT} == '' || {_EFFECT} == taint.effect) && "
    f"({_OPERATOR} == 'Exists' ? ({_KEY} == '' || {_KEY} == taint.key) : "
    f"{_EQUALS} && {_KEY} == taint.key && {_VALUE} == taint.value)"
)


class Trait(NamedTuple):
    """One trait of Pods.

    Attributes:
        variables: CEL by name. Each one follows the variables that it reads. The trait's variable is its key part.
        samples: JSON merge patches of a sample Pod by key part.
    """

    variables: dict[str, str]
    samples: dict[str, JSON]


def traits_of(
    context: Context, providers: Mapping[str, Provider], named: Iterable[str]
) -> tuple[list[Trait], list[str]]:
    """Return the traits that distinguish Pods in this cluster, in the order of the key, and the accelerators.

    The traits are the requested capacity, the only label of the node selector, the named pool, the requested
    accelerator, and the tolerated taint. ``named`` lists the providers that policies name.
    """
    supply = supply_of(context.view, providers)
    names = in_play(context.view, providers).union(named) & providers.keys() or set(providers)
    unseen = supply.unseen(names)
    labels = chain.from_iterable(nodes.labels.items() for nodes in (*supply.spot, *unseen))
    pools = (name for nodes in supply.spot if nodes.pool for name in (nodes.pool.name, nodes.pool.pool_name) if name)
    taints = (
        taint for nodes in (*supply.spot, *unseen) for taint in (*nodes.dedicated, *nodes.guards, *nodes.platform)
    )
    globs = dict.fromkeys(glob for provider in providers.values() for glob in provider.gpu.resources.patterns)
    accelerators = [
        glob for glob in globs if not is_glob(glob) and any(providers[name].gpu.resources.match(glob) for name in names)
    ]
    traits = [
        _asked(),
        _selected(dict.fromkeys([*(item for item in labels if item[0] in supply.telling), *_PLATFORMS])),
        _named(dict.fromkeys(pools)),
        _requested(accelerators),
        _tolerated(dict.fromkeys(taint for taint in taints if taint.effect in HARD_EFFECTS)),
    ]
    return traits, accelerators


def _asked() -> Trait:
    label, letters = quoted(CAPACITY_LABEL), literal({capacity: letter for letter, capacity in _ASKED.items()})
    inherited = f"namespaceObject.?metadata.?labels[?{label}].orValue('')"
    asked = (
        f"{label} in variables.labels ? {letters}[?variables.labels[{label}]].orValue({quoted(_NO_SHAPE)}) : "
        f"{letters}[?{inherited}].orValue({quoted(NOT_ASKED)})"
    )
    samples = {letter: {"metadata": {"labels": {CAPACITY_LABEL: capacity}}} for letter, capacity in _ASKED.items()}
    return Trait({"asked": asked}, {NOT_ASKED: {}, **samples})


def _selected(labels: Iterable[tuple[str, str]]) -> Trait:
    numbers = {f"{key}={value}": str(number) for number, (key, value) in enumerate(labels)}
    selected = (
        f"variables.selector.size() == 0 ? '' : variables.selector.size() > 1 ? {quoted(_NO_SHAPE)} : "
        f"{literal(numbers)}[?variables.selector.map(key, key + '=' + variables.selector[key])[0]]"
        f".orValue({quoted(_NO_SHAPE)})"
    )
    return Trait({"selected": selected}, _samples({"spec": {"nodeSelector": {key: value}}} for key, value in labels))


def _named(names: Iterable[str]) -> Trait:
    annotation = quoted(NODE_POOL_ANNOTATION)
    numbers = {name: str(number) for number, name in enumerate(names)} or {"": ""}
    named = (
        f"!({annotation} in variables.annotations) ? '' : "
        f"{literal(numbers)}[?variables.annotations[{annotation}]].orValue({quoted(_NO_SHAPE)})"
    )
    silent = f"variables.asked == {quoted(NOT_ASKED)} && variables.selected == '' && variables.named == ''"
    samples = _samples({"metadata": {"annotations": {NODE_POOL_ANNOTATION: name}}} for name in names)
    return Trait({"named": named, "silent": silent}, samples)


def _requested(resources: Iterable[str]) -> Trait:
    listed = []
    for number, name in enumerate(resources):
        amounts = (f"each.?resources.?{member}[?{quoted(name)}].orValue('0')" for member in ("limits", "requests"))
        requests = " || ".join(map(more_than_zero, amounts))
        listed.append(f"(variables.containers.exists(each, {requests}) ? [{quoted(str(number))}] : [])")
    variables = {"requests": " + ".join(listed) or "[]", "requested": _only("variables.requests")}
    containers = ({"name": "main", "image": "image", "resources": {"limits": {name: "1"}}} for name in resources)
    return Trait(variables, _samples({"spec": {"containers": [container]}} for container in containers))


def _tolerated(taints: Iterable[Taint]) -> Trait:
    tolerations = {taint: wanted for taint in taints if (wanted := toleration_for(taint)) is not None}
    known = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect, "number": str(number)}
        for number, taint in enumerate(tolerations)
    ]
    opening = (
        f"{literal(known)}.filter(taint, variables.tolerations.exists(each, {_TOLERATES})).map(taint, taint.number)"
    )
    variables = {"opening": opening if known else "[]", "tolerated": _only("variables.opening")}
    return Trait(variables, _samples({"spec": {"tolerations": [as_json(wanted)]}} for wanted in tolerations.values()))


def _samples(patches: Iterable[JSON]) -> dict[str, JSON]:
    """Return the patches by number, after that of a Pod without the trait."""
    return {"": {}, **{str(number): patch for number, patch in enumerate(patches)}}


def _only(numbers: str) -> str:
    """Return an expression for the only item of a list: empty for an empty list, and no shape for several items."""
    return f"{numbers}.size() == 0 ? '' : {numbers}.size() > 1 ? {quoted(_NO_SHAPE)} : string({numbers}[0])"


def more_than_zero(quantity: str) -> str:
    """Return an expression that is true if the quantity is more than zero."""
    return f"string({quantity}).matches({quoted(_NOT_ZERO)})"
