"""Collect what a Pod says about its node, and resolve the names in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.own_nodes import with_pools_of_nodes
from webhook.capacity.providers.nodes import HOSTNAME_LABEL
from webhook.kube.affinity import ANYWHERE, REQUIRED, Term, preferences_of, required_of, terms_of
from webhook.kube.containers import quantities_of
from webhook.kube.references import bound_volumes, claimed_classes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod

NODE_POOL_ANNOTATION: Final = "spotgate.dev/node-pool"

_encoder: Final = msgspec.json.Encoder()


class PodConstraints(msgspec.Struct, frozen=True, eq=False):
    """The constraints of a Pod on its node.

    Attributes:
        terms: its nodeSelector and required affinity.
        preferences: its preferred affinity.
        named: the pool that its annotation names.
    """

    pod: Pod
    terms: tuple[Term, ...]
    preferences: tuple[Term, ...]
    named: str | None

    @classmethod
    def of(cls, pod: Pod) -> PodConstraints:
        """Return the constraints of a Pod."""
        return cls(pod, terms_of(pod.spec), preferences_of(pod.spec), pod.annotations.get(NODE_POOL_ANNOTATION))

    @property
    def selects(self) -> bool:
        """Return whether the Pod has a nodeSelector or a required node affinity."""
        return self.terms is not ANYWHERE

    @property
    def field(self) -> str:
        """Return the field in which the Pod selects its nodes."""
        if self.named is not None:
            return f'metadata.annotations["{NODE_POOL_ANNOTATION}"]'
        if self.pod.spec.nodeSelector:
            return "spec.nodeSelector"
        return REQUIRED if self.selects else "spec.tolerations"

    def first_key(self, keys: Collection[str]) -> str:
        """Return the first of these label keys by which the Pod selects nodes, or an empty string."""
        needs = (need for term in self.terms for need in term.requirements)
        return next((need.key for need in needs if need.key in keys), "")

    def kind(self) -> bytes:
        """Encode the constraints and the requests, so that equal Pods share one answer."""
        spec = self.pod.spec
        chosen = (spec.nodeSelector, spec.affinity, spec.tolerations, spec.os)
        return _encoder.encode((self.named, quantities_of(spec), *chosen))

    def meaning(
        self, namespace: str, view: ClusterView, providers: Mapping[str, Provider], shares: Mapping[str, str]
    ) -> Meaning:
        """Return the meaning of the names in a cluster. ``shares``: the shared resource by annotation."""
        spec, annotations = self.pod.spec, self.pod.annotations
        may_name = HOSTNAME_LABEL in (spec.nodeSelector or ()) or required_of(spec) is not None
        has_parts = not shares.keys().isdisjoint(annotations)
        if not (may_name or has_parts or spec.resourceClaims or (spec.volumes and view.references)):
            return _PLAIN
        return Meaning(
            with_pools_of_nodes(self.terms, view.nodes, providers) if may_name else None,
            claimed_classes(spec, namespace, view.references),
            frozenset(resource for key, resource in shares.items() if key in annotations),
            tuple(
                (name, with_pools_of_nodes(affinity, view.nodes, providers) or affinity)
                for name, affinity in bound_volumes(spec, namespace, view.references)
            ),
        )


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of a Pod's names in a cluster.

    Attributes:
        terms: its constraints, if they name Nodes: see `with_pools_of_nodes`.
        classes: the device classes of its claims; None if unknown.
        shared: the accelerators of which it requests a part.
        volumes: its bound volumes, each with its node affinity.
    """

    terms: tuple[Term, ...] | None = None
    classes: frozenset[str] | None = frozenset()
    shared: frozenset[str] = frozenset()
    volumes: tuple[tuple[str, tuple[Term, ...]], ...] = ()


_PLAIN: Final = Meaning()
