"""Builders of objects for tests: manifests of workloads and node pools, pools as readers return them, and reviews of Pods.

The builders of manifests add `spec` to the spec of the Pod or the node pool.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import jsonpatch
import msgspec

from tests.rules.conftest import owned_by, shipped_provider, with_fields
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.schema import SpotLabelSpec, SpotTaintSpec
from webhook.capacity.view import ClusterView
from webhook.engine.bundle import load_bundle
from webhook.engine.call import decide_call, respond_to_call
from webhook.engine.engine import decide
from webhook.kube.defaults import default_pod, default_tolerations
from webhook.kube.layouts import Layout
from webhook.kube.pod_decoding import decode_pod
from webhook.model.review import decode_review
from webhook.rules.context import ASSUMED_VERSION, Context, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.requirements import Requirements
    from webhook.kube.pod import Pod
    from webhook.kube.templates import TemplatePath
    from webhook.model.decision import Decision

JSON = dict[str, Any]

BUNDLE: Final = load_bundle()
NAMESPACE: Final = "team-a"
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)

SPOT_NODES = {"example.com/capacity": "spot"}

# The fields that place a Pod on the spot nodes of pools.yaml.
SPOT = {"nodeSelector": SPOT_NODES, "tolerations": [{"key": "example.com/spot", "operator": "Exists"}]}


def pod_spec(gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """Return the spec of a Pod with one container."""
    container: dict[str, Any] = {"name": "main", "image": "registry.example.com/app:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [container], **spec}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a bare Pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(**spec)}


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """Return a Deployment."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def labeled(workload: JSON, labels: dict[str, str], annotations: dict[str, str] | None = None) -> JSON:
    """Set labels and annotations on the Pods of a workload, and return it."""
    owner = workload if workload["kind"] == "Pod" else workload["spec"]["template"]
    metadata = owner.setdefault("metadata", {})
    metadata["labels"] = metadata.get("labels", {}) | labels
    metadata["annotations"] = annotations or {}
    return workload


def embedded(path: str, value: Any) -> JSON:
    """Return an object named x with a value at a path such as ``spec.tasks[*].template``."""
    for segment in reversed(path.split(".")):
        name = segment.removesuffix("[*]")
        value = {"Worker" if name == "*" else name: value if name == segment else [value]}
    return {"metadata": {"name": "x"}, **value}


def workload_at(path: TemplatePath, pod: JSON) -> JSON:
    """Return an object that creates this Pod, without its kind. A path without a pod template may lack some fields."""
    layout, metadata, spec = path.layout or Layout(), pod.get("metadata", {}), dict(pod["spec"])
    spec_path = ".".join((path.text, *map(str, layout.spec)))
    value: JSON = {}
    if layout.containers:
        value = embedded(".".join((spec_path, *map(str, layout.containers[0]))), spec.pop("containers")[0])
    if layout.metadata is not None or any(source.metadata is not None for source in layout.inherits):
        labels = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        value = merged(value, embedded(path.metadata, labels))
    return cast("JSON", merged(value, embedded(spec_path, spec)))


def merged(one: Any, other: Any) -> Any:
    """Return both values in one. The other's fields take precedence."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: merged(one[key], value) if key in one else value for key, value in other.items()}}
    return [merged(*pair) for pair in zip(one, other, strict=True)] if isinstance(one, list) else other


def job(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Job with one Pod, which is never retried."""
    template = {"spec": pod_spec(restartPolicy="Never", **spec)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def node_pool(name: str, **spec: Any) -> dict[str, Any]:
    """Return a CKS NodePool, by default with two on-demand H100 nodes."""
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2, **spec},
    }


