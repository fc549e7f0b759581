"""Which cluster a pool describes: by a name below a namespace, or by the provider's own path of it.

Config Connector, Azure Service Operator and others let one cluster be named in two ways: ``prod`` in namespace
``infra``, and ``projects/p/locations/l/clusters/prod``. Two paths tell clusters apart; a path and a name are one
cluster where the path ends with that name and both pools are in one namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool


def cluster_of(written: str, namespace: str, this: str) -> tuple[str, str]:
    """The cluster that is written so: its name, below its namespace, and its path. Both empty: this one.

    Args:
        written: its name, or the provider's path of it (also as a URL).
        namespace: of that name; empty: it has none.
        this: how the cluster that the policies are for is written; empty: no pool describes it.
    """
    path = _path(written) if "/" in written else ""
    short = path.rpartition("/")[2] or written
    name = f"{namespace}/{short}" if namespace else short
    if this and (this in {short, name} or (path and "/" in this and _same_path(path, _path(this)))):
        return "", ""
    return name, path


def same_cluster(pool: Pool, other: Pool) -> bool:
    """Are both in one cluster, as far as they say?"""
    if pool.cluster_path and other.cluster_path:
        return _same_path(pool.cluster_path, other.cluster_path)
    return pool.cluster == other.cluster


def _path(written: str) -> str:
    return "/".join(filter(None, written.casefold().split("/")))


def _same_path(one: str, other: str) -> bool:
    """One of them may be a URL, which has more before it."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")
