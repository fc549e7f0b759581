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


# What depends on other fields, as a webhook of a real API server saw it, without what that allocates. One object of
# each kind is held against that server itself: `tests/controlplane/parity_objects.py`.
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
            "v1",
            "Namespace",
            {"metadata": {"generateName": "team-"}},
            {"metadata": {"generateName": "team-"}, "spec": {"finalizers": ["kubernetes"]}},
            id="a namespace that has no name yet",
        ),
        pytest.param(
            "networking.k8s.io/v1",
            "IngressClass",
            {"spec": {"controller": "a/b"}},
            {"spec": {"controller": "a/b"}},
            id="an ingress class without",
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
