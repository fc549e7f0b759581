from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_values
from webhook.kube.defaults_objects import default_object

RBAC = "rbac.authorization.k8s.io"
SCALE = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}

KINDS = [
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "Service"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
]


def defaulted(api_version: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what is in the object beside its type after defaulting."""
    value = {"apiVersion": api_version, "kind": kind, **copy.deepcopy(body)}
    default_object(api_version.rpartition("/")[0], kind, value)
    return {key: each for key, each in value.items() if key not in {"apiVersion", "kind"}}


# As a webhook of a real API server saw it, without what that allocates.
@pytest.mark.parametrize(
    ("api_version", "kind", "written", "seen"),
    [
        pytest.param(
            "v1",
            "Service",
            {"spec": {"ports": [{"port": 80}]}},
            {
                "spec": {
                    "internalTrafficPolicy": "Cluster",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                    "sessionAffinity": "None",
                    "type": "ClusterIP",
                }
            },
            id="a Service",
        ),
        pytest.param(
            "v1",
            "Service",
            {"spec": {"type": "LoadBalancer", "ports": [{"port": 53, "protocol": "UDP", "targetPort": "dns"}]}},
            {
                "spec": {
                    "allocateLoadBalancerNodePorts": True,
                    "externalTrafficPolicy": "Cluster",
                    "internalTrafficPolicy": "Cluster",
                    "ports": [{"port": 53, "protocol": "UDP", "targetPort": "dns"}],
                    "sessionAffinity": "None",
                    "type": "LoadBalancer",
                }
            },
            id="a Service for a load balancer",
        ),
        pytest.param(
            "v1",
            "Service",
            {"spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local"}},
            {
                "spec": {
                    "externalTrafficPolicy": "Local",
                    "internalTrafficPolicy": "Cluster",
                    "sessionAffinity": "ClientIP",
                    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                    "type": "NodePort",
                }
            },
            id="a Service on the ports of nodes",
        ),
        pytest.param(
            "v1",
            "Service",
            {"spec": {"type": "ExternalName", "externalName": "a.example"}},
            {"spec": {"type": "ExternalName", "externalName": "a.example", "sessionAffinity": "None"}},
            id="a Service that is a name elsewhere",
        ),
        pytest.param(
            "v1",
            "Service",
            {"spec": {"externalIPs": ["192.0.2.1"]}},
            {
                "spec": {
                    "externalIPs": ["192.0.2.1"],
                    "externalTrafficPolicy": "Cluster",
                    "internalTrafficPolicy": "Cluster",
                    "sessionAffinity": "None",
                    "type": "ClusterIP",
                }
            },
            id="a Service with addresses of its own",
        ),
        pytest.param(
            "v1",
            "Secret",
            {"stringData": {"a": "b", "c": "ü"}, "data": {"a": "eHg=", "z": "YQ=="}},
            {"data": {"a": "Yg==", "c": "w7w=", "z": "YQ=="}, "type": "Opaque"},
            id="a Secret with texts",
        ),
        pytest.param("v1", "Secret", {"stringData": {}}, {"type": "Opaque"}, id="a Secret without any"),
        pytest.param(
            "v1",
            "Secret",
            {"type": "kubernetes.io/tls"},
            {"type": "kubernetes.io/tls"},
            id="a Secret of a type of its own",
        ),
        pytest.param(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            {"spec": SCALE},
            {"spec": {**SCALE, "minReplicas": 1, "metrics": [CPU]}},
            id="an autoscaler",
        ),
        pytest.param(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            {
                "spec": {
                    "minReplicas": 2,
                    "behavior": {"scaleUp": {"policies": [PERCENT]}},
                    "metrics": [{"type": "Resource", "resource": {"target": {"averageValue": "1024Mi"}}}],
                }
            },
            {
                "spec": {
                    "minReplicas": 2,
                    "behavior": {
                        "scaleDown": {"policies": [PERCENT], "selectPolicy": "Max"},
                        "scaleUp": {"policies": [PERCENT], "selectPolicy": "Max", "stabilizationWindowSeconds": 0},
                    },
                    "metrics": [{"type": "Resource", "resource": {"target": {"averageValue": "1Gi"}}}],
                }
            },
            id="an autoscaler with a behaviour",
        ),
        pytest.param(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            {"spec": SCALE},
            {"spec": {**SCALE, "minReplicas": 1, "targetCPUUtilizationPercentage": 80}},
            id="an autoscaler of v1",
        ),
        pytest.param(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            {"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[]"}}, "spec": SCALE},
            {
                "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[]"}},
                "spec": {**SCALE, "minReplicas": 1},
            },
            id="an autoscaler of v1 with metrics",
        ),
        pytest.param(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {"spec": {"podSelector": {}}},
            {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
            id="a network policy",
        ),
        pytest.param(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            {"spec": {"egress": [{"ports": [{"port": 80}]}], "ingress": [{"ports": [{}]}], "policyTypes": []}},
            {
                "spec": {
                    "egress": [{"ports": [{"port": 80, "protocol": "TCP"}]}],
                    "ingress": [{"ports": [{"protocol": "TCP"}]}],
                    "policyTypes": ["Ingress", "Egress"],
                }
            },
            id="a network policy for both ways",
        ),
        pytest.param(
            "v1",
            "PersistentVolumeClaim",
            {"metadata": {}, "spec": {"resources": {"requests": {"storage": "1024Mi"}}}},
            {
                "metadata": {"finalizers": ["kubernetes.io/pvc-protection"]},
                "spec": {"resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
            },
            id="a claim",
        ),
        pytest.param(
            "v1",
            "PersistentVolume",
            {"metadata": {}, "spec": {"capacity": {"storage": "1024Mi"}, "hostPath": {"path": "/x"}}},
            {
                "metadata": {"finalizers": ["kubernetes.io/pv-protection"]},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "hostPath": {"path": "/x", "type": ""},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "volumeMode": "Filesystem",
                },
            },
            id="a volume",
        ),
        pytest.param(
            "storage.k8s.io/v1",
            "StorageClass",
            {"provisioner": "a/b"},
            {"provisioner": "a/b", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
            id="a storage class",
        ),
        pytest.param(
            f"{RBAC}/v1",
            "RoleBinding",
            {
                "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User"}, {"kind": "Group"}, {"kind": "ServiceAccount"}],
            },
            {
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
                "subjects": [
                    {"apiGroup": RBAC, "kind": "User"},
                    {"apiGroup": RBAC, "kind": "Group"},
                    {"kind": "ServiceAccount"},
                ],
            },
            id="a role binding",
        ),
        pytest.param(
            f"{RBAC}/v1",
            "ClusterRoleBinding",
            {"roleRef": {}, "subjects": [{"kind": "User"}]},
            {"roleRef": {"apiGroup": RBAC}, "subjects": [{"apiGroup": RBAC, "kind": "User"}]},
            id="a binding of the cluster",
        ),
        pytest.param(
            "v1",
            "LimitRange",
            {
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "default": {"cpu": 1},
                            "max": {"memory": "1024Mi", "cpu": 2},
                            "min": {"memory": "5Mi", "ephemeral-storage": "1Gi"},
                        },
                        {"type": "Pod", "max": {"cpu": "1000m"}},
                    ]
                }
            },
            {
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "default": {"cpu": "1", "memory": "1Gi"},
                            "defaultRequest": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                            "max": {"memory": "1Gi", "cpu": "2"},
                            "min": {"memory": "5Mi", "ephemeral-storage": "1Gi"},
                        },
                        {"type": "Pod", "max": {"cpu": "1"}},
                    ]
                }
            },
            id="a limit range",
        ),
        pytest.param(
            "v1",
            "ResourceQuota",
            {"spec": {"hard": {"cpu": "1000m", "pods": 5}}},
            {"spec": {"hard": {"cpu": "1", "pods": "5"}}},
            id="a quota",
        ),
        pytest.param(
            "v1",
            "Namespace",
            {"metadata": {"name": "team-a", "labels": {"env": "prod", "kubernetes.io/metadata.name": "x"}}},
            {
                "metadata": {"name": "team-a", "labels": {"env": "prod", "kubernetes.io/metadata.name": "team-a"}},
                "spec": {"finalizers": ["kubernetes"]},
            },
            id="a namespace",
        ),
        pytest.param(
            "v1",
            "Namespace",
            {"metadata": {"generateName": "team-"}},
            {"metadata": {"generateName": "team-"}, "spec": {"finalizers": ["kubernetes"]}},
            id="a namespace that has no name yet",
        ),
        pytest.param(
            "v1",
            "Endpoints",
            {"subsets": [{"ports": [{"port": 80}]}]},
            {"subsets": [{"ports": [{"port": 80, "protocol": "TCP"}]}]},
            id="endpoints",
        ),
        pytest.param(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            {"endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 80}]},
            {
                "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {}}],
                "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            },
            id="a slice of endpoints",
        ),
        pytest.param(
            "networking.k8s.io/v1",
            "IngressClass",
            {"spec": {"parameters": {"kind": "x"}}},
            {"spec": {"parameters": {"kind": "x", "scope": "Cluster"}}},
            id="an ingress class with parameters",
        ),
        pytest.param(
            "networking.k8s.io/v1",
            "IngressClass",
            {"spec": {"controller": "a/b"}},
            {"spec": {"controller": "a/b"}},
            id="an ingress class without",
        ),
        pytest.param(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            {"value": 5},
            {"value": 5, "preemptionPolicy": "PreemptLowerPriority"},
            id="a priority class",
        ),
        pytest.param(
            "node.k8s.io/v1",
            "RuntimeClass",
            {"overhead": {"podFixed": {"memory": "1024Mi"}}},
            {"overhead": {"podFixed": {"memory": "1Gi"}}},
            id="a runtime class",
        ),
        pytest.param(
            "storage.k8s.io/v1",
            "CSIDriver",
            {"spec": {"attachRequired": False}},
            {
                "spec": {
                    "attachRequired": False,
                    "fsGroupPolicy": "ReadWriteOnceWithFSType",
                    "podInfoOnMount": False,
                    "requiresRepublish": False,
                    "seLinuxMount": False,
                    "storageCapacity": False,
                    "volumeLifecycleModes": ["Persistent"],
                }
            },
            id="a storage driver",
        ),
        pytest.param("v1", "ConfigMap", {"data": {"a": "b"}}, {"data": {"a": "b"}}, id="any other kind"),
        pytest.param(
            "serving.knative.dev/v1",
            "Service",
            {"spec": {"ports": [{"port": 80}]}},
            {"spec": {"ports": [{"port": 80}]}},
            id="a kind of the same name elsewhere",
        ),
    ],
)
def test_an_object_arrives_as_a_webhook_sees_it(
    api_version: str, kind: str, written: dict[str, Any], seen: dict[str, Any]
) -> None:
    assert defaulted(api_version, kind, written) == seen


MEMBERS = ("spec", "subsets", "endpoints", "ports", "data", "stringData", "roleRef", "subjects", "overhead")
FIELDS = (
    *("apiGroup", "behavior", "capacity", "default", "egress", "externalIPs", "hard", "hostPath", "ingress", "kind"),
    *("limits", "max", "metrics", "min", "parameters", "podFixed", "port", "ports", "resource", "resources"),
    *("scaleUp", "sessionAffinity", "target", "targetPort", "type"),
)
WORDS = st.sampled_from(("Container", "ClientIP", "ClusterIP", "NodePort", "User", ""))
shaped = st.recursive(
    json_values() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)


@given(of=st.sampled_from(KINDS), value=st.fixed_dictionaries({}, optional=dict.fromkeys(MEMBERS, shaped)))
def test_what_has_the_wrong_type_is_passed_over_and_a_second_time_changes_nothing(
    of: tuple[str, str], value: dict[str, Any]
) -> None:
    default_object(*of, value)
    once = copy.deepcopy(value)
    default_object(*of, value)
    assert value == once
