"""Read a kind of node pool, and write an on-demand pool of that kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.providers.pool_fields import PoolFields
from webhook.capacity.providers.pool_parser import PoolParser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.query import Query

_BOOLEANS: Final[Mapping[str, object]] = {"true": True, "false": False}
"""Values of boolean fields, by the text that a document has for them."""


class PoolReader(PoolFields, frozen=True, kw_only=True):
    """Read the node pools of one kind."""

    def read(self, value: Mapping[str, Any]) -> Pool:
        """Return the pool that a resource of this kind declares. Never raise for its contents."""
        return PoolParser(self, value).pool()

    def on_demand_manifest(
        self, *, name: str, namespace: str, instance_type: str, maximum: int
    ) -> dict[str, Any] | None:
        """Return the manifest of an on-demand pool, which the autoscaler, if there is one, fills from zero.

        Return None if the provider's document does not say plainly enough how such a pool is written, or if
        ``instance_type`` names several types.
        """
        if self.listed_in is not None:
            return None
        sized: list[tuple[Query | None, object]] = [(self.desired, maximum)]
        if self.autoscaling is not None and self.maximum is not None:
            sized = [(self.autoscaling, True), (self.maximum, maximum), (self.desired, 0)]
        on_demand = _BOOLEANS.get(self.capacity.on_demand.casefold(), self.capacity.on_demand)
        fields = [(self.capacity.query, on_demand), (self.instance_type, instance_type), *sized]
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        manifest: dict[str, Any] = {
            "apiVersion": f"{self.group}/{self.versions[0]}",
            "kind": self.kind,
            "metadata": metadata,
        }
        for query, value in fields:
            if query is None:
                continue
            if value == "" or not query.plain or self.capacity.label or ", " in instance_type:
                return None
            *parents, last = query.text.split(".")
            place = manifest
            for parent in parents:
                if not isinstance(place.get(parent), dict):
                    place[parent] = {}  # A document may name a map as the flag that holds the maximum.
                place = place[parent]
            place[last] = value
        return manifest
