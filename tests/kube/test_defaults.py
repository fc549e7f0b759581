from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.defaults import default_pod, default_tolerations, default_workload, drop_nulls

NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def pod(**spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "app", "image": "nginx:1.27"}])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": containers, **spec},
    }


def defaulted(**spec: Any) -> dict[str, Any]:
    """Return the spec of a Pod with these fields after defaulting."""
    value = pod(**spec)
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
    value = pod()

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


def test_an_empty_string_is_filled_in() -> None:
    spec = defaulted(restartPolicy="", containers=[{"name": "app", "image": "nginx", "imagePullPolicy": ""}])

    assert spec["restartPolicy"] == "Always"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"


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


def test_a_limit_is_the_request_where_none_is_given() -> None:
    resources = container(resources={"limits": {"cpu": 2, "nvidia.com/gpu": 8}, "requests": {"cpu": "0.5"}})[
        "resources"
    ]

    assert resources == {
        "limits": {"cpu": "2", "nvidia.com/gpu": "8"},
        "requests": {"cpu": "500m", "nvidia.com/gpu": "8"},
    }


def test_a_limit_in_a_pod_template_is_not_the_request() -> None:
    workload = {
        "spec": {"template": {"spec": pod(containers=[{"name": "a", "resources": {"limits": {"cpu": 1}}}])["spec"]}}
    }

    default_workload("apps", "Deployment", workload)

    spec = workload["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert "enableServiceLinks" not in spec


def test_ports_are_tcp() -> None:
    ports = container(ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}])["ports"]

    assert ports == [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]


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


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_a_probe_has_its_numbers(probe: str) -> None:
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

    assert container(**{probe: {"tcpSocket": {"port": 80}}})[probe] == {"tcpSocket": {"port": 80}, **numbers}
    assert container(**{probe: {"exec": {}, "timeoutSeconds": 0, "periodSeconds": 5}})[probe] == {
        "exec": {},
        **numbers,
        "periodSeconds": 5,
    }
    assert container(**{probe: {"httpGet": {"port": 80}}})[probe]["httpGet"] == {
        "port": 80,
        "path": "/",
        "scheme": "HTTP",
    }
    assert container(**{probe: {"grpc": {"port": 80}}})[probe]["grpc"] == {"port": 80, "service": ""}


def test_a_hook_that_asks_over_http_has_path_and_scheme() -> None:
    lifecycle = container(lifecycle={"preStop": {"httpGet": {"port": 80}}, "postStart": {"exec": {}}})["lifecycle"]

    assert lifecycle == {
        "preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}},
        "postStart": {"exec": {}},
    }


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        (
            {"fieldRef": {"fieldPath": "metadata.name"}},
            {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}},
        ),
        (
            {"resourceFieldRef": {"resource": "limits.cpu"}},
            {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}},
        ),
        (
            {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Ki"}},
            {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        ),
        ({"secretKeyRef": {"name": "a", "key": "b"}}, {"secretKeyRef": {"name": "a", "key": "b"}}),
    ],
)
def test_where_a_variable_comes_from_is_filled_in(written: dict[str, Any], filled: dict[str, Any]) -> None:
    assert container(env=[{"name": "A", "valueFrom": written}])["env"] == [{"name": "A", "valueFrom": filled}]


@pytest.mark.parametrize(
    ("source", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"configMap": {"name": "a"}}, {"configMap": {"name": "a", "defaultMode": 420}}),
        ({"secret": {"secretName": "a", "defaultMode": 0}}, {"secret": {"secretName": "a", "defaultMode": 0}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"persistentVolumeClaim": {"claimName": "a"}}, {"persistentVolumeClaim": {"claimName": "a"}}),
        (
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {
                "downwardAPI": {
                    "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels", "apiVersion": "v1"}}],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "a"}}]}},
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                        {"configMap": {"name": "a"}},
                    ],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1024Gi"}}}}}},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {},
                        "spec": {"resources": {"requests": {"storage": "1Ti"}}, "volumeMode": "Filesystem"},
                    }
                }
            },
        ),
    ],
)
def test_a_volume_is_filled_in(source: dict[str, Any], filled: dict[str, Any]) -> None:
    assert volume(**source) == {"name": "data", **filled}


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
    value = pod() if own is None else pod(tolerations=copy.deepcopy(own))

    default_tolerations(value)

    assert value["spec"].get("tolerations") == (own or []) + added


def workload(group: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return a workload with these fields after defaulting, without its pod template."""
    value = {
        "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}, **spec},
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
            {},
            {
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "completions": 1,
                "manualSelector": False,
                "parallelism": 1,
                "podReplacementPolicy": "TerminatingOrFailed",
                "suspend": False,
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


def test_a_workload_has_the_pod_defaults_in_its_template() -> None:
    template = {"spec": pod()["spec"]}
    deployment = {"spec": {"template": copy.deepcopy(template)}}
    cron_job = {"spec": {"jobTemplate": {"spec": {"template": copy.deepcopy(template)}}}}
    pod_template = {"template": copy.deepcopy(template)}

    default_workload("apps", "Deployment", deployment)
    default_workload("batch", "CronJob", cron_job)
    default_workload("", "PodTemplate", pod_template)

    filled = deployment["spec"]["template"]["spec"]
    assert filled["terminationGracePeriodSeconds"] == 30
    assert cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"] == filled
    assert pod_template["template"]["spec"] == filled


def test_a_template_has_metadata_even_if_nothing_is_in_it() -> None:
    cron_job: dict[str, Any] = {"spec": {"jobTemplate": {"spec": {"template": {"spec": pod()["spec"]}}}}}
    pod_template: dict[str, Any] = {"template": {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}}

    default_workload("batch", "CronJob", cron_job)
    default_workload("", "PodTemplate", pod_template)

    job_template = cron_job["spec"]["jobTemplate"]
    assert job_template["metadata"] == job_template["spec"]["template"]["metadata"] == {}
    assert pod_template["template"]["metadata"] == {"labels": {"app": "web"}}


def test_a_claim_of_a_stateful_set_is_an_object_of_its_own() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1024Mi"}}}}

    (filled,) = workload("apps", "StatefulSet", volumeClaimTemplates=[claim])["spec"]["volumeClaimTemplates"]

    assert filled == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_condition_of_a_failure_policy_is_true(kind: str) -> None:
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}, {"type": "Odd", "status": "False"}]}
    ]
    holder: dict[str, Any] = {"template": {"spec": pod()["spec"]}, "podFailurePolicy": {"rules": rules}}
    value = {"spec": holder if kind == "Job" else {"jobTemplate": {"spec": holder}}}

    default_workload("batch", kind, value)

    conditions = holder["podFailurePolicy"]["rules"][0]["onPodConditions"]
    assert [each["status"] for each in conditions] == ["True", "False"]


def test_a_job_without_labels_takes_those_of_its_template() -> None:
    assert workload("batch", "Job")["metadata"]["labels"] == {"app": "web"}
    assert "labels" not in workload("apps", "Deployment")["metadata"]

    controller = workload("", "ReplicationController")
    assert controller["metadata"]["labels"] == controller["spec"]["selector"] == {"app": "web"}


@pytest.mark.parametrize(("group", "kind"), [("batch.volcano.sh", "Job"), ("ray.io", "RayCluster"), ("", "Service")])
def test_an_object_of_another_kind_stays_as_it_is(group: str, kind: str) -> None:
    value = {"metadata": {}, "spec": {"template": {"spec": pod()["spec"]}}}
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


RICH = pod(
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
