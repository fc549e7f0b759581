"""Find the node pools that are items of a list in one file: the node groups of eksctl's ClusterConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.documents import field_path
from webhook.manifests.objects import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.reader import PoolReader
    from webhook.documents import FieldPath


class ListedPool(Manifest, frozen=True):
    """A node pool as an object: ``spec`` is the item, and the namespace is the name of the object that lists it."""

    def position_of(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of a field as `written_field` names it."""
        return self.document.position(path or self.path)

    def written_field(self, field: str) -> str:
        """Return the field of the object that lists the pool."""
        item = field_path(self.path)
        if field.startswith("metadata"):
            return f"{item}.name"
        return f"{item}{field.removeprefix('spec')}" if field.startswith("spec") else item


def with_listed_pools(manifests: Iterable[Manifest], providers: Iterable[Provider]) -> list[Manifest]:
    """Return the manifests, and behind each the node pools that it lists."""
    lists: dict[tuple[str, str], list[PoolReader]] = {}
    for reader in (reader for provider in providers for reader in provider.readers):
        if reader.listed_in is not None:
            lists.setdefault((reader.group, reader.listed_in.kind), []).append(reader)
    found: list[Manifest] = []
    for manifest in manifests:
        found.append(manifest)
        for reader in lists.get((manifest.group, manifest.kind), ()):
            found += _listed(manifest, reader)
    return found


def _listed(manifest: Manifest, reader: PoolReader) -> Iterator[ListedPool]:
    field = reader.listed_in.field if reader.listed_in is not None else ""
    items = manifest.value.get(field)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        name = item.get("name") if isinstance(item, dict) else None
        value = {
            "apiVersion": manifest.api_version,
            "kind": reader.kind,
            "metadata": {"name": name if isinstance(name, str) else "", "namespace": manifest.name},
            "spec": item if isinstance(item, dict) else {},
        }
        yield ListedPool(manifest.document, (*manifest.path, field, index), manifest.api_version, reader.kind, value)
