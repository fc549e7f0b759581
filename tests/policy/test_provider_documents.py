"""CapacityProvider documents that make no sense are refused at load, each mistake with its line and field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from webhook.bundle import load_bundle
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = """\
apiVersion: spotgate.dev/v1
kind: CapacityProvider
metadata: {name: acme}
spec:
  title: Acme Metal
  spotNodeLabels: [{key: acme.example/lease, value: spot}]
  spotNodeTaints: [{key: acme.example/spot, effect: NoSchedule}]
  poolNameLabel: acme.example/fleet
  neverTolerate: [{key: acme.example/closing}]
  gpu: {taints: [{key: nvidia.com/gpu}]}
  instanceTypes: {gpu: ["gx-*"], cpu: ["cx-*"]}
  machineLabels: [{key: acme.example/family, gpu: [gx], cpu: [cx]}]
  handsOffSelectors: [acme.example/class]
  systemNamespaces: {labels: [{key: acme.example/org, value: acme}]}
  interruption: {cordonSeconds: 0, drainSeconds: 10, removalSeconds: 70}
  gracePeriod: {budgetSeconds: 60, safetyMarginSeconds: 5}
  fallback: [{require: gpu, outcome: warn, because: Pods stay pending.}]
  nodePools:
    - group: metal.acme.example
      versions: [v1]
      kind: Fleet
      resource: fleets
      capacity: {from: spec.lease, values: {spot: spot}, default: on-demand}
      size: {desired: spec.size}
      knownLabels: {acme.example/machine: spec.machine}
      unusable: [{when: status.off, because: it is off}]
      gracePeriod: {windows: [{budgetSeconds: 30, safetyMarginSeconds: 5}]}
---
apiVersion: spotgate.dev/v1
kind: NodePoolRules
metadata: {name: rules}
"""


def mistakes(folder: Path, text: str) -> list[str]:
    """Return what is said of the document, without the folder."""
    (folder / "acme.yaml").write_text(text)
    try:
        load_bundle([folder])
    except PolicyErrors as error:
        return str(error).replace(f"{folder}/", "").splitlines()
    return []


def test_a_document_that_makes_sense_is_loaded(tmp_path: Path) -> None:
    assert mistakes(tmp_path, DOCUMENT) == []


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("safetyMarginSeconds: 5}\n  fallback", "safetyMarginSeconds: -5}\n  fallback", "16: spec.gracePeriod.safetyMarginSeconds: must be greater than or equal to 0, got -5"),
        ("budgetSeconds: 60", "budgetSeconds: 0", "16: spec.gracePeriod.safetyMarginSeconds: a margin of 5 s leaves nothing of the budget of 0 s"),
        ("safetyMarginSeconds: 5}\n  fallback", "safetyMarginSeconds: 60}\n  fallback", "16: spec.gracePeriod.safetyMarginSeconds: a margin of 60 s leaves nothing of the budget of 60 s"),
        ("budgetSeconds: 60", "budgetSeconds: 61", "16: spec.gracePeriod: a budget of 61 s is more than the 60 s from drain to removal"),
        ("{budgetSeconds: 30, safetyMarginSeconds: 5}", "{budgetSeconds: 30, safetyMarginSeconds: 30}", "27: spec.nodePools[0].gracePeriod.windows[0].safetyMarginSeconds: a margin of 30 s leaves nothing of the budget of 30 s"),
        ("drainSeconds: 10", "drainSeconds: 71", "15: spec.interruption.removalSeconds: 70 s is before drainSeconds, 71 s after the notice"),
        ("cordonSeconds: 0", "cordonSeconds: 11", "15: spec.interruption.drainSeconds: 10 s is before cordonSeconds, 11 s after the notice"),
        ("lease, value: spot", "lease, value: s p", "6: spec.spotNodeLabels[0].value: expected the value of a label; got 's p'"),
        ("[{key: acme.example/lease, value: spot}]", "[{key: a, value: b}, {key: a, value: c}]", "6: spec.spotNodeLabels: a is there twice"),
        ("[{key: acme.example/spot, effect: NoSchedule}]", "[{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]", "7: spec.spotNodeTaints: a:NoSchedule is there twice"),
        ("{key: acme.example/closing}", '{key: ""}', "9: spec.neverTolerate[0].key: expected the key of a label; got ''"),
        ("[{key: acme.example/closing}]", "[{key: a}, {key: a}]", "9: spec.neverTolerate: a is there twice"),
        ('["cx-*"]', '["cx-*", "GX-*"]', "11: spec.instanceTypes.cpu: gx-* is in `gpu`, too: machines have GPUs, or they have none"),
        ('["gx-*"]', '["gx-*", "gx-*"]', "11: spec.instanceTypes.gpu: gx-* is there twice"),
        ("{key: acme.example/org, value: acme}", "{key: org, value: a/b}", "14: spec.systemNamespaces.labels[0].value: expected the value of a label; got 'a/b'"),
        ("[{require: gpu, outcome: warn, because: Pods stay pending.}]", "[{require: gpu, outcome: warn, because: A.}, {require: gpu, outcome: deny, because: B.}]", "17: spec.fallback: gpu is there twice"),
        ("resource: fleets", "resource: fleets\n      controllerFields: [status.ids]", "23: spec.nodePools[0].controllerFields[0]: 'status.ids' is no field of `spec`; write its path, as spec.providerIDList"),
        ("resource: fleets", "resource: Fleets", "22: spec.nodePools[0].resource: 'Fleets' is not a resource; write the plural in lower case, as nodepools"),
        ("from: spec.lease,", "from: upper(spec.lease),", "23: spec.nodePools[0].capacity.from: not a JMESPath expression: there is no function `upper`"),
        ("from: spec.lease,", '"from": "starts_with(spec.lease)",', "23: spec.nodePools[0].capacity.from: not a JMESPath expression: Expected 2 arguments for function starts_with(), received 1"),
        ("when: status.off", "when: nosuch(status.off)", "26: spec.nodePools[0].unusable[0].when: not a JMESPath expression: there is no function `nosuch`"),
        ("size: {desired: spec.size}", "size: {desired: spec.size, least: {machine: {memory: 5 apples}}}", "24: spec.nodePools[0].size.least.machine.memory: '5 apples' is not a quantity; write a number, or one with a unit, as 512Mi"),
        ("[{when: status.off, because: it is off}]", "[{when: a.b, because: c}, {when: a.b, because: d}]", "26: spec.nodePools[0].unusable: a.b is there twice"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert right in DOCUMENT
    found = mistakes(tmp_path, DOCUMENT.replace(right, wrong))
    lines = [re.sub(r"^acme.yaml:(\d+):\d+", r"\1", each) for each in found]
    assert lines == [said]


def test_a_kind_that_is_read_twice_is_said(tmp_path: Path) -> None:
    reader = re.search(r"    - group.*?(?=---)", DOCUMENT, re.DOTALL)
    assert reader is not None
    assert mistakes(tmp_path, DOCUMENT.replace(reader[0], reader[0] * 2)) == [
        "acme.yaml:18:3: spec.nodePools: fleets of metal.acme.example is there twice"
    ]
    other = reader[0].replace("      kind: Fleet", "      when: spec.own\n      kind: Fleet")
    assert mistakes(tmp_path, DOCUMENT.replace(reader[0], reader[0] + other)) == []
