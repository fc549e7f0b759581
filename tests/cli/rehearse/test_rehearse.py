"""Rehearsal output without a control plane: input errors and omissions."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.builders import BUNDLE, deployment
from webhook.base.exits import CannotJudgeError
from webhook.commands import command_parser, main
from webhook.commands.rehearse import publish as module
from webhook.commands.rehearse.publish import publish, spot_pools
from webhook.commands.shared.flags import options_of
from webhook.rehearse.inputs.live import without_environment
from webhook.rehearse.inputs.nodes import read_node
from webhook.rehearse.inputs.resources import manifest_of, requests_of, template_of
from webhook.rehearse.inputs.snapshot import keep_counts, snapshot_of
from webhook.rehearse.inputs.source import ClusterSource
from webhook.rehearse.options import RehearseOptions
from webhook.rehearse.runs.watching import SeenPod, Watches
from webhook.rehearse.runs.workloads import Workloads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from webhook.rehearse.result import Rehearsal

POOL = "compute.coreweave.com/node-pool"


def node(name: str, pool: str, cpu: str = "8", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {POOL: pool, **labels}},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi"}},
    }


def two_core_deployment(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "acme/main", "resources": {"requests": {"cpu": "2"}}}]
    return deployment(name, 2, **{"containers": containers, **spec})


TWO_POOLS = (node("spot-0", "spot"), node("on-demand-0", "on-demand", "4"))


@pytest.fixture(autouse=True)
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the control plane; inputs are checked before programs are located."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)  # neither Go nor a container engine


def rehearsed(tmp_path: Path, objects: tuple[dict[str, Any], ...], *flags: str) -> int:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return main(["rehearse", str(file), *flags])


def test_a_budget_in_the_state_and_the_manifests_counts_once() -> None:
    repeated = {**two_core_deployment("web"), "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {}}
    source = ClusterSource(manifests=[manifest_of("here", item) for item in (*TWO_POOLS, repeated, repeated)])
    snapshot = snapshot_of(source, BUNDLE, {})
    assert [item.name for item in snapshot.created] == ["web"]
    assert len(snapshot.source.manifests) == 3  # so that a fix can change the budget


def test_without_the_programs_the_error_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rehearsed(tmp_path, (*TWO_POOLS, two_core_deployment("web")), "--lose=spot", "-o", "json") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "run `spotgate rehearse --prepare`, or name their folder with --binaries or KUBEBUILDER_ASSETS" in output.err


def test_the_pods_of_a_pod_group_are_a_gang() -> None:
    nothing: Any = None
    workloads = Workloads(Watches(nothing), BUNDLE)
    spec = {"containers": [{"name": "main", "image": "acme/main"}], "schedulingGroup": {"podGroupName": "ring"}}
    metadata = {"name": "rank-0", "namespace": "a", "uid": "1"}
    pod = msgspec.convert({"metadata": metadata, "spec": spec, "status": {}}, SeenPod)
    assert workloads.of(pod).gang == ("a", "PodGroup=ring")
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "nodeName": "spot-0"}}
    assert any(note.startswith("spec.schedulingGroup: ") for note in not_simulated(value))


def not_simulated(*objects: dict[str, Any]) -> Sequence[str]:
    source = ClusterSource(manifests=[manifest_of("here", item) for item in (*TWO_POOLS, *objects)])
    return snapshot_of(source, BUNDLE, {}).not_simulated


ROOM = [{"name": "main", "image": "acme/main", "resources": {"requests": {"cpu": "6"}}}]
NO_ROOM = [{"name": "main", "image": "acme/main"}]


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        pytest.param({"containers": ROOM}, 6, id="the containers' requests"),
        pytest.param({"containers": ROOM, "resources": {"requests": {"cpu": "3"}}}, 3, id="Pod requests replace them"),
        pytest.param({"containers": NO_ROOM, "resources": {"requests": {"cpu": "6"}}}, 6, id="only Pod requests"),
        pytest.param({"containers": NO_ROOM, "resources": {"limits": {"cpu": "6"}}}, 6, id="Pod limits are requests"),
        pytest.param({"resources": {"limits": {"cpu": "6"}}}, 2, id="unless containers request some"),
    ],
)
def test_pod_level_requests_count(spec: dict[str, Any], cpus: int) -> None:
    web = two_core_deployment("web", **spec)
    assert requests_of(template_of(web).spec)["cpu"] == cpus
    assert not any("requests no resources" in line for line in not_simulated(web))


@pytest.mark.parametrize(("api_version", "kind"), [("acme.io/v1", "Widget"), ("argoproj.io/v1alpha1", "Rollout")])
def test_a_kind_without_a_controller_is_named(api_version: str, kind: str) -> None:
    custom = {**two_core_deployment("parts"), "apiVersion": api_version, "kind": kind}
    notes = not_simulated(two_core_deployment("web"), custom)
    assert any(note.startswith(f"{kind}: the rehearsal doesn't run the controllers") for note in notes)


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ("echo the disk is on fire; exit 3", "etcd exited with 3; its last log lines:\nthe disk is on fire\n"),
        ("kill -9 $$", "etcd was killed: the machine may have run out of memory\n"),
    ],
)
def test_a_control_plane_that_does_not_start_shows_its_last_log_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str, error: str
) -> None:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo Kubernetes v1.37.2 && exit\n{ends}\n')
        program.chmod(0o755)
    assert rehearsed(tmp_path, TWO_POOLS, "--lose=spot", f"--binaries={tmp_path}") == 2
    assert capsys.readouterr().err == f"spotgate rehearse: {error}"


@pytest.mark.parametrize(
    ("status", "bound", "kept"),
    [
        ({"expectedPods": 6, "desiredHealthy": 5}, {"maxUnavailable": 1}, {"minAvailable": 5}),
        ({"expectedPods": 6, "desiredHealthy": 3}, {"minAvailable": "50%"}, {"minAvailable": 3}),
        ({}, {"maxUnavailable": 1}, {"maxUnavailable": 1}),
    ],
)
def test_a_budget_for_custom_resources_uses_the_counts_of_its_cluster(
    status: dict[str, int], bound: dict[str, Any], kept: dict[str, Any]
) -> None:
    reference = {"apiVersion": "acme.io/v1", "kind": "CloneSet", "name": "web", "controller": True}
    metadata = {"name": "web-0", "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [reference]}
    selector = {"matchLabels": {"app": "web"}}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {**bound, "selector": selector},
        "status": status,
    }
    keep_counts([{"kind": "Pod", "metadata": metadata}, budget])
    assert budget["spec"] == {**kept, "selector": selector}


def test_container_arguments_of_a_live_cluster_are_not_kept() -> None:
    container = {
        "name": "main",
        "image": "acme/main",
        "env": [{"name": "A", "value": "s3cret"}],
        "args": ["--key=s3cret"],
    }
    kept = without_environment(
        {"spec": {"template": {"spec": {"containers": [container], "initContainers": [container]}}}}
    )
    assert "s3cret" not in json.dumps(kept)
    assert kept["spec"]["template"]["spec"]["containers"] == [{"name": "main", "image": "acme/main"}]


# Publishing


def spot_node(name: str, **labels: str) -> Any:
    value = node(name, "", **labels)
    del value["metadata"]["labels"]["compute.coreweave.com/node-pool"]
    return read_node(value, (), BUNDLE.providers)


def test_each_pool_with_spot_nodes_is_lost_once() -> None:
    karpenter = {"karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "a"}
    nodes = [
        spot_node("1", **karpenter),
        spot_node("2", **karpenter),
        spot_node("3", **{"eks.amazonaws.com/capacityType": "SPOT"}),
        spot_node("4", **{"karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": "b"}),
    ]
    assert spot_pools(nodes) == ["a", "provider:eks"]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--publish=y"], "names no ConfigMap; write NAMESPACE/NAME"),
        (["--publish=x/y", "--with-fixes"], "not allowed with argument"),
    ],
)
def test_conflicting_flags_are_an_error(flags: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["rehearse", *flags])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert error in " ".join(capsys.readouterr().err.split())


def test_a_pool_that_can_not_be_rehearsed_keeps_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_on_cluster", lambda *_: pytest.fail("nothing may be published"))

    def rehearse(lose: Sequence[str]) -> Rehearsal:
        raise CannotJudgeError(f"{lose[0]} has no nodes")

    flags = command_parser("spotgate", "rehearse").parse_args(["--lose=a", "--lose=b", "--publish=x/y"])
    options = options_of(RehearseOptions, flags)
    with pytest.raises(CannotJudgeError, match="a has no nodes"):
        publish(options, ("x", "y"), options.lose, rehearse)
