"""List the resources that an API server serves, in two requests (aggregated discovery, Kubernetes 1.27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cluster.api import JSON_TYPE, ApiError
from webhook.kube.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LISTS: Final = ",".join(
    f"{JSON_TYPE};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
_KIND: Final = "APIGroupDiscoveryList"


class ServedResource(msgspec.Struct, frozen=True):
    """A resource in the API server's preferred version.

    Attributes:
        verbs: the supported verbs, such as list and patch.
    """

    resource: Resource
    version: str
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of the resource's objects."""
        group = self.resource.group
        return f"{group}/{self.version}" if group else self.version

    def path_in(self, namespace: str) -> str:
        """Return the API path of the resource in a namespace, or in all namespaces if ``namespace`` is empty."""
        prefix = "/apis" if self.resource.group else "/api"
        within = f"namespaces/{namespace}/" if namespace else ""
        return f"{prefix}/{self.api_version}/{within}{self.resource.plural}"

    def __str__(self) -> str:
        group = self.resource.group
        return f"{self.resource.plural}.{group}" if group else self.resource.plural


async def served_resources(fetch: Callable[[str, str], Awaitable[bytes]]) -> list[ServedResource]:
    """Return the served resources without duplicates, in the API server's order. Raise ApiError on failure."""
    resources: dict[tuple[str, str], ServedResource] = {}
    for path in ("/api", "/apis"):
        answer = msgspec.json.decode(await fetch(path, _LISTS))
        if answer.get("kind") != _KIND:
            raise ApiError(f"{path} lists no resources, because the API server is older than Kubernetes 1.27")
        for group in answer["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for item in version.get("resources", ()):
                    kind = (item.get("responseKind") or {}).get("kind", "")
                    resource = Resource(name, kind, item["resource"], item.get("scope") == "Namespaced")
                    served = ServedResource(resource, version["version"], frozenset(item.get("verbs", ())))
                    resources.setdefault((name, item["resource"]), served)
    return list(resources.values())