def karpenter_pool(name: str, capacity: str, family: str) -> dict[str, Any]:
    """Return a Karpenter NodePool on AWS."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [family]},
    ]
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": node_class, "requirements": requirements}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


CKS = shipped_provider("cks")
POOL_LABEL = CKS.pool_name_label

# Shaped like GKE, Karpenter, and EKS, so that tests of providers other than CKS don't depend on the shipped documents.
GKE = with_fields(
    CKS,
    name="gke",
    title="GKE",
    pool_name_label="cloud.google.com/gke-nodepool",
    spot_node_labels=(
        SpotLabelSpec(key="cloud.google.com/gke-spot", value="true"),
        SpotLabelSpec(key="cloud.google.com/gke-provisioning", value="spot"),
    ),
    spot_node_taints=(SpotTaintSpec(key="cloud.google.com/gke-spot", value="true", effect="NoSchedule"),),
    node_pools=(),
)
KARPENTER = with_fields(
    CKS,
    name="karpenter",
    title="Karpenter",
    pool_name_label="karpenter.sh/nodepool",
    spot_node_labels=(SpotLabelSpec(key="karpenter.sh/capacity-type", value="spot"),),
    spot_node_taints=(),
    node_pools=(),
)
EKS = with_fields(
    CKS,
    name="eks",
    title="EKS",
    pool_name_label="eks.amazonaws.com/nodegroup",
    spot_node_labels=(SpotLabelSpec(key="eks.amazonaws.com/capacityType", value="SPOT"),),
    spot_node_taints=(),
    node_pools=(),
)

ONLY_CKS: Mapping[str, Provider] = {"cks": CKS}
ALL: Mapping[str, Provider] = {provider.name: provider for provider in (CKS, EKS, GKE, KARPENTER)}

GPU_TYPE = "gd-8xh100ib-i128"
CPU_TYPE = "cd-gp-a192-genoa"


def cks_pool(
    name: str,
    *,
    spot: bool = True,
    gpu: bool = True,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    instance_type: str = "",
    **metadata: Any,
) -> Pool:
    """Return a CKS node pool; taints are written ``key=value:Effect``."""
    (reader,) = CKS.readers
    spec = {
        "computeClass": "spot" if spot else "default",
        "instanceType": instance_type or (GPU_TYPE if gpu else CPU_TYPE),
        "targetNodes": 2,
        "nodeLabels": labels or {},
        "nodeTaints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in map(taint, taints)],
    }
    return reader.read({"metadata": {"name": name, **metadata}, "spec": spec})


def pool_of(name: str, capacity: CapacityType = CapacityType.SPOT, **fields: Any) -> Pool:
    """Return a node pool as a reader could return it, by default of CKS."""
    return Pool(**{"provider": "cks", "kind": "NodePool", "name": name, "capacity": capacity, **fields})


def other_pool(
    provider: Provider,
    name: str,
    *,
    capacity: CapacityType = CapacityType.SPOT,
    gpu: Gpu = Gpu.ANY,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    cluster: str = "",
    requirements: Requirements | None = None,
) -> Pool:
    """Return a node pool of a provider whose reader isn't used."""
    return pool_of(
        name,
        capacity,
        provider=provider.name,
        pool_name=name,
        gpu=gpu,
        labels={**(labels or {}), provider.pool_name_label: name},
        taints=tuple(map(taint, taints)),
        cluster=cluster,
        requirements=requirements,
    )


def taint(text: str) -> Taint:
    """Return a taint from ``key=value:Effect`` or ``key:Effect``."""
    key, _, effect = text.rpartition(":")
    key, _, value = key.partition("=")
    return Taint(key, value, effect)


def view_of(
    *pools: Pool, shown: tuple[str, ...] = (), spot_shown: tuple[str, ...] = (), namespace: dict[str, str] | None = None
) -> ClusterView:
    """Return a cluster with these pools, Nodes of the providers in ``shown``, and spot Nodes of those in ``spot_shown``."""
    return ClusterView(
        pools=pools,
        providers=frozenset((*shown, *spot_shown, *(pool.provider for pool in pools if not pool.cluster))),
        spot_providers=frozenset(spot_shown),
        namespaces={NAMESPACE: namespace or {}},
    )


def cluster(pools: list[JSON], namespace_labels: JSON) -> ClusterView:
    """Return a CKS cluster with these node pools and one namespace."""
    (reader,) = BUNDLE.providers["cks"].readers
    return ClusterView(
        pools=tuple(map(reader.read, pools)), providers=frozenset({"cks"}), namespaces={NAMESPACE: namespace_labels}
    )


