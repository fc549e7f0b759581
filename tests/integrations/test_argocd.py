"""Argo CD ignores the fields that the webhook adds, and evaluates the manifests that it renders."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import pytest
import yaml

from tests.integrations.conftest import GITOPS, REPOS, ROOT

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell

POOLS: Final = ROOT / "tests/integrations/pools.yaml"
MAIN: Final[dict[str, Any]] = {"name": "main", "image": "example.com/main"}
MOUNTING: Final = {**MAIN, "volumeMounts": [{"name": "tmp", "mountPath": "/data"}]}
HOOK: Final = {"exec": {"command": ["true"]}}


def spot_pod(name: str, /, capacity: str = "spot", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"spotgate.dev/capacity": capacity}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [MAIN], **spec}}


def told(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["labels"]["spotgate.dev/on-reclaim"] = "inform"
    return pod


def requires(key: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


PODS: Final = (
    spot_pod("plain"),
    spot_pod("preferred", capacity="spot-preferred"),
    spot_pod("with-tolerations", tolerations=[{"key": "example.com/own", "operator": "Exists"}]),
    spot_pod("with-selector", nodeSelector={"kubernetes.io/arch": "amd64"}),
    spot_pod("with-affinity", affinity=requires("example.com/zone")),
    spot_pod("with-a-hook", containers=[{**MAIN, "lifecycle": {"postStart": HOOK}}, {**MAIN, "name": "second"}]),
    spot_pod("with-its-own-sleep", containers=[{**MAIN, "lifecycle": {"preStop": HOOK}}]),
    spot_pod("with-gpus", containers=[{**MAIN, "resources": {"limits": {"nvidia.com/gpu": 8}}}]),
    spot_pod("with-a-sidecar", initContainers=[{**MAIN, "name": "sidecar", "restartPolicy": "Always"}]),
    told(spot_pod("told", initContainers=[{**MAIN, "name": "sidecar", "restartPolicy": "Always"}])),
    told(spot_pod("told-with-a-volume", volumes=[{"name": "tmp", "emptyDir": {}}], containers=[MOUNTING])),
)


@pytest.fixture(scope="module")
def expressions(shell: Shell) -> list[str]:
    """Return the printed expressions, which must only concern Pods."""
    printed = yaml.safe_load(shell("spotgate webhook-config --ignore-differences", ROOT).stdout)
    (rule,) = printed["ignoreDifferences"]
    assert (rule["group"], rule["kind"]) == ("", "Pod")
    expressions: list[str] = rule["jqPathExpressions"]
    return expressions


def mutated_pods(shell: Shell, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the Pods in the cluster by name."""
    file = folder / "pods.yaml"
    file.write_text(yaml.safe_dump_all(PODS))
    report = json.loads(shell(f"spotgate check -o json --state {POOLS} {file}", ROOT).stdout)
    patches = {patch["name"]: patch["patch"] for patch in report["patches"]}
    return {pod["metadata"]["name"]: jsonpatch.apply_patch(pod, patches[pod["metadata"]["name"]]) for pod in PODS}


def without_ignored(expressions: list[str], value: dict[str, Any], gojq: Path) -> Any:
    """Return the object as Argo CD compares it: apply the expressions one after another."""
    program = " | ".join(f"del({path})" for path in expressions)
    done = subprocess.run([str(gojq), program], input=json.dumps(value), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_injected_fields_are_no_difference(shell: Shell, expressions: list[str], gojq: Path, tmp_path: Path) -> None:
    mutated = mutated_pods(shell, tmp_path)
    for given in PODS:
        live = mutated[given["metadata"]["name"]]
        assert live != given
        assert without_ignored(expressions, live, gojq) == without_ignored(expressions, given, gojq)
    added = {name for pod in mutated.values() for name in pod["spec"]}
    assert {"affinity", "nodeSelector", "terminationGracePeriodSeconds", "tolerations", "volumes"} <= added
    assert any("preStop" in pod["spec"]["containers"][0].get("lifecycle", {}) for pod in mutated.values())


def test_other_changes_are_a_difference(expressions: list[str], gojq: Path) -> None:
    changed = spot_pod("plain", serviceAccountName="other", containers=[{**MAIN, "lifecycle": {"postStart": HOOK}}])
    assert without_ignored(expressions, changed, gojq) == changed


@pytest.mark.parametrize("enforcement", ["audit", "off"])
def test_policies_that_change_nothing_are_not_counted(shell: Shell, tmp_path: Path, enforcement: str) -> None:
    (tmp_path / "policies.yaml").write_text(
        f"apiVersion: spotgate.dev/v1\nkind: SpotPlacement\nmetadata: {{name: x}}\nspec: {{enforcement: {enforcement}}}\n"
    )
    done = shell("spotgate webhook-config --ignore-differences --policies policies.yaml", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ignoreDifferences: []\n", "")


# The plugin


@pytest.fixture
def generate() -> str:
    """Return the command that the plugin runs in an application's folder."""
    plugin = yaml.safe_load((GITOPS / "argocd/plugin.yaml").read_text())
    assert (plugin["apiVersion"], plugin["kind"]) == ("argoproj.io/v1alpha1", "ConfigManagementPlugin")
    *shell, script = plugin["spec"]["generate"]["command"]
    assert shell == ["bash", "-euo", "pipefail", "-c"]
    return str(script)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(REPOS / "kustomize-overlays", tmp_path / "repo"))
    (folder / ".spotgate.yaml").write_text("state: [cluster]\n")
    return folder


def test_plugin_prints_the_judged_manifests(shell: Shell, repo: Path, generate: str, kustomize: Path) -> None:
    done = shell(generate, repo / "overlays/prod", kustomize)
    assert done.returncode == 0, done.stderr
    kinds = [item["kind"] for item in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == ["Deployment", "PodDisruptionBudget", "Service"]


def test_plugin_fails_on_a_denial_and_names_it(shell: Shell, repo: Path, generate: str, kustomize: Path) -> None:
    done = shell(generate, repo / "overlays/staging", kustomize)
    assert (done.returncode, done.stdout) == (1, "")
    assert "deny  Deployment shop-staging/storefront  reserved-labels" in done.stderr


def test_plugin_discovers_buildable_folders(shell: Shell, repo: Path) -> None:
    plugin = yaml.safe_load((GITOPS / "argocd/plugin.yaml").read_text())
    glob = plugin["spec"]["discover"]["fileName"]
    assert shell(f"ls {glob}", repo / "overlays/prod").returncode == 0
