from __future__ import annotations

import copy
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_values
from webhook.kube.defaults import default_object

RBAC = "rbac.authorization.k8s.io"

SEEN = list(yaml.safe_load_all(Path(__file__).with_name("defaults_objects.yaml").read_text()))

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
    """Return the fields of the defaulted object, without its type."""
    value = {"apiVersion": api_version, "kind": kind, **copy.deepcopy(body)}
    default_object(api_version.rpartition("/")[0], kind, value)
    return {key: field for key, field in value.items() if key not in {"apiVersion", "kind"}}


@pytest.mark.parametrize("case", SEEN, ids=itemgetter("what"))
def test_an_object_gets_the_defaults_that_a_webhook_sees(case: dict[str, Any]) -> None:
    written, seen = case["written"], case["seen"]
    assert defaulted(written.pop("apiVersion"), written.pop("kind"), written) == seen


MEMBERS = ("spec", "subsets", "endpoints", "ports", "data", "stringData", "roleRef", "subjects", "overhead")
FIELDS = (
    *("apiGroup", "behavior", "capacity", "default", "egress", "externalIPs", "hard", "hostPath", "ingress", "kind"),
    *("limits", "max", "metrics", "min", "parameters", "podFixed", "port", "ports", "resource", "resources"),
    *("scaleUp", "sessionAffinity", "target", "targetPort", "type"),
)
WORDS = st.sampled_from(("Container", "ClientIP", "ClusterIP", "NodePort", "User", ""))
shaped = st.recursive(
    json_values | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)


@given(of=st.sampled_from(KINDS), value=st.fixed_dictionaries({}, optional=dict.fromkeys(MEMBERS, shaped)))
def test_wrong_types_are_skipped_and_defaulting_is_idempotent(of: tuple[str, str], value: dict[str, Any]) -> None:
    default_object(*of, value)
    once = copy.deepcopy(value)
    default_object(*of, value)
    assert value == once
