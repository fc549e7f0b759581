"""The kustomize components and the Helm chart render the same objects, with the webhooks of `spotgate webhook-config`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

import webhook
from webhook.commands import main
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.registration.configurations import configurations
from webhook.runtime.address import Address
from webhook.runtime.rehearsals import KEY
from webhook.server.serve import ServeOptions, build_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
CHART: Final = MANIFESTS / "chart"
INSTALL: Final = MANIFESTS.parent / "docs" / "install.md"
OWN: Final = ("ConfigMap", "spotgate-own-policies")
REPOSITORY, DIGEST = "registry.example.com/spotgate", f"sha256:{64 * 'a'}"

# Overlays, components for certificates and the mode, and the equivalent chart values.
COMBINATIONS: Final[dict[str, tuple[str, list[str], list[str]]]] = {
    "any": ("eks", ["self-managed", "audit", "monitoring"], ["enforcement=deny", "audit=true", "monitoring=true"]),
    "audit": ("eks", ["audit", "self-managed", "warn-only"], ["enforcement=warn", "audit=true"]),
    "cks": (
        "cks",
        ["on-demand-floor", "reclaim-notice", "cert-manager", "audit-only"],
        [
            *("platform=cks", "onDemandPool=cpu", "certificates.from=cert-manager"),
            *("onDemandFloor.enabled=true", "reclaimNotice.enabled=true"),
        ],
    ),
    "gke": ("gke", ["provided-certs", "warn-only"], ["platform=gke", "certificates.from=provided", "enforcement=warn"]),
    "eks": ("eks", ["self-managed", "strict"], ["platform=eks", "enforcement=deny", "workloadFailurePolicy=Fail"]),
    "eks-overlay-cni": ("eks-overlay-cni", ["self-managed", "audit-only"], ["platform=eks", "hostNetwork=true"]),
    "aks": (
        "aks",
        ["cert-manager", "warn-only"],
        ["platform=aks", "certificates.from=cert-manager", "enforcement=warn"],
    ),
}


def run(*command: str | Path, succeeds: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode == 0) is succeeds, done.stderr
    return done.stdout if succeeds else done.stderr


def by_kustomize(
    kustomize: Path, folder: Path, overlay: str, components: list[str], webhooks: list[JSON] | None = None
) -> list[JSON]:
    """Build an overlay with these components and configurations instead of the shipped ones."""
    shipped = (MANIFESTS / "overlays" / overlay / "kustomization.yaml").read_text()
    for placeholder, value in (
        ("../..", os.path.relpath(MANIFESTS, folder.resolve())),
        ("replace this with your on-demand pool (docs/install.md)", "cpu"),
        ('newName: ""', f"newName: {REPOSITORY}"),
        ('digest: ""', f"digest: {DIGEST}"),
    ):
        shipped = shipped.replace(placeholder, value)
    kustomization = yaml.safe_load(shipped)
    *platform, certificates, _mode = kustomization["components"]
    shipped = str(Path(certificates).parent)
    named = (name if (folder / name).is_dir() else f"{shipped}/{name}" for name in components)
    kustomization["components"] = [*platform, *named]
    if webhooks is not None:
        (folder / "webhooks.yaml").write_text(yaml.safe_dump_all(webhooks))
        kustomization["resources"][-1] = "webhooks.yaml"
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return list(yaml.safe_load_all(run(kustomize, "build", folder)))


def by_helm(helm: Path, values: list[str], namespace: str = "spotgate-system") -> list[JSON]:
    image = [f"image.repository={REPOSITORY}", f"image.digest={DIGEST}"]
    flags = [f"--set={value}" for value in [*image, *values]]
    rendered = run(helm, "template", "spotgate", CHART, f"--namespace={namespace}", *flags)
    return [item for item in yaml.safe_load_all(rendered) if item]


def comparable(things: Iterable[JSON]) -> dict[tuple[str, str], JSON]:
    """Return the objects by kind and name, without equivalent differences."""
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in things}
    by_name.pop(("Namespace", "spotgate-system"), None)  # with Helm, users create it
    for item in by_name.values():
        item.get("webhooks", []).sort(key=lambda webhook: webhook["name"])  # validating webhooks run in parallel
    if own := by_name.get(OWN):
        own["metadata"].pop("annotations", None)  # Helm deletes omitted objects in an upgrade, `kubectl apply` doesn't
        of_mode = {"enforcement": "deny", "workloadFailurePolicy": "Ignore"}
        written = yaml.safe_load(own["data"]["mode.yaml"])
        own["data"]["mode.yaml"] = written | {"spec": of_mode | written["spec"]}
    pod = by_name["Deployment", "spotgate"]["spec"]["template"]["spec"]
    pod["volumes"].sort(key=lambda volume: volume["name"])
    (container,) = pod["containers"]
    container["args"].sort()
    container["volumeMounts"].sort(key=lambda mount: mount["name"])
    return by_name


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_chart_renders_the_objects_of_the_kustomization(
    name: str, helm: Path, kustomize: Path, tmp_path: Path
) -> None:
    overlay, components, values = COMBINATIONS[name]
    ours = comparable(by_kustomize(kustomize, tmp_path, overlay, components))
    theirs = comparable(by_helm(helm, values))
    assert ours.keys() == theirs.keys()
    for key, item in ours.items():
        assert theirs[key] == item


def test_rehearsals_and_webhook_share_policies_and_the_result(kustomize: Path, tmp_path: Path) -> None:
    things = comparable(by_kustomize(kustomize, tmp_path, "gke", ["rehearsal", "self-managed", "audit-only"]))
    (served,) = things["Deployment", "spotgate"]["spec"]["template"]["spec"]["containers"]
    job = things["CronJob", "spotgate-rehearsal"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (rehearsing,) = job["containers"]
    for flags in (served["args"], rehearsing["args"]):
        assert {"--policies=shipped", "--policies=/etc/spotgate/own"} <= {*flags}
    assert f"--rehearsal=/etc/spotgate/rehearsal/{KEY}" in served["args"]
    assert "--publish=spotgate-system/spotgate-rehearsal" in rehearsing["args"]
    assert {volume["name"] for volume in job["volumes"]} == {volume["name"] for volume in rehearsing["volumeMounts"]}
    assert rehearsing["image"] != served["image"]


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_program_renders_the_webhooks_of_a_kustomization(name: str, kustomize: Path, tmp_path: Path) -> None:
    overlay, components, _ = COMBINATIONS[name]
    things = {item["kind"]: item for item in by_kustomize(kustomize, tmp_path, overlay, components)}
    assert_as_rendered(things, served_policies(things, tmp_path / "own"))


def served_policies(things: dict[str, JSON], own: Path) -> list[Path]:
    """Return the policies of the Deployment and the CronJob; write those of the ConfigMap to a folder."""
    args = [_pod(item)["containers"][0]["args"] for kind, item in things.items() if kind in {"Deployment", "CronJob"}]
    (named,) = {tuple(arg for arg in line if arg.startswith("--policies=")) for line in args}
    assert named in {("--policies=shipped",), ("--policies=shipped", "--policies=/etc/spotgate/own")}
    assert (len(named) == 2) == ("ConfigMap" in things)
    if "ConfigMap" not in things:
        return [SHIPPED]
    own.mkdir()
    for file, text in things["ConfigMap"]["data"].items():
        (own / file).write_text(text)
    return [SHIPPED, own]


def _pod(thing: JSON) -> JSON:
    spec: JSON = (thing["spec"]["jobTemplate"] if thing["kind"] == "CronJob" else thing)["spec"]["template"]["spec"]
    return spec


def rendered(*policies: Path) -> list[JSON]:
    service = {"name": "spotgate", "namespace": "spotgate-system", "port": 443}
    return configurations(load_bundle(policies), {"service": service})


def assert_as_rendered(things: dict[str, JSON], policies: list[Path]) -> None:
    for expected in rendered(*policies):
        webhooks = {webhook["name"]: webhook for webhook in things[expected["kind"]]["webhooks"]}
        assert webhooks == {webhook["name"]: webhook for webhook in expected["webhooks"]}


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("audit-only", "graceful-termination"),  # has no webhook for node pools or Namespaces
        ("warn-only", "graceful-termination"),
        ("strict", "graceful-termination"),
        ("strict", "reserved-labels"),  # has no webhook for namespaces that target spot
        ("strict", "on-demand-fallback"),  # has only the webhook for node pools
    ],
)
def test_a_mode_adds_no_webhooks_for_fewer_policies(mode: str, policy: str, kustomize: Path, tmp_path: Path) -> None:
    alone = SHIPPED / f"{policy}.yaml"
    built = by_kustomize(kustomize, tmp_path, "eks", ["self-managed", mode], rendered(alone))
    things = {item["kind"]: item for item in built}
    (tmp_path / "mode.yaml").write_text(things["ConfigMap"]["data"]["mode.yaml"])
    assert_as_rendered(things, [alone, tmp_path / "mode.yaml"])


TEAM: Final = """
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: graceful-termination}
spec: {overBudget: deny}
"""


def test_a_team_policy_replaces_the_shipped_one_in_chart_overlay_and_command_line(
    helm: Path, kustomize: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = tmp_path / "overlay"
    (overlay / "own").mkdir(parents=True)
    (overlay / "own" / "team.yaml").write_text(TEAM)
    (generator,) = re.findall(r"```yaml\n(apiVersion: .*?)```", INSTALL.read_text(), re.DOTALL)
    (overlay / "own" / "kustomization.yaml").write_text(generator)
    for path in (overlay / "own", overlay / "own" / "team.yaml"):  # the name makes no difference
        assert main(["webhook-config", "--policies=shipped", f"--policies={path}"]) == 0
        (tmp_path / "webhooks.yaml").write_text(text := capsys.readouterr().out)
        files = {"policies.a\\.yaml": overlay / "own" / "team.yaml", "webhooks": tmp_path / "webhooks.yaml"}
        flags = [f"--set-file={value}={file}" for value, file in files.items()]
        command: list[str | Path] = [
            helm,
            "template",
            "spotgate",
            CHART,
            "--namespace=spotgate-system",
            f"--set={IMAGE},{DENY}",
            *flags,
        ]
        theirs = {item["kind"]: item for item in yaml.safe_load_all(run(*command)) if item}
    webhooks = list(yaml.safe_load_all(text))
    components = ["audit", "self-managed", "deny", "own"]
    ours = {item["kind"]: item for item in by_kustomize(kustomize, overlay, "eks", components, webhooks)}
    expected = documents([SHIPPED, overlay / "own"])
    assert expected["GracefulTermination", "graceful-termination"]["spec"] == {"overBudget": "deny"}
    for name, things in (("ours", ours), ("theirs", theirs)):
        assert documents(served_policies(things, tmp_path / name)) == expected
        assert_as_rendered(things, [SHIPPED, overlay / "own"])


def documents(policies: list[Path]) -> dict[tuple[str, str], Any]:
    """Return the documents that `serve` loads from these, without the mode."""
    nowhere = Address("127.0.0.1", 0)
    bundle = build_snapshot(ServeOptions(listen=nowhere, ops=nowhere, policies=policies)).bundle
    return {(item.kind, item.name): item.document.value for item in bundle.documents if item.kind != "Mode"}


def test_on_cks_a_lost_pool_patch_leaves_a_placeholder(kustomize: Path, tmp_path: Path) -> None:
    """Kustomize silently uses the last of two lists of patches in one file."""
    by_kustomize(kustomize, tmp_path, "cks", ["self-managed", "audit-only"])
    kustomization = json.loads((tmp_path / "kustomization.yaml").read_text())
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization | {"patches": []}))
    things = {item["kind"]: item for item in yaml.safe_load_all(run(kustomize, "build", tmp_path))}
    selector = things["Deployment"]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector["compute.coreweave.com/node-pool"].startswith("replace this")


def test_a_release_lives_in_its_namespace(helm: Path) -> None:
    things = by_helm(helm, ["certificates.from=cert-manager"], namespace="platform")
    assert "spotgate-system" not in json.dumps(
        [item for item in things if item["kind"] != "ConfigMap"]  # shipped policies may use the default name
    )
    services = [hook["clientConfig"]["service"] for item in things for hook in item.get("webhooks", ())]
    assert {service["namespace"] for service in services} == {"platform"}


def test_own_policies_and_a_ca_are_passed_to_the_program(helm: Path, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("kind: ReservedLabels\n")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nMII\n")
    text = (MANIFESTS / "webhooks" / "webhooks.yaml").read_text()
    of_team = hashlib.sha256(hashlib.sha256(b"kind: ReservedLabels\n").hexdigest().encode()).hexdigest()
    (tmp_path / "webhooks.yaml").write_text(text.replace(hashlib.sha256().hexdigest(), of_team))
    image = f"--set=image.repository={REPOSITORY},certificates.from=provided,replicas=2,port=9443,opsPort=9090"
    prometheus = "--set=monitoring=true,monitoringLabels.release=prom"
    files = {"policies.team\\.yaml": "team.yaml", "webhooks": "webhooks.yaml", "certificates.caBundle": "ca.crt"}
    flags = [f"--set-file={value}={tmp_path / file}" for value, file in files.items()]
    network = (
        '--set-json=networkPolicy={"apiServer": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "metricsNamespace": "prom"}'
    )
    things = list(yaml.safe_load_all(run(helm, "template", "spotgate", CHART, image, network, prometheus, *flags)))
    by_kind = {item["kind"]: item for item in things}
    assert by_kind["ConfigMap"]["data"]["team.yaml"] == "kind: ReservedLabels\n"
    assert len({hook["clientConfig"]["caBundle"] for item in things for hook in item.get("webhooks", ())}) == 1
    assert by_kind["PodMonitor"]["metadata"]["labels"]["release"] == "prom"
    deployment = by_kind["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2
    assert container["image"] == f"{REPOSITORY}:{webhook.__version__}"
    assert [port["containerPort"] for port in container["ports"]] == [9443, 9090]
    assert {"--listen=0.0.0.0:9443", "--ops=0.0.0.0:9090"} <= {*container["args"]}
    reviews, operators = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert reviews["from"] == [{"ipBlock": {"cidr": "10.0.0.0/24"}}]
    assert operators["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "prom"}


IMAGE: Final = f"image.repository={REPOSITORY}"
DENY: Final = "enforcement=deny,audit=true"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([], "image.repository names no image: --set image.repository="),
        (["image.repository=<your registry>/spotgate"], "at '/image/repository'"),
        ([f"{IMAGE}:v1"], "at '/image/repository'"),
        ([IMAGE, "image.digest=latest"], "at '/image/digest'"),
        ([IMAGE, "platform=eks", "onDemandPool=cpu"], "onDemandPool selects nodes by a label that only CKS has"),
        ([IMAGE, "port=8080"], "port and opsPort are both 8080: set another one"),
        ([IMAGE, "platform=gke", "hostNetwork=true"], "port 10250 of each host is the kubelet's: --set port=8443"),
        ([IMAGE, "platform=cks"], "onDemandPool is not set: CKS does not label spot nodes"),
        ([IMAGE, "platform=azure"], "at '/platform': value must be one of '', 'cks', 'gke', 'eks', 'aks'"),
        ([IMAGE, "replicas=three"], "at '/replicas': got string, want integer"),
        ([IMAGE, "hostNetwork=on"], "at '/hostNetwork': got string, want boolean"),
        ([IMAGE, "enforcemnt=deny"], "additional properties 'enforcemnt' not allowed"),
        ([IMAGE, "enforcement=off"], "at '/enforcement': value must be one of 'audit', 'warn', 'deny'"),
        ([IMAGE, "certificates.from=vault"], "at '/certificates/from': value must be one of"),
        ([IMAGE, "workloadFailurePolicy=Fail"], "workloadFailurePolicy: Fail needs enforcement: deny"),
        ([IMAGE, "policies.mode\\.yaml=x"], "invalid propertyName 'mode.yaml'"),
        (
            [IMAGE, "webhooks=x"],
            f"they are not what spotgate {webhook.__version__} prints for `policies`: run `spotgate",
        ),
        ([IMAGE, "webhooks=# empty"], "the file has no ValidatingWebhookConfiguration"),
        (
            [IMAGE, "policies.team\\.yaml=x"],
            "spotgate webhook-config --policies shipped --policies FILES > webhooks.yaml",
        ),
    ],
)
def test_bad_values_are_rejected_with_the_problem(values: list[str], error: str, helm: Path) -> None:
    flags = [f"--set={value}" for value in values]
    assert error in run(helm, "template", "spotgate", CHART, *flags, succeeds=False)


def test_the_chart_lints_and_its_package_is_complete(helm: Path, tmp_path: Path) -> None:
    assert "0 chart(s) failed" in run(helm, "lint", CHART, f"--set={IMAGE}", "--strict")
    run(helm, "package", CHART, f"--destination={tmp_path}")
    package = tmp_path / f"spotgate-{webhook.__version__}.tgz"
    assert run(helm, "template", "spotgate", package, f"--set={IMAGE}") == run(
        *(helm, "template", "spotgate", CHART, f"--set={IMAGE}")
    )


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema.keys() - {"global"} == values.keys()
    for name in ("image", "certificates", "networkPolicy"):
        assert schema[name]["properties"].keys() == values[name].keys()
