from __future__ import annotations

from typing import Any

import pytest

from webhook.kube.resources import Resource, resource_of, resource_of_crd, versions_of

RAY_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayclusters.ray.io"},
    "spec": {
        "group": "ray.io",
        "scope": "Namespaced",
        "names": {"kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


@pytest.mark.parametrize(
    ("group", "kind", "plural", "namespaced"),
    [
        ("", "Pod", "pods", True),
        ("", "Namespace", "namespaces", False),
        ("", "Node", "nodes", False),
        ("", "Endpoints", "endpoints", True),
        ("apps", "Deployment", "deployments", True),
        ("apps", "DaemonSet", "daemonsets", True),
        ("batch", "CronJob", "cronjobs", True),
        ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True),
        ("policy", "PodDisruptionBudget", "poddisruptionbudgets", True),
        ("networking.k8s.io", "NetworkPolicy", "networkpolicies", True),
        ("networking.k8s.io", "Ingress", "ingresses", True),
        ("networking.k8s.io", "IPAddress", "ipaddresses", False),
        ("networking.k8s.io", "ServiceCIDR", "servicecidrs", False),
        ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", False),
        ("storage.k8s.io", "StorageClass", "storageclasses", False),
        ("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", True),
        ("scheduling.k8s.io", "PriorityClass", "priorityclasses", False),
        ("node.k8s.io", "RuntimeClass", "runtimeclasses", False),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False),
        ("coordination.k8s.io", "Lease", "leases", True),
        ("discovery.k8s.io", "EndpointSlice", "endpointslices", True),
        ("events.k8s.io", "Event", "events", True),
        ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", False),
        ("apiregistration.k8s.io", "APIService", "apiservices", False),
        ("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", False),
        ("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", True),
        ("resource.k8s.io", "DeviceClass", "deviceclasses", False),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", False),
        ("scheduling.k8s.io", "CompositePodGroup", "compositepodgroups", True),
        ("lifecycle.k8s.io", "EvictionRequest", "evictionrequests", True),
    ],
)
def test_a_built_in_kind_maps_to_its_resource(group: str, kind: str, plural: str, *, namespaced: bool) -> None:
    assert resource_of(group, kind) == Resource(group, kind, plural, namespaced)


@pytest.mark.parametrize(
    ("group", "kind"),
    [("apps", "Pod"), ("", "Deployment"), ("compute.coreweave.com", "NodePool"), ("batch.volcano.sh", "Job"), ("", "")],
)
def test_a_kind_of_another_group_is_not_the_built_in_kind(group: str, kind: str) -> None:
    assert resource_of(group, kind) is None


def test_a_crd_maps_its_kind_to_a_resource() -> None:
    assert resource_of_crd(RAY_CRD) == Resource("ray.io", "RayCluster", "rayclusters", namespaced=True)
    cluster_scoped = {**RAY_CRD, "spec": {**RAY_CRD["spec"], "scope": "Cluster"}}
    assert resource_of_crd(cluster_scoped) == Resource("ray.io", "RayCluster", "rayclusters", namespaced=False)


@pytest.mark.parametrize("missing", ["group", "scope", "names"])
def test_an_incomplete_crd_is_no_resource(missing: str) -> None:
    spec = {key: value for key, value in RAY_CRD["spec"].items() if key != missing}

    assert resource_of_crd({**RAY_CRD, "spec": spec}) is None


@pytest.mark.parametrize("crd", [{}, {"spec": None}, {"spec": []}, {"spec": {"group": "", "scope": 1, "names": {}}}])
def test_a_document_other_than_a_crd_is_no_resource(crd: dict[str, Any]) -> None:
    assert resource_of_crd(crd) is None


@pytest.mark.parametrize(
    ("group", "plural", "versions"),
    [
        ("", "pods", {"v1"}),
        ("batch", "cronjobs", {"v1"}),
        ("autoscaling", "horizontalpodautoscalers", {"v1", "v2"}),
        ("coordination.k8s.io", "leases", {"v1"}),
        ("coordination.k8s.io", "leasecandidates", set()),
        ("coordination.k8s.io", "*", set()),
        ("scheduling.k8s.io", "podgroups", set()),
        ("lifecycle.k8s.io", "evictions", set()),
        ("apps", "*", {"v1"}),
    ],
)
def test_the_versions_of_a_stable_resource_are_known(group: str, plural: str, versions: set[str]) -> None:
    assert versions_of(group, plural) == versions