def expression(key: str, operator: str, *values: str) -> JSON:
    """Return a label requirement, as in node selectors and Karpenter NodePools."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def pod_of(
    *,
    labels: dict[str, str] | None = None,
    named: str | None = None,
    gpu: bool = False,
    selector: dict[str, str] | None = None,
    terms: list[list[dict[str, Any]]] | None = None,
    owner: str = "",
    **spec: Any,
) -> Pod:
    """Return a Pod as rules see it; each term is a list of match expressions."""
    metadata: dict[str, Any] = {"name": "pod", "labels": labels or {}}
    if named is not None:
        metadata["annotations"] = {"spotgate.dev/node-pool": named}
    if owner:
        metadata["ownerReferences"] = owned_by(owner, "apps/v1")
    if selector is not None:
        spec["nodeSelector"] = selector
    if terms is not None:
        required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    container = {"name": "app", "resources": {"limits": {"nvidia.com/gpu": "8"}} if gpu else {}}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": {"containers": [container], **spec}}))


def defaulted(pod: JSON) -> JSON:
    """Return a copy of a Pod with the API server's defaults, as a webhook receives it."""
    copy: JSON = json.loads(json.dumps(pod))
    default_pod(copy)
    default_tolerations(copy)
    return copy


def review(
    value: Any,
    resource: str = "pods",
    *,
    kind: str = "X",
    operation: str = "CREATE",
    user: str = "alice@acme.example",
    old: Any = None,
    subresource: str = "",
    name: str = "x",
    namespace: str = NAMESPACE,
    **more: Any,
) -> bytes:
    """Return an AdmissionReview; the resource is ``group/plural``, or the plural alone; ``more`` are fields of the request."""
    group, _, plural = resource.rpartition("/")
    namespaced = plural not in {"nodes", "nodepools"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": plural},
        "subResource": subresource,
        "name": name,
        "namespace": namespace if namespaced else "",
        "operation": operation,
        "userInfo": {"username": user, "groups": ["acme:developers", "system:authenticated"]},
        "object": value,
        "oldObject": old,
        **more,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def decided(body: bytes, phase: Phase, view: ClusterView, **fields: Any) -> Decision:
    """Return the shipped policies' decision on a review; ``fields`` are fields of the context."""
    context = Context(phase=phase, now=NOW, **fields).seeing(view, ASSUMED_VERSION)
    decision = decide(decode_review(body), BUNDLE.index, context)
    assert not decision.failures
    return decision


def answered(body: bytes, phase: Phase, view: ClusterView) -> bytes:
    """Return the shipped policies' answer to a review."""
    context = Context(phase=phase, now=NOW).seeing(view, ASSUMED_VERSION)
    decided = decide_call(decode_review(body), BUNDLE, context)
    assert not any(decision.failures for _, decision, _ in decided)
    return respond_to_call(decided)


def response(body: bytes, phase: Phase, view: ClusterView) -> JSON:
    """Return the ``response`` of the answer to a review."""
    answer: JSON = json.loads(answered(body, phase, view))["response"]
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A Pod's admission in both phases, as in an API server.

    Attributes:
        before: the Pod before the patch.
        after: the Pod after the patch.
        patch: the patch of the mutating webhook.
        validation: the response of the validating webhook to the patched Pod.
        view: the view of the cluster.
    """

    before: JSON
    after: JSON
    patch: list[JSON]
    validation: JSON
    view: ClusterView

    @classmethod
    def of(cls, pod: JSON, pools: list[JSON], namespace_labels: JSON) -> Admission:
        """Send a Pod through both phases."""
        view = cluster(pools, namespace_labels)
        mutation = response(review(pod), Phase.MUTATE, view)
        patch: list[JSON] = json.loads(base64.b64decode(mutation["patch"])) if "patch" in mutation else []
        after = jsonpatch.apply_patch(pod, patch)
        validation = response(review(after), Phase.VALIDATE, view)
        return cls(before=pod, after=after, patch=patch, validation=validation, view=view)

    @property
    def grace(self) -> int:
        """The final grace period, in seconds."""
        seconds: int = self.after["spec"]["terminationGracePeriodSeconds"]
        return seconds

    @property
    def findings(self) -> str:
        """The findings of spot placement, from the audit annotation."""
        text: str = self.validation.get("auditAnnotations", {}).get("spot-placement", "")
        return text
