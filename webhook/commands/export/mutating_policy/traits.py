"""Find the Pod traits that decide the changes: patches of a sample Pod, and values of the CEL that recognizes them."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

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

    from webhook.capacity.providers.provider import Provider
    from webhook.rules.context import Context

NOT_ASKED: Final = "n"
_ASKED: Final = {"s": SPOT, "p": SPOT_PREFERRED}
"""The letter of each capacity that a Pod or its namespace can request, as in `variables.yaml`."""

_PLATFORMS: Final = ((OS_LABEL, "linux"), (ARCH_LABEL, "amd64"), (ARCH_LABEL, "arm64"))
_NOT_ZERO: Final = "^[-+0.]*[1-9]"

Samples: TypeAlias = dict[str, JSON]
"""JSON merge patches of a sample Pod by key part."""


class Traits(NamedTuple):
    """The traits that distinguish Pods in a cluster.

    Attributes:
        accelerators: the resources of accelerators.
        taints: the taints that a Pod can tolerate, each with its number in the key.
        samples: the samples of each trait, in the order of the key: the requested capacity, the only label of the node
            selector, the named pool, the requested accelerator, and the tolerated taint.
        values: the values of `variables.yaml` that recognize the traits, as CEL.
    """

    accelerators: list[str]
    taints: list[JSON]
    samples: tuple[Samples, ...]
    values: dict[str, str]


def traits_of(context: Context, providers: Mapping[str, Provider], named: Iterable[str]) -> Traits:
    """Return the traits that distinguish Pods in this cluster. ``named`` lists the providers that policies name."""
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
    selectable = dict.fromkeys([*(item for item in labels if item[0] in supply.telling), *_PLATFORMS])
    names_of_pools = list(dict.fromkeys(pools))
    tolerations = {
        taint: wanted
        for taint in dict.fromkeys(taints)
        if taint.effect in HARD_EFFECTS and (wanted := toleration_for(taint)) is not None
    }
    samples: tuple[Samples, ...] = (
        {NOT_ASKED: {}}
        | {letter: {"metadata": {"labels": {CAPACITY_LABEL: capacity}}} for letter, capacity in _ASKED.items()},
        _samples({"spec": {"nodeSelector": {key: value}}} for key, value in selectable),
        _samples({"metadata": {"annotations": {NODE_POOL_ANNOTATION: name}}} for name in names_of_pools),
        _samples({"spec": {"containers": [_container(name)]}} for name in accelerators),
        _samples({"spec": {"tolerations": [as_json(wanted)]}} for wanted in tolerations.values()),
    )
    values = {
        "labels": literal({f"{key}={value}": str(number) for number, (key, value) in enumerate(selectable)}),
        "pools": literal({name: str(number) for number, name in enumerate(names_of_pools)} or {"": ""}),
        "requests": " + ".join(map(_requests, count(), accelerators)) or "[]",
    }
    tolerated = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect, "number": str(number)}
        for number, taint in enumerate(tolerations)
    ]
    return Traits(accelerators, tolerated, samples, values)


def _samples(patches: Iterable[JSON]) -> Samples:
    """Return the patches by number, after that of a Pod without the trait."""
    return {"": {}, **{str(number): patch for number, patch in enumerate(patches)}}


def _container(resource: str) -> JSON:
    return {"name": "main", "image": "image", "resources": {"limits": {resource: "1"}}}


def _requests(number: int, resource: str) -> str:
    """Return an expression for a list with the number of the resource if a container requests more than zero of it."""
    amounts = (f"each.?resources.?{member}[?{quoted(resource)}].orValue('0')" for member in ("limits", "requests"))
    more = " || ".join(f"string({amount}).matches({quoted(_NOT_ZERO)})" for amount in amounts)
    return f"(variables.containers.exists(each, {more}) ? [{quoted(str(number))}] : [])"
