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
from webhook.kube.defaults import default_pod, default_tolerations, default_workload, drop_nulls

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
    """Return the spec of a Pod with these fields after defaulting."""
    value = written_pod(**spec)
    default_pod(value)
    filled: dict[str, Any] = value["spec"]
    return filled


def container(**fields: Any) -> dict[str, Any]:
    """Return a container with these fields after defaulting."""
    filled: dict[str, Any] = defaulted(containers=[{"name": "app", "image": "nginx:1.27", **fields}])["containers"][0]
    return filled


def volume(**source: Any) -> dict[str, Any]:
    """Return a volume of this source after defaulting."""
    filled: dict[str, Any] = defaulted(volumes=[{"name": "data", **source}])["volumes"][0]
    return filled


def test_a_bare_pod_arrives_as_a_webhook_of_a_real_api_server_saw_it() -> None:
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


def test_what_the_user_set_stays_even_if_it_is_zero_or_false() -> None:
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
def test_both_names_of_the_service_account_are_there(written: str) -> None:
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
def test_the_image_tag_decides_whether_it_is_always_pulled(image: str, policy: str) -> None:
    assert container(image=image)["imagePullPolicy"] == policy
    assert volume(image={"reference": image})["image"]["pullPolicy"] == policy


def test_every_kind_of_container_is_filled_in() -> None:
    spec = defaulted(
        initContainers=[
            {"name": "migrate", "image": "a:1"},
            {"name": "proxy", "image": "b:1", "restartPolicy": "Always"},
        ],
        ephemeralContainers=[{"name": "debug", "image": "c:1"}],
    )

    every = [*spec["initContainers"], *spec["containers"], *spec["ephemeralContainers"]]
    assert [each["terminationMessagePolicy"] for each in every] == ["File"] * 4


def test_ports_are_host_ports_in_the_hosts_network_but_those_of_ephemeral_containers() -> None:
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
def test_the_two_default_tolerations_are_added_to_pods_that_do_not_speak_of_those_taints(
    own: list[dict[str, Any]] | None, added: list[dict[str, Any]]
) -> None:
    value = written_pod() if own is None else written_pod(tolerations=copy.deepcopy(own))

    default_tolerations(value)

    assert value["spec"].get("tolerations") == (own or []) + added


STORED = Path(__file__).with_name("defaults.yaml")


def filled(kind: str) -> list[Any]:
    """Return a Pod, or a workload, with all that has defaults, and the spec of its template apart.

    tests/controlplane/parity/test_parity.py asks an API server about the same.
    """
    written = pod_with_everything() if kind == "Pod" else everything(kind)
    value = json.loads(json.dumps(written))  # no part of it twice
    if kind == "Pod":
        default_pod(value)
        default_tolerations(value)
        return [value]
    default_workload(value["apiVersion"].rpartition("/")[0], kind, value)
    holder = value if kind == "PodTemplate" else value["spec"]
    holder = holder["jobTemplate"]["spec"] if kind == "CronJob" else holder
    return [value, holder["template"].pop("spec")]


def regenerate() -> None:
    """Write what is filled in anew: each without the spec of its template, which is the same in all."""
    workloads = [filled(kind)[0] for kind in BUILT_IN]
    STORED.write_text(yaml.safe_dump_all([*filled("Pod"), *workloads, filled("PodTemplate")[1]], width=120))


@pytest.mark.parametrize("kind", ["Pod", *BUILT_IN])
def test_all_that_has_defaults_is_filled_in_as_it_is_stored(kind: str) -> None:
    *stored, template = yaml.safe_load_all(STORED.read_text())
    value, *spec = filled(kind)
    assert [value] == [each for each in stored if each["kind"] == kind], "run `make golden`"
    restart = {"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {}
    assert all(each == {**template, **restart} for each in spec)


def workload(group: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return a workload with these fields after defaulting, without its pod template."""
    value = {
        "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": written_pod()["spec"]}, **spec},
    }
    default_workload(group, kind, value)
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
def test_a_workload_is_filled_in(group: str, kind: str, own: dict[str, Any], filled: dict[str, Any]) -> None:
    assert workload(group, kind, **own)["spec"] == filled


@pytest.mark.parametrize(("group", "kind"), [("batch.volcano.sh", "Job"), ("ray.io", "RayCluster"), ("", "Service")])
def test_an_object_of_another_kind_stays_as_it_is(group: str, kind: str) -> None:
    value = {"metadata": {}, "spec": {"template": {"spec": written_pod()["spec"]}}}
    before = copy.deepcopy(value)

    default_workload(group, kind, value)

    assert value == before


def test_nulls_are_dropped_as_decoding_drops_them() -> None:
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
def test_no_value_of_a_wrong_type_raises_and_a_second_time_changes_nothing(
    path: tuple[str | int, ...], by: Any
) -> None:
    once = replaced(RICH, path, by)
    drop_nulls(once)
    default_pod(once)
    default_tolerations(once)
    twice = copy.deepcopy(once)

    default_pod(twice)
    default_tolerations(twice)

    assert twice == once


@given(st.sampled_from(paths(RICH["spec"])), WRONG, st.sampled_from(["Deployment", "StatefulSet", "DaemonSet"]))
def test_no_workload_with_a_wrong_type_raises(path: tuple[str | int, ...], by: Any, kind: str) -> None:
    value = {"metadata": {}, "spec": {"template": {"spec": replaced(RICH["spec"], path, by)}, "strategy": by}}

    default_workload("apps", kind, value)

    assert value["spec"]["revisionHistoryLimit"] == 10
