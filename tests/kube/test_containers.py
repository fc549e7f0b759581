from __future__ import annotations

from typing import Any

import pytest

from tests.builders import pod_of
from webhook.base.globs import Globs
from webhook.kube.containers import containers, declares_port, is_windows, quantities_of, requested_of
from webhook.kube.pod_decoding import decode_pod

GPUS = Globs(("nvidia.com/gpu", "nvidia.com/mig-*"))


def test_every_container_of_all_three_lists_is_visited_with_its_field_path() -> None:
    subject = pod_of(
        initContainers=[{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}],
        containers=[{"name": "app"}, {"name": "log"}],
        ephemeralContainers=[{"name": "debug"}],
    )

    assert [(visited.container.name, visited.field, visited.sidecar) for visited in containers(subject)] == [
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
def test_a_resource_is_requested_if_its_amount_is_positive(
    members: str, quantities: str, resource: str, quantity: str | float, *, expected: bool
) -> None:
    spec: dict[str, Any] = {members: [{"name": "app", "resources": {quantities: {resource: quantity}}}]}

    assert bool(requested_of(quantities_of(pod_of(**spec).spec), GPUS)) is expected


def test_containers_without_resources_request_nothing() -> None:
    assert not requested_of(
        quantities_of(pod_of(containers=[{"name": "a", "resources": {}}, {"name": "b"}]).spec), GPUS
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        ({"containers": [{"name": "app", "ports": []}]}, False),
        ({"containers": [{"name": "app"}, {"name": "web", "ports": [{"containerPort": 80}]}]}, True),
        ({"initContainers": [{"name": "proxy", "ports": [{"containerPort": 80}]}]}, True),
    ],
)
def test_a_pod_listens_if_a_container_declares_a_port(spec: dict[str, Any], *, expected: bool) -> None:
    assert declares_port(pod_of(**spec)) is expected


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
def test_os_or_node_selector_identify_a_windows_pod(spec: dict[str, Any], *, expected: bool) -> None:
    assert is_windows(pod_of(**spec)) is expected
