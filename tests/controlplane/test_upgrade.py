"""From ConfigMap spotgate-policies to the policies of the image, back, and a rollout that gets stuck, while writes go on."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest

from bench import chaos_load
from bench.chaos import until_all_is_right
from bench.chaos_load import Load, Outcome, Tally, Write
from bench.chaos_service import REPLICAS, Replica, Service
from tests.controlplane.cluster import start_cluster
from tests.controlplane.installation import outside_of_the_cluster
from tests.controlplane.populate import CRDS, POOLS, wait_for_crds
from tests.controlplane.webhook import (
    NAMESPACE,
    PROVIDED,
    SERVICE,
    apply_configurations,
    create_certificates,
    write_overlay,
    write_policies,
)
from tests.objects import pod, saying

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.cluster import Cluster

OWN, OLD = "spotgate-own-policies", "spotgate-policies"
TEAM: Final = """
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: ours}
spec: {domains: [team.example]}
"""
OLD_LAYOUT: Final = """
- {op: replace, path: /spec/template/spec/containers/0/args/2, value: --policies=/etc/spotgate/policies}
- op: add
  path: /spec/template/spec/containers/0/volumeMounts/-
  value: {name: policies, mountPath: /etc/spotgate/policies, readOnly: true}
- {op: add, path: /spec/template/spec/volumes/-, value: {name: policies, configMap: {name: spotgate-policies}}}
"""
LABELLED: Final = orjson.dumps(saying(pod("ours"), {"team.example/a": "x"}))


def of_team(answer: chaos_load.Answer) -> Outcome:
    return Outcome.RIGHT if "[ours]" in answer.message else Outcome.LET_IN if answer.admitted else Outcome.FAILED


class Installed:
    """An installation whose Pods are processes of this host, started as the Deployment says."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        create_certificates(directory)
        (write_policies(directory / "policies") / "team.yaml").write_text(TEAM)
        self.common = [
            f"--tls-cert={directory / 'tls.crt'}",
            f"--tls-key={directory / 'tls.key'}",
            f"--tls-name={SERVICE}.{NAMESPACE}.svc",
        ]
        self.account: Path | None = None
        self.service = Service(directory, [], replicas=0)

    def overlay(self, name: str, *components: str, **more: Any) -> Path:
        """Write a kustomization of the base with these components and one that names the port of this host."""
        folder = write_overlay(self.directory / name, PROVIDED, *components)
        outside = {"outside/kustomization.yaml": outside_of_the_cluster(self.service.port)}
        own = {"kind": "Component", "apiVersion": "kustomize.config.k8s.io/v1alpha1", **more}
        for path, content in (outside | {"own/kustomization.yaml": own}).items():
            (folder / path).parent.mkdir()
            (folder / path).write_text(json.dumps(content))
        shutil.copytree(self.directory / "policies", folder / "own", dirs_exist_ok=True)
        kustomization = json.loads((folder / "kustomization.yaml").read_text())
        kustomization["components"] += ["outside", "own"]
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        return folder

    def kubelet(self) -> list[str]:
        """Write the ConfigMaps as they are now into the volumes. Return what a Pod of the Deployment is started with."""
        kubectl = self.cluster.kubectl
        stored = kubectl.get("configmaps", f"--namespace={NAMESPACE}")["items"]
        for each in stored:
            folder = self.directory / "volumes" / each["metadata"]["name"]
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in (data := each.get("data", {})).items():
                (folder / file).write_text(text)
            for gone in {file.name for file in folder.iterdir()} - data.keys():
                (folder / gone).unlink()
        spec = kubectl.get("deployment", "spotgate", f"--namespace={NAMESPACE}")["spec"]["template"]["spec"]
        volumes = {each["name"]: each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each}
        container = spec["containers"][0]
        flags = [each for each in container["args"] if each.startswith("--policies=")]
        for mount in container["volumeMounts"]:
            if name := volumes.get(mount["name"]):
                assert name in {each["metadata"]["name"] for each in stored}, "a Pod would wait for its volume"
                flags = [each.replace(mount["mountPath"], str(self.directory / "volumes" / name)) for each in flags]
        self.account = self.account or self.cluster.as_service_account(NAMESPACE, "spotgate").kubeconfig
        return [*flags, *self.common, f"--kubeconfig={self.account}"]

    async def roll(self, *replicas: Replica) -> None:
        """Replace these replicas, each once the new one is ready."""
        self.service.flags = await asyncio.to_thread(self.kubelet)
        async with asyncio.TaskGroup() as stopping:
            for replica in replicas:
                await self.service.add()
                stopping.create_task(self.service.delete(replica))


@pytest.mark.timeout(180, func_only=True)
async def test_no_verdict_is_wrong_through_a_stuck_rollout_its_rollback_and_an_upgrade(
    binaries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Write("a label of the team", "POST", "/api/v1/namespaces/default/pods", LABELLED, of_team)
    monkeypatch.setattr(chaos_load, "WRITES", (*chaos_load.WRITES, ours))
    with start_cluster(binaries) as cluster:
        kubectl = cluster.kubectl
        kubectl("apply", f"--filename={CRDS / 'coreweave.yaml'}")
        wait_for_crds(kubectl)
        kubectl("apply", f"--filename={POOLS}")
        kubectl("create", "clusterrolebinding", "platform", "--clusterrole=cluster-admin", "--group=platform")
        installed, load = Installed(cluster, tmp_path / "webhook"), Load(cluster)
        async with installed.service.running():
            files = sorted(each.name for each in (installed.directory / "policies").iterdir())
            generator = {"name": OLD, "namespace": NAMESPACE, "files": files}
            patch = {"target": {"kind": "Deployment", "name": "spotgate"}, "patch": OLD_LAYOUT}
            old = installed.overlay(
                "old", configMapGenerator=[generator], generatorOptions={"disableNameSuffixHash": True}, patches=[patch]
            )
            generator = {"name": OWN, "namespace": NAMESPACE, "behavior": "merge", "files": ["team.yaml"]}
            new = installed.overlay("new", "deny", configMapGenerator=[generator])
            apply = partial(asyncio.to_thread, kubectl, "apply")
            await apply(f"--kustomize={old}")
            installed.service.flags = await asyncio.to_thread(installed.kubelet)
            await asyncio.gather(*(installed.service.add() for _ in range(REPLICAS)))
            await asyncio.to_thread(apply_configurations, cluster, installed.directory, installed.service.port)
            writing = asyncio.create_task(load.run())
            try:
                await until_all_is_right(load)
                load.tally = tally = Tally()
                before = await asyncio.to_thread(installed.kubelet)
                await apply(f"--kustomize={new}")
                assert await asyncio.to_thread(installed.kubelet) != before
                serving = installed.service.replicas
                await installed.roll(serving[0])  # and no further: the other two are old, and one of them starts again
                installed.service.flags = before
                await asyncio.gather(installed.service.delete(serving[0]), installed.service.add())
                await asyncio.to_thread(kubectl, "rollout", "undo", "deployment/spotgate", f"--namespace={NAMESPACE}")
                assert await asyncio.to_thread(installed.kubelet) == before
                await installed.roll(serving[1])  # the new one
                await apply(f"--kustomize={new}")
                await installed.roll(*serving)
                await asyncio.sleep(1)
                await load.answered()
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            assert tally.outcomes.keys() <= {Outcome.RIGHT, Outcome.UNKNOWN}, tally.examples
            assert tally.outcomes.total() > 200
