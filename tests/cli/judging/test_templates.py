"""Every command evaluates every pod template of `policies/workloads.yaml` on every provider.

A template has one way to target spot on each provider, and each way on some of them: evaluating all combinations would
take four times as long.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import BUNDLE, merged, node_pool, pod_spec, response, review, workload_at
from webhook.base.field_paths import parse_field_path
from webhook.inputs.state import FileState
from webhook.kube.defaults import default_object
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run, Write
    from webhook.capacity.providers.provider import Provider

JSON = dict[str, Any]

KINDS = {(kind.group, kind.kind): kind for kind in BUNDLE.index.workloads.values()}
CAPACITY = "spotgate.dev/capacity"
RESERVED = "foo.coreweave.com/bar"
SPEC = pod_spec(gpus=1, terminationGracePeriodSeconds=900, timeoutSeconds=900, restartPolicy="Never")  # Knative's, too


def state_of(provider: Provider) -> tuple[list[JSON], JSON]:
    """Return a cluster of the provider with a spot pool, and the selector of that pool."""
    labels = {label.key: label.value for label in provider.spot_node_labels[:1]}
    taints = [{"key": s.taint.key, "value": s.taint.value, "effect": s.taint.effect} for s in provider.spot_node_taints]
    nodes = {"spot": (labels, taints), "on-demand": ({}, [])}
    named = provider.pool_name_label or "example.com/pool"  # not every provider has such a label
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**own, named: name}},
            "spec": {"taints": tainted},
        }
        for name, (own, tainted) in nodes.items()
    ]
    if not labels:  # CKS: only the pools tell
        objects += [node_pool("spot", computeClass="spot"), node_pool("on-demand")]
    for name, own in (("team-a", {}), ("team-spot", {CAPACITY: "spot"})):
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own}})
    return objects, labels or {named: "spot"}


WAYS: tuple[tuple[str, str, JSON], ...] = (
    ("spot", "team-a", {CAPACITY: "spot"}),
    ("preferred", "team-a", {CAPACITY: "spot-preferred"}),
    ("selector", "team-a", {}),
    ("namespace", "team-spot", {}),
)
"""The name of each way to target spot, the namespace, and the labels."""


def workloads(selector: JSON, first: int) -> Iterator[JSON]:
    """Yield a workload for each template path; the first one targets spot in the way of this number."""
    ways = itertools.islice(itertools.cycle(WAYS), first, None)
    for kind in KINDS.values():
        for number, path in enumerate(kind.paths):
            way, namespace, labels = next(ways)
            metadata = {"name": f"{way}-{number}", **({"namespace": namespace} if kind.namespaced else {})}
            spec = {**SPEC, **({"nodeSelector": selector} if way == "selector" else {})}
            pod = {"metadata": {"labels": {RESERVED: "x", **labels}}, "spec": spec}
            head = {"apiVersion": f"{kind.group}/v1".lstrip("/"), "kind": kind.kind, "metadata": metadata}
            yield merged(workload_at(path, pod), head)


def has(value: Any, field: str) -> bool:
    """Return whether the object has the field."""
    for step in parse_field_path(field):
        if not (step in value if isinstance(value, dict) else isinstance(step, int) and step < len(value)):
            return False
        value = value[step]
    return True


def identity(value: JSON) -> tuple[str, str, str]:
    return (value["apiVersion"], value["kind"], value.get("name") or value["metadata"]["name"])


@pytest.mark.parametrize("name", BUNDLE.providers)
def test_every_template_is_judged(name: str, run: Run, write: Write) -> None:
    objects, selector = state_of(BUNDLE.providers[name])
    values = list(workloads(selector, list(BUNDLE.providers).index(name)))
    state = write("state.yaml", yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    file = write("in.yaml", yaml.dump_all(values, Dumper=yaml.CSafeDumper, sort_keys=False))

    denied = {identity(value) for value in values if RESERVED in json.dumps(value)}
    explained = run("explain", "--state", state, file)
    assert (explained.code, explained.err) == (0, "")
    assert explained.out.count("\ndenies ") == len(denied)

    view = FileState([state], BUNDLE.providers).view()
    for value in values:
        kind = KINDS[value["apiVersion"].rpartition("/")[0], value["kind"]]
        namespace = value["metadata"].get("namespace", "")
        body = review(value, f"{kind.group}/{kind.resource}", kind=kind.kind, namespace=namespace)
        allowed = [response(body, phase, view)["allowed"] for phase in Phase]
        assert allowed == [True, identity(value) not in denied]

    fixed = run("fix", "--state", state, file)
    assert (fixed.code, fixed.out) == (0, f"{file}: changed\n")

    checked = run("check", "-o", "json", "--state", state, file)
    assert (checked.code, checked.err) == (1, "")
    results = checked.json["results"]
    assert checked.json["summary"]["documents"] == len(values)
    assert checked.json["patches"] == []
    assert {identity(result) for result in results if result["outcome"] == "deny"} == denied
    known = {identity(value): value for value in values}
    for value in values:
        default_object(value["apiVersion"].rpartition("/")[0], value["kind"], value)
    assert [result for result in results if not has(known[identity(result)], result["field"])] == []
