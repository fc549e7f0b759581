from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane.parity.pods import everything as pod_with_everything
from tests.controlplane.parity.workloads import BUILT_IN, everything
from webhook.kube.defaults import default_object, default_pod, default_tolerations, drop_nulls

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def written_pod(**spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "app", "image": "nginx:1.27"}])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": containers, **spec},
    }


def defaulted(**spec: Any) -> dict[str, Any]:
    """Return the defaulted spec of a Pod with these fields."""
    value = written_pod(**spec)
    default_pod(value)
    filled: dict[str, Any] = value["spec"]
    return filled


def container(**fields: Any) -> dict[str, Any]:
    """Return a defaulted container with these fields."""
    filled: dict[str, Any] = defaulted(containers=[{"name": "app", "image": "nginx:1.27", **fields}])["containers"][0]
    return filled


def volume(**source: Any) -> dict[str, Any]:
    """Return a defaulted volume of this source."""
    filled: dict[str, Any] = defaulted(volumes=[{"name": "data", **source}])["volumes"][0]
    return filled


def test_a_bare_pod_gets_the_defaults_of_a_real_api_server() -> None:
    value = written_pod()

    default_pod(value)
    default_tolerations(value)

    assert value == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "nginx:1.27",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "tolerations": [NOT_READY, UNREACHABLE],
        },
    }


def test_user_values_are_kept_even_if_zero_or_false() -> None:
    own = {
        "dnsPolicy": "Default",
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "schedulerName": "sunk",
        "securityContext": {"runAsUser": 0},
        "terminationGracePeriodSeconds": 0,
    }

    spec = defaulted(**own)

    assert {key: spec[key] for key in own} == own


@pytest.mark.parametrize("written", ["serviceAccount", "serviceAccountName"])
def test_both_service_account_fields_are_set(written: str) -> None:
    spec = defaulted(**{written: "robot"})

    assert (spec["serviceAccount"], spec["serviceAccountName"]) == ("robot", "robot")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry.example:5000/team/web", "Always"),
        ("registry.example:5000/team/web:1", "IfNotPresent"),
        (f"web@sha256:{'a' * 64}", "IfNotPresent"),
        (f"web:1@sha256:{'a' * 64}", "IfNotPresent"),
        (f"web:latest@sha256:{'a' * 64}", "Always"),
    ],
)
def test_the_image_tag_determines_the_pull_policy(image: str, policy: str) -> None:
    assert container(image=image)["imagePullPolicy"] == policy
    assert volume(image={"reference": image})["image"]["pullPolicy"] == policy


def test_every_kind_of_container_gets_defaults() -> None:
    spec = defaulted(
        initContainers=[
            {"name": "migrate", "image": "a:1"},
            {"name": "proxy", "image": "b:1", "restartPolicy": "Always"},
        ],
        ephemeralContainers=[{"name": "debug", "image": "c:1"}],
    )

    every = [*spec["initContainers"], *spec["containers"], *spec["ephemeralContainers"]]
    assert [item["terminationMessagePolicy"] for item in every] == ["File"] * 4


