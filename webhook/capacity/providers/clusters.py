"""Find which cluster a node pool describes, by a name within a namespace or by the provider's own path.

Config Connector, Azure Service Operator and others let one cluster be named in two ways: ``prod`` in namespace
``infra``, and ``projects/p/locations/l/clusters/prod``. Two paths tell clusters apart; a path and a name are one
cluster if the path ends with that name and both pools are in one namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool


def cluster_of(written: str, namespace: str, this: str) -> tuple[str, str]:
    """Return the namespaced name and the path of a cluster. Return empty strings for this cluster.

    The cluster is ``written`` as a name or as the provider's path (also as a URL), and so is ``this`` cluster.
    """
    path = _path(written) if "/" in written else ""
    short = path.rpartition("/")[2] or written
    name = f"{namespace}/{short}" if namespace else short
    if this and (this in {short, name} or (path and "/" in this and _same_path(path, _path(this)))):
        return "", ""
    return name, path


def same_cluster(pool: Pool, other: Pool) -> bool:
    """Return whether both pools are in one cluster, as far as they say."""
    if pool.cluster_path and other.cluster_path:
        return _same_path(pool.cluster_path, other.cluster_path)
    return pool.cluster == other.cluster


def assume_here(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """Return the pools as those of this cluster if all of them describe one and the same cluster.

    Files that describe one cluster, and are used to judge objects, describe the cluster of these objects.
    """
    named = [each for each in pools if not each.chosen_by]
    if not named or not all(each.cluster and each.provider == named[0].provider for each in named):
        return pools
    most = max(named, key=lambda each: bool(each.cluster_path))
    if not all(same_cluster(most, each) for each in named):
        return pools
    return tuple(replace(each, assumed_here=bool(each.cluster)) for each in pools)


def _path(written: str) -> str:
    return "/".join(filter(None, written.casefold().split("/")))


def _same_path(one: str, other: str) -> bool:
    """Return whether two paths name one cluster. One of them may be a URL, which has more at its beginning."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")
