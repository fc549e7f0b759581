"""System namespaces, in which no policy changes or denies anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.globs import Globs
from webhook.kube.affinity import Tristate
from webhook.policy.match import is_namespace, namespace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.model.review import Request

SYSTEM_NAMESPACES: Final = ("kube-system", "kube-node-lease")
"""Namespaces that no policy affects: a webhook that blocks them would block the recovery of the cluster."""


class SystemNamespaces:
    """The namespaces of Kubernetes, of spotgate, and of the providers in use.

    Attributes:
        names: the namespaces of Kubernetes and spotgate.
    """

    def __init__(self, providers: Mapping[str, Provider], own_namespace: str) -> None:
        self.names = Globs((*SYSTEM_NAMESPACES, own_namespace))
        self._owners = [
            provider
            for provider in providers.values()
            if provider.system_namespaces.names or provider.system_namespaces.labels
        ]

    def contains(self, namespace: str, view: ClusterView) -> Tristate:
        """Return whether the namespace is a system namespace; unknown if it depends on node pools that are unknown."""
        if not namespace:
            return Tristate.NO
        if self.names.match(namespace):
            return Tristate.YES
        labels = view.namespaces.get(namespace) or {}
        owners = {provider.name for provider in self._owners if provider.owns_namespace(namespace, labels)}
        if not owners:
            return Tristate.NO
        if owners & view.providers:
            return Tristate.YES
        return Tristate.NO if view.pools is not None else Tristate.UNKNOWN

    def contains_object(self, request: Request, view: ClusterView) -> bool:
        """Return whether the object of a request is in a system namespace."""
        in_system = self.contains(namespace_of(request) or "", view) is Tristate.YES
        return in_system and not self.may_be_provider_namespace(request)

    def may_be_provider_namespace(self, request: Request) -> bool:
        """Return whether the object is a Namespace that can be a system namespace only as a provider's.

        Policies decide who can create these Namespaces, so the Namespace object itself is not exempt.
        """
        return is_namespace(request) and not self.names.match(namespace_of(request) or "")
