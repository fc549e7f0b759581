"""The objects of objects.yaml, each in its namespace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.controlplane.parity.corpus import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

_OBJECTS = Path(__file__).with_name("objects.yaml")


def objects() -> Iterator[JSON]:
    """Yield an object of each kind, named `defaulted`; cluster-scoped ones have no namespace."""
    cluster_scoped = {"ClusterRoleBinding", "CSIDriver", "IngressClass", "Namespace", "PersistentVolume"}
    cluster_scoped |= {"PriorityClass", "RuntimeClass", "StorageClass"}
    for thing in yaml.safe_load_all(_OBJECTS.read_text()):
        namespace = {} if thing["kind"] in cluster_scoped else {"namespace": PLAIN}
        yield {**thing, "metadata": {"name": "defaulted", **namespace}}