def test_host_network_ports_are_host_ports_except_in_ephemeral_containers() -> None:
    def listening(name: str) -> dict[str, Any]:
        return {"name": name, "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]}

    spec = defaulted(
        hostNetwork=True,
        containers=[listening("app")],
        initContainers=[listening("proxy")],
        ephemeralContainers=[listening("debug")],
    )

    assert [port["hostPort"] for port in spec["containers"][0]["ports"]] == [80, 82]
    assert [port["hostPort"] for port in spec["initContainers"][0]["ports"]] == [80, 82]
    assert [port.get("hostPort") for port in spec["ephemeralContainers"][0]["ports"]] == [None, 82]


@pytest.mark.parametrize(
    ("own", "added"),
    [
        (None, [NOT_READY, UNREACHABLE]),
        ([{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists", "effect": "NoExecute"}], []),
        ([{**NOT_READY, "tolerationSeconds": 10}], [UNREACHABLE]),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}], [NOT_READY]),
    ],
)
def test_default_tolerations_are_added_to_pods_without_their_taints(
    own: list[dict[str, Any]] | None, added: list[dict[str, Any]]
) -> None:
    value = written_pod() if own is None else written_pod(tolerations=copy.deepcopy(own))

    default_tolerations(value)

    assert value["spec"].get("tolerations") == (own or []) + added


STORED = Path(__file__).with_name("defaults.yaml")


def filled(kind: str) -> list[Any]:
    """Return a Pod or workload with every field that has a default, and separately its template's spec.

    tests/controlplane/parity/test_parity.py sends the same objects to an API server.
    """
    written = pod_with_everything() if kind == "Pod" else everything(kind)
    value = json.loads(json.dumps(written))  # no shared parts
    if kind == "Pod":
        default_pod(value)
        default_tolerations(value)
        return [value]
    default_object(value["apiVersion"].rpartition("/")[0], kind, value)
    holder = value if kind == "PodTemplate" else value["spec"]
    holder = holder["jobTemplate"]["spec"] if kind == "CronJob" else holder
    return [value, holder["template"].pop("spec")]


def regenerate() -> None:
    """Rewrite the expected defaults, without the specs of templates, which are all the same."""
    workloads = [filled(kind)[0] for kind in BUILT_IN]
    STORED.write_text(yaml.safe_dump_all([*filled("Pod"), *workloads, filled("PodTemplate")[1]], width=120))


@pytest.mark.parametrize("kind", ["Pod", *BUILT_IN])
def test_every_field_gets_its_stored_default(kind: str) -> None:
    *stored, template = yaml.safe_load_all(STORED.read_text())
    value, *spec = filled(kind)
    assert [value] == [item for item in stored if item["kind"] == kind], "run `make golden`"
    restart = {"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {}
    assert all(item == {**template, **restart} for item in spec)


def workload(group: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return a defaulted workload with these fields, without its pod template."""
    value = {
        "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": written_pod()["spec"]}, **spec},
    }
    default_object(group, kind, value)
    value["spec"].pop("template")
    return value


@pytest.mark.parametrize(
    ("group", "kind", "own", "filled"),
    [
        (
            "apps",
            "Deployment",
            {"replicas": 0, "strategy": {"type": "Recreate"}},
            {
                "progressDeadlineSeconds": 600,
                "replicas": 0,
                "revisionHistoryLimit": 10,
                "strategy": {"type": "Recreate"},
            },
        ),
        (
            "batch",
            "Job",
            {"parallelism": 4, "backoffLimitPerIndex": 1, "podFailurePolicy": {}},
            {
                "backoffLimit": 2147483647,
                "backoffLimitPerIndex": 1,
                "completionMode": "NonIndexed",
                "manualSelector": False,
                "parallelism": 4,
                "podFailurePolicy": {},
                "podReplacementPolicy": "Failed",
                "suspend": False,
            },
        ),
    ],
)
def test_a_workload_gets_defaults(group: str, kind: str, own: dict[str, Any], filled: dict[str, Any]) -> None:
    assert workload(group, kind, **own)["spec"] == filled


@pytest.mark.parametrize(("group", "kind"), [("batch.volcano.sh", "Job"), ("ray.io", "RayCluster")])
def test_an_object_of_another_kind_is_unchanged(group: str, kind: str) -> None:
    value = {"metadata": {}, "spec": {"template": {"spec": written_pod()["spec"]}}}
    before = copy.deepcopy(value)

    default_object(group, kind, value)

    assert value == before


def test_nulls_are_dropped_as_in_decoding() -> None:
    value = {
        "metadata": {"labels": {"a": None, "b": "c"}, "annotations": None},
        "spec": {
            "nodeSelector": {"zone": None},
            "tolerations": None,
            "containers": [
                {"name": "app", "env": [{"name": "A", "value": None}], "resources": {"limits": {"cpu": None}}}
            ],
        },
    }

    drop_nulls(value)

    assert value == {
        "metadata": {"labels": {"a": "", "b": "c"}},
        "spec": {
            "nodeSelector": {"zone": ""},
            "containers": [{"name": "app", "env": [{"name": "A"}], "resources": {"limits": {"cpu": "0"}}}],
        },
    }


RICH = written_pod(
    hostNetwork=True,
    overhead={"cpu": "1"},
    resources={"limits": {"cpu": "1"}},
    tolerations=[{"key": "spot", "effect": "NoExecute"}],
    containers=[
        {
            "name": "app",
            "image": "nginx",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {}, "resourceFieldRef": {}, "fileKeyRef": {}}}],
            "resources": {"limits": {"cpu": 1}, "requests": {}},
            "readinessProbe": {"httpGet": {}, "grpc": {}},
            "lifecycle": {"preStop": {"httpGet": {}}},
        }
    ],
    volumes=[
        {
            "name": "a",
            "projected": {"sources": [{"serviceAccountToken": {}, "downwardAPI": {"items": [{"fieldRef": {}}]}}]},
        },
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"limits": {}}}}}},
        {"name": "c", "image": {"reference": "x"}},
        {"name": "d", "emptyDir": {"sizeLimit": 1}},
    ],
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, member in members for deeper in paths(member, (*path, key)))]


def replaced(value: Any, path: tuple[str | int, ...], by: Any) -> Any:
    if not path:
        return by
    changed = copy.deepcopy(value)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = by
    return changed


WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "text", [], ["text"], [None], [[]], {}, {"a": 1}, {"a": None}]
)


@given(st.sampled_from(paths(RICH)), WRONG)
def test_defaulting_is_idempotent_and_accepts_wrong_types(path: tuple[str | int, ...], by: Any) -> None:
    once = replaced(RICH, path, by)
    drop_nulls(once)
    default_pod(once)
    default_tolerations(once)
    twice = copy.deepcopy(once)

    default_pod(twice)
    default_tolerations(twice)

    assert twice == once


@given(st.sampled_from(paths(RICH["spec"])), WRONG, st.sampled_from(["Deployment", "StatefulSet", "DaemonSet"]))
def test_defaulting_a_workload_accepts_wrong_types(path: tuple[str | int, ...], by: Any, kind: str) -> None:
    value = {"metadata": {}, "spec": {"template": {"spec": replaced(RICH["spec"], path, by)}, "strategy": by}}

    default_object("apps", kind, value)

    assert value["spec"]["revisionHistoryLimit"] == 10
