from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from webhook.globs import Globs
from webhook.kube.containers import (
    containers,
    declares_port,
    hook_sleeps,
    is_windows,
    requested_of,
    sleep_seconds,
)
from webhook.kube.edit import exec_sleep, native_sleep
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from webhook.kube.pod import Pod

GPUS = Globs(("nvidia.com/gpu", "nvidia.com/mig-*"))


def pod(**spec: object) -> Pod:
    return decode_pod(msgspec.json.encode({"spec": {"containers": [{"name": "app"}], **spec}}))


def exec_hook(*command: str) -> dict[str, Any]:
    return {"exec": {"command": list(command)}}


def test_every_container_of_all_three_lists_is_visited_with_its_field_path() -> None:
    subject = pod(
        initContainers=[{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}],
        containers=[{"name": "app"}, {"name": "log"}],
        ephemeralContainers=[{"name": "debug"}],
    )

    assert [(each.container.name, each.field, each.sidecar) for each in containers(subject)] == [
        ("migrate", "spec.initContainers[0]", False),
        ("proxy", "spec.initContainers[1]", True),
        ("app", "spec.containers[0]", False),
        ("log", "spec.containers[1]", False),
        ("debug", "spec.ephemeralContainers[0]", False),
    ]


def test_a_pod_without_containers_has_nothing_to_visit() -> None:
    assert list(containers(decode_pod(b"{}"))) == []
    assert list(containers(decode_pod(b'{"spec": {"containers": null}}'))) == []


@pytest.mark.parametrize("members", ["containers", "initContainers"])
@pytest.mark.parametrize("quantities", ["limits", "requests"])
@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("nvidia.com/gpu", "8", True),
        ("nvidia.com/gpu", 1, True),
        ("nvidia.com/mig-1g.10gb", "1", True),
        ("nvidia.com/gpu", "1k", True),
        ("nvidia.com/gpu", "0", False),
        ("nvidia.com/gpu", 0, False),
        ("nvidia.com/gpu", 0.0, False),
        ("nvidia.com/gpu", "0k", False),
        ("nvidia.com/gpu", "0e3", False),
        ("notnvidia.com/gpu", "1", False),
        ("nvidia.com/gpu-memory", "1", False),
        ("cpu", "4", False),
    ],
)
def test_a_resource_is_requested_where_more_than_zero_of_it_is(
    members: str, quantities: str, resource: str, quantity: str | float, *, expected: bool
) -> None:
    subject = pod(**{members: [{"name": "app", "resources": {quantities: {resource: quantity}}}]})

    assert bool(requested_of(subject, GPUS)) is expected


def test_containers_without_resources_request_nothing() -> None:
    assert not requested_of(pod(containers=[{"name": "a", "resources": {}}, {"name": "b"}]), GPUS)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        ({"containers": [{"name": "app", "ports": []}]}, False),
        ({"containers": [{"name": "app"}, {"name": "web", "ports": [{"containerPort": 80}]}]}, True),
        ({"initContainers": [{"name": "proxy", "ports": [{"containerPort": 80}]}]}, True),
    ],
)
def test_a_pod_listens_where_a_container_declares_a_port(spec: dict[str, Any], *, expected: bool) -> None:
    assert declares_port(pod(**spec)) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        ({"os": {"name": "windows"}}, True),
        ({"os": {"name": "linux"}}, False),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, True),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, False),
        ({"nodeSelector": {"team": "windows"}}, False),
    ],
)
def test_a_pod_says_by_its_os_or_its_selector_that_it_runs_on_windows(spec: dict[str, Any], *, expected: bool) -> None:
    assert is_windows(pod(**spec)) is expected


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 7}}, 7),
        (exec_hook("sleep", "15"), 15),
        (exec_hook("/bin/sleep", "15s"), 15),
        (exec_hook("/bin/sh", "-c", "sleep 15"), 15),
        (exec_hook("bash", "-ec", "sleep 2m && nginx -s quit"), 120),
        (exec_hook("/bin/sh", "-c", "sleep 15; nginx -s quit"), 15),
        (exec_hook("/bin/sh", "-c", "  /bin/sleep   1h"), 3600),
        (exec_hook("/bin/sh", "-c", "nginx -s quit; sleep 15"), 0),
        (exec_hook("/bin/sh", "-c", "sleep $DRAIN"), 0),
        (exec_hook("/bin/sh", "-c", "sleep 0.5"), 0),
        (exec_hook("/bin/sh", "-c", "sleep infinity"), 0),
        (exec_hook("/bin/sh", "-c", "sleep " + "9" * 5000), 0),
        (exec_hook("/bin/sh", "-c", "sleep ٣"), 0),
        (exec_hook("/bin/sh", "-c", ""), 0),
        (exec_hook("/bin/sh", "-c"), 0),
        (exec_hook("sleep"), 0),
        (exec_hook("/app/asleep", "15"), 0),
        (exec_hook(), 0),
        ({"exec": {}}, 0),
        ({"httpGet": {"path": "/drain", "port": 80}}, 0),
        ({}, 0),
    ],
)
def test_a_hook_sleeps_as_long_as_it_plainly_says(hook: dict[str, Any], seconds: int) -> None:
    subject = pod(containers=[{"name": "app", "lifecycle": {"preStop": hook}}])

    assert [each.seconds for each in hook_sleeps(subject)] == ([seconds] if seconds else [])


def test_the_sleeps_of_all_hooks_are_found_sidecars_included() -> None:
    subject = pod(
        initContainers=[
            {"name": "proxy", "restartPolicy": "Always", "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}
        ],
        containers=[
            {"name": "plain"},
            {
                "name": "app",
                "lifecycle": {"postStart": {"sleep": {"seconds": 2}}, "preStop": exec_hook("sleep", "5")},
            },
        ],
    )

    assert [(each.field, each.seconds, each.native) for each in hook_sleeps(subject)] == [
        ("spec.initContainers[0].lifecycle.preStop", 3, True),
        ("spec.containers[1].lifecycle.preStop", 5, False),
        ("spec.containers[1].lifecycle.postStart", 2, True),
    ]


def test_the_sleeps_that_are_injected_are_recognised() -> None:
    assert sleep_seconds(native_sleep(5)) == sleep_seconds(exec_sleep(5)) == 5
