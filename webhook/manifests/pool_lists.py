"""Find the node pools that are items of a list in one file: the node groups of eksctl's ClusterConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.documents import described, field_path
from webhook.manifests.objects import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.reader import PoolReader
    from webhook.documents import FieldPath
    from webhook.policy.errors import Problem


class ListedPool(Manifest, frozen=True):
    """Show a node pool as an object: ``spec`` is the item, and the namespace the name of the object that lists it."""

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
    lists = _lists(providers)
    found: list[Manifest] = []
    for manifest in manifests:
        found.append(manifest)
        for reader, field in lists.get((manifest.group, manifest.kind), ()):
            found += _listed(manifest, reader, field)
    return found


def list_problems(manifests: Iterable[Manifest], providers: Iterable[Provider]) -> Iterator[Problem]:
    """Yield the problems with lists that are none, and with items of which no pool can be made."""
    lists = _lists(providers)
    for manifest in manifests:
        for _, field in lists.get((manifest.group, manifest.kind), ()):
            items = manifest.value.get(field)
            if not isinstance(items, list | None):
                yield manifest.problem((field,), f"expected a list, got {described(items)}")
                continue
            for index, item in enumerate(items or ()):
                if not isinstance(item, dict):
                    yield manifest.problem((field, index), f"expected a map, got {described(item)}")


def _lists(providers: Iterable[Provider]) -> dict[tuple[str, str], list[tuple[PoolReader, str]]]:
    """Return the readers of listed pools, each with the field of the list, by API group and kind of what lists them."""
    lists: dict[tuple[str, str], list[tuple[PoolReader, str]]] = {}
    for reader in (reader for provider in providers for reader in provider.readers):
        if (listed := reader.listed_in) is not None:
            lists.setdefault((reader.group, listed.kind), []).append((reader, listed.field))
    return lists


def _listed(manifest: Manifest, reader: PoolReader, field: str) -> Iterator[ListedPool]:
    items = manifest.value.get(field)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict):
            continue
        name = item.get("name")
        value = {
            "apiVersion": manifest.api_version,
            "kind": reader.kind,
            "metadata": {"name": name if isinstance(name, str) else "", "namespace": manifest.name},
            "spec": item,
        }
        yield ListedPool(manifest.document, (*manifest.path, field, index), manifest.api_version, reader.kind, value)
