"""Define the kinds of objects that a rehearsal loads, and their paths in the API and in etcd."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from webhook.documents import Document
from webhook.inputs.objects import Manifest
from webhook.kube.pod import Pod, PodSpec, Resources
from webhook.kube.quantity import amount_of
from webhook.kube.resources import Resource, resource_of

if TYPE_CHECKING:
    from collections.abc import Mapping


JSON: TypeAlias = dict[str, Any]
GroupKind: TypeAlias = tuple[str, str]


class RehearsedKind(Resource, frozen=True):
    """A kind of object that a rehearsal loads."""

    @property
    def api_version(self) -> str:
        """Return the API version that a rehearsal reads."""
        return f"{self.group}/v1" if self.group else "v1"

    def key(self, metadata: Mapping[str, Any]) -> str:
        """Return the etcd key of the object with this metadata."""
        where = f"{metadata['namespace']}/" if self.namespaced else ""
        return f"/registry/{_FOLDERS.get(self.kind, self.plural)}/{where}{metadata['name']}"

    def collection(self, api_version: str, namespace: str) -> str:
        """Return the API path of the objects in a namespace."""
        prefix = f"/apis/{api_version}" if self.group else f"/api/{api_version}"
        return f"{prefix}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{prefix}/{self.plural}"


_FOLDERS: Final = {"Node": "minions", "ReplicationController": "controllers"}
"""The folders of objects in etcd that don't have the name of the resource."""


def _kind(group: str, kind: str) -> RehearsedKind:
    return msgspec.convert(resource_of(group, kind), RehearsedKind, from_attributes=True)


# In order of creation: referenced kinds come first.
KINDS: Final = (
    NAMESPACE := _kind("", "Namespace"),
    NODE := _kind("", "Node"),
    _kind("scheduling.k8s.io", "PriorityClass"),
    _kind("node.k8s.io", "RuntimeClass"),
    LIMIT_RANGE := _kind("", "LimitRange"),  # the API server sets its defaults in new Pods
    QUOTA := _kind("", "ResourceQuota"),
    STORAGE_CLASS := _kind("storage.k8s.io", "StorageClass"),
    _kind("storage.k8s.io", "CSINode"),
    _kind("", "PersistentVolume"),
    CLAIM := _kind("", "PersistentVolumeClaim"),
    _kind("resource.k8s.io", "DeviceClass"),
    _kind("resource.k8s.io", "ResourceSlice"),
    _kind("resource.k8s.io", "ResourceClaim"),
    _kind("resource.k8s.io", "ResourceClaimTemplate"),
    BUDGET := _kind("policy", "PodDisruptionBudget"),
    DEPLOYMENT := _kind("apps", "Deployment"),
    STATEFUL_SET := _kind("apps", "StatefulSet"),
    DAEMON_SET := _kind("apps", "DaemonSet"),
    REPLICA_SET := _kind("apps", "ReplicaSet"),
    REPLICATION_CONTROLLER := _kind("", "ReplicationController"),
    JOB := _kind("batch", "Job"),
    POD := _kind("", "Pod"),
)
BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}
POD_OWNERS: Final = (REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, JOB)
"""The kinds whose controllers create a number of Pods."""

CONTROLLED_HERE: Final = frozenset({REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, DAEMON_SET})
"""The kinds of owners whose controllers always replace a lost Pod. The Job controller may give up."""


def group_kind_of(value: Mapping[str, Any]) -> GroupKind:
    """Return the API group and kind of an object or an owner reference."""
    return value.get("apiVersion", "").rpartition("/")[0], value.get("kind", "")


def kind_of_object(value: Mapping[str, Any]) -> RehearsedKind | None:
    """Return the kind of an object, or None if a rehearsal doesn't load this kind."""
    return BY_NAME.get(group_kind_of(value))


def controller_of(value: Mapping[str, Any]) -> JSON | None:
    """Return the owner reference of the object's controller, or None."""
    return next((owner for owner in value["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def manifest_of(where: str, value: JSON) -> Manifest:
    """Return an object as a manifest. ``where`` describes its origin instead of a file name."""
    return Manifest(Document(file=where, line=0, value=None, source=""), (), value["apiVersion"], value["kind"], value)


def template_of(value: Mapping[str, Any] | None) -> Pod:
    """Return the Pod, or a workload's pod template. Return an empty Pod if there is none."""
    template = value or {}
    if template.get("kind") != POD.kind:
        template = (template.get("spec") or {}).get("template") or {}
    return msgspec.convert(template, Pod)


def requests_of(spec: PodSpec) -> Counter[str]:
    """Return the resource requests of a Pod, in whole units or bytes. A limit is the default of a request.

    Pod-level requests replace the sum over the containers; pod-level limits only add missing resources.
    Source: PodRequests in k8s.io/component-helpers/resource, and defaultPodRequests in pkg/apis/core/v1/defaults.go.
    """
    total: Counter[str] = Counter()
    for container in spec.containers:
        resources = container.resources or Resources()
        for resource, amount in {**(resources.limits or {}), **(resources.requests or {})}.items():
            total[resource] += _number(amount)
    own = spec.resources or Resources()
    for resource, amount in (own.limits or {}).items():
        total.setdefault(resource, _number(amount))
    for resource, amount in (own.requests or {}).items():
        total[resource] = _number(amount)
    return total


def _number(amount: str | float) -> int:
    return float(amount_of(amount) or 0)  # type: ignore[return-value]


def workload_identity(value: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the kind, namespace, and name of an object."""
    metadata = value["metadata"]
    return value["kind"], metadata.get("namespace", ""), metadata["name"]
