"""The clusters of the zoo: what is expected there, and what `spotgate check` makes of the same workloads."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import yaml

from webhook.commands import main
from webhook.engine.bundle import SHIPPED

JSON = dict[str, Any]

ZOO = Path(__file__).parent
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DEFAULT_GRACE = 30


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a workload is to become; README.md explains the fields."""

    grace: int
    nodes: list[str] | str
    tolerations: list[str] = []
    node_selector: dict[str, str] = {}
    node_affinity: list[JSON] = []
    preferred: list[JSON] = []
    findings: list[str] = []
    pod: JSON = {}
    workload: str = ""


class ProviderAdds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A toleration that the provider's own admission adds to Pods, and to which."""

    toleration: JSON
    unless_requesting: str = ""
    when_selecting: str = ""

    def holds_for(self, spec: JSON) -> bool:
        """Return whether a Pod with this spec gets the toleration."""
        if self.when_selecting:
            return self.when_selecting in spec.get("nodeSelector", {})
        return not any(self.unless_requesting in each["resources"].get("limits", {}) for each in spec["containers"])


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file of expectations."""

    cluster: str
    sources: list[dict[str, str]]
    workloads: dict[str, Expected]
    this_cluster: str = ""
    state: list[str] = []
    nodes: str = "nodes.yaml"
    provider: str = ""
    provider_adds: ProviderAdds | None = None


FILES = sorted(ZOO.glob("*/expected*.yaml"))
NAMES = [f"{file.parent.name}{file.stem.removeprefix('expected')}" for file in FILES]
CLUSTERS = {
    name: (file.parent, msgspec.convert(yaml.safe_load(file.read_text()), Cluster))
    for name, file in zip(NAMES, FILES, strict=True)
}
WORKLOADS: dict[str, JSON] = yaml.safe_load((ZOO / "workloads.yaml").read_text())


def nodes_of(name: str) -> list[JSON]:
    """Return the Nodes of the cluster."""
    folder, cluster = CLUSTERS[name]
    return list(yaml.safe_load_all((folder / cluster.nodes).read_text()))


def workloads_of(name: str) -> dict[str, JSON]:
    """Return the workloads of the cluster as its users write them, each under the name of its entry."""
    return {entry: _workload(entry, expected) for entry, expected in CLUSTERS[name][1].workloads.items()}


def _workload(entry: str, expected: Expected) -> JSON:
    thing: JSON = json.loads(json.dumps(WORKLOADS[expected.workload or entry]))
    thing["metadata"]["name"] = entry
    merge(template_of(thing), expected.pod)
    return thing


def template_of(workload: JSON) -> JSON:
    """Return the pod template in question; of a Ray cluster that of its workers."""
    spec = workload["spec"]
    template: JSON = spec["template"] if "template" in spec else spec["workerGroupSpecs"][0]["template"]
    return template


def merge(target: JSON, patch: JSON) -> None:
    """Lay a JSON merge patch without nulls over an object."""
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def check(name: str, file: Path) -> tuple[dict[str, JSON], dict[str, list[str]]]:
    """Run `spotgate check` on the workloads of the cluster. Return them as patched, and the ids found, by entry."""
    folder, cluster = CLUSTERS[name]
    workloads = workloads_of(name)
    file.write_text("---\n".join(json.dumps(each) + "\n" for each in workloads.values()))
    state = cluster.state or sorted(each.name for each in folder.glob("*.yaml") if _is_state(each, cluster))
    arguments = ["check", str(file), "--output", "json", "--policies", str(SHIPPED)]
    if cluster.provider:
        arguments += ["--policies", str(folder / cluster.provider)]
    if cluster.this_cluster:
        arguments += ["--cluster", cluster.this_cluster]
    for path in (ZOO / "namespaces.yaml", *(folder / each for each in state)):
        arguments += ["--state", str(path)]
    report = run(arguments)
    found: dict[str, list[str]] = {}
    for result in report["results"]:
        found.setdefault(result["name"], []).append(result["id"])
    for patched in report["patches"]:
        workloads[patched["name"]] = jsonpatch.apply_patch(workloads[patched["name"]], patched["patch"])
    return workloads, found


def _is_state(file: Path, cluster: Cluster) -> bool:
    return file.stem in ("pools", "computeclass") or file.name == cluster.nodes


def run(arguments: list[str]) -> Any:
    """Run the command line and return the report that it prints."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    errors = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        main(arguments)
        output.flush()
    sys.stderr.write(errors.getvalue())
    return json.loads(output.buffer.getvalue() or b"{}")


def differences(name: str, workloads: dict[str, JSON], found: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """Return what is not as expected, by entry and field; also findings about anything but the workloads."""
    expected = CLUSTERS[name][1].workloads
    differing = {
        entry: {
            field: f"{got[field]}, expected {want}"
            for got in [_described(template_of(workload), found.get(entry, []))]
            for field, want in _wanted(expected[entry]).items()
            if got[field] != want
        }
        for entry, workload in workloads.items()
    }
    others = {other: {"findings": str(ids)} for other, ids in found.items() if other not in expected}
    return {entry: fields for entry, fields in differing.items() if fields} | others


def _described(pod: JSON, ids: list[str]) -> JSON:
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    return {
        "tolerations": sorted(map(_toleration, spec.get("tolerations") or [])),
        "nodeSelector": spec.get("nodeSelector") or {},
        "nodeAffinity": [_term(term) for term in terms],
        "preferred": [_term(each["preference"]) for each in affinity.get(PREFERRED) or []],
        "grace": spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE),
        "findings": sorted(ids),
    }


def _wanted(expected: Expected) -> JSON:
    return {
        "tolerations": sorted(expected.tolerations),
        "nodeSelector": expected.node_selector,
        "nodeAffinity": expected.node_affinity,
        "preferred": expected.preferred,
        "grace": expected.grace,
        "findings": sorted(expected.findings),
    }


def _toleration(toleration: JSON) -> str:
    if "key" not in toleration:
        return "*"
    value = "*" if toleration.get("operator") == "Exists" else toleration.get("value", "")
    return f"{toleration['key']}{value and f'={value}'}:{toleration['effect']}"


def _term(term: JSON) -> JSON:
    told: JSON = {}
    for each in term["matchExpressions"]:
        assert each["key"] not in told, f"two requirements on {each['key']}"
        values = sorted(each.get("values", []))
        told[each["key"]] = {"In": values, "NotIn": {"notIn": values}, "DoesNotExist": {}}[each["operator"]]
    return told
