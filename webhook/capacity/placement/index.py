"""Combine the facts of all providers that the placement of a Pod needs, once for each bundle."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.caching import identity_cache
from webhook.base.globs import Globs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.kube.affinity import Term

_BUNDLES: Final = 4
"""Cached indexes: that of the latest bundle, and those of requests in progress."""


class ProviderIndex(msgspec.Struct, frozen=True, eq=False):
    """The facts of all providers.

    Attributes:
        shares: the resource of which a Pod requests a part, by annotation.
        accelerators: the resources of all accelerators.
        device_classes: their device classes.
        schedulers: the schedulers whose Pods spotgate doesn't change.
        selectors: the node labels by which Pods select that spotgate doesn't change.
        by_spot_label: the providers by the keys of their spot labels.
    """

    shares: dict[str, str]
    accelerators: Globs
    device_classes: Globs
    schedulers: Globs
    selectors: frozenset[str]
    by_spot_label: dict[str, list[Provider]]

    def demanded(self, terms: tuple[Term, ...]) -> tuple[Provider, ...]:
        """Return the providers whose spot labels the terms demand. Return an empty tuple unless each demands one."""
        by_term = [
            [
                provider
                for key in {need.key for need in term.requirements}
                for provider in self.by_spot_label.get(key, ())
                if demands_spot(term, provider)
            ]
            for term in terms
        ]
        demanded = {provider.name: provider for group in by_term for provider in group}
        return tuple(demanded.values()) if all(by_term) else ()


@identity_cache(maxsize=_BUNDLES)
def index_of(providers: Mapping[str, Provider]) -> ProviderIndex:
    """Return the index of these providers."""
    every = providers.values()
    by_label: dict[str, list[Provider]] = {}
    for provider in every:
        for key in provider.spot_values:
            by_label.setdefault(key, []).append(provider)
    return ProviderIndex(
        shares={key: resource for provider in every for key, resource in provider.gpu.annotations.items()},
        accelerators=Globs(dict.fromkeys(chain.from_iterable(of.gpu.resources.patterns for of in every))),
        device_classes=Globs(dict.fromkeys(chain.from_iterable(of.gpu.device_classes.patterns for of in every))),
        schedulers=Globs(chain.from_iterable(of.hands_off_schedulers.patterns for of in every)),
        selectors=frozenset(chain.from_iterable(of.hands_off_selectors for of in every)),
        by_spot_label=by_label,
    )


def demands_spot(term: Term, provider: Provider) -> bool:
    """Return whether the term demands a spot label of this provider, and so admits only spot nodes."""
    for label in provider.spot_node_labels:
        for need in term.requirements:
            if need.key != label.key:
                continue
            if need.operator == "Exists" and label.spot_only:
                return True
            values = set(need.values or ())
            only_spot = label.spot_only or values <= provider.spot_values[label.key]
            if need.operator == "In" and label.value in values and only_spot:
                return True
    return False
