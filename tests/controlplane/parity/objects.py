"""The objects of objects.yaml, in their namespace."""

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
    """One of each kind, by the name `defaulted`; those without a namespace are cluster-scoped."""
    cluster_scoped = {"ClusterRoleBinding", "CSIDriver", "IngressClass", "Namespace", "PersistentVolume"}
    cluster_scoped |= {"PriorityClass", "RuntimeClass", "StorageClass"}
    for thing in yaml.safe_load_all(_OBJECTS.read_text()):
        namespace = {} if thing["kind"] in cluster_scoped else {"namespace": PLAIN}
        yield {**thing, "metadata": {"name": "defaulted", **namespace}}
