"""Invalid CapacityProvider documents are rejected, each mistake with its line and field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from webhook.engine.bundle import SHIPPED, load_bundle
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
  reclaimNotice: [{type: taint, key: acme.example/reclaimed, values: ["a b*"], removalSeconds: 60}]
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
    """Return the document's mistakes, without the folder in their paths."""
    (folder / "acme.yaml").write_text(text)
    try:
        load_bundle([folder])
    except PolicyErrors as error:
        return str(error).replace(f"{folder}/", "").splitlines()
    return []


def test_a_valid_document_is_loaded(tmp_path: Path) -> None:
    assert mistakes(tmp_path, DOCUMENT) == []


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("safetyMarginSeconds: 5}\n  reclaimNotice", "safetyMarginSeconds: -5}\n  reclaimNotice", "16: spec.gracePeriod.safetyMarginSeconds: must be greater than or equal to 0, got -5"),
        ("budgetSeconds: 60", "budgetSeconds: 61", "4: spec: `gracePeriod.budgetSeconds` is 61, and only 60 s pass from `interruption.drainSeconds` to `removalSeconds`; correct one of them"),
        ("safetyMarginSeconds: 5}\n  reclaimNotice", "safetyMarginSeconds: 61}\n  reclaimNotice", "16: spec.gracePeriod.safetyMarginSeconds: 61 s is more than `budgetSeconds`, which is 60 s; correct one of them"),
        ("budgetSeconds: 30, safetyMarginSeconds: 5", "budgetSeconds: 30, safetyMarginSeconds: 31", "28: spec.nodePools[0].gracePeriod.windows[0].safetyMarginSeconds: 31 s is more than `budgetSeconds`, which is 30 s; correct one of them"),
        ("drainSeconds: 10, removalSeconds: 70", "drainSeconds: 100, removalSeconds: 70", "15: spec.interruption.drainSeconds: 100 s is more than `removalSeconds`, which is 70 s; correct one of them"),
        ("removalSeconds: 60}", "drainSeconds: 61, removalSeconds: 60}", "17: spec.reclaimNotice[0].drainSeconds: 61 s is more than `removalSeconds`, which is 60 s; correct one of them"),
        ("lease, value: spot", "lease, value: s p", "6: spec.spotNodeLabels[0].value: expected the value of a label; got 's p'"),
        ("{key: acme.example/closing}", '{key: ""}', "9: spec.neverTolerate[0].key: expected the key of a label; got ''"),
        ("{key: acme.example/org, value: acme}", "{key: org, value: a/b}", "14: spec.systemNamespaces.labels[0].value: expected the value of a label; got 'a/b'"),
        ("resource: fleets", "resource: fleets\n      controllerFields: [status.ids]", "24: spec.nodePools[0].controllerFields[0]: 'status.ids' isn't a field of `spec`; write its path, such as spec.providerIDList"),
        ("resource: fleets", "resource: Fleets", "23: spec.nodePools[0].resource: 'Fleets' is not a resource; write the lowercase plural, such as nodepools"),
        ("from: spec.lease,", "from: upper(spec.lease),", "24: spec.nodePools[0].capacity.from: not a JMESPath expression: there is no function `upper`"),
        ("from: spec.lease,", 'from: "spec.[",', "24: spec.nodePools[0].capacity.from: not a JMESPath expression: …"),
        ("group: metal.acme.example", "group: acme/v1", "20: spec.nodePools[0].group: expected '' for the core group, or a name such as apps; got 'acme/v1'"),
        ("kind: Fleet", "kind: fleets", "22: spec.nodePools[0].kind: expected a singular in CamelCase, such as Deployment; got 'fleets'"),
        ("when: status.off", "when: nosuch(status.off)", "27: spec.nodePools[0].unusable[0].when: not a JMESPath expression: there is no function `nosuch`"),
        ("type: taint", "type: event", "17: spec.reclaimNotice[0].type: …"),
        ("key: acme.example/reclaimed", "key: acme.example/", "17: spec.reclaimNotice[0].key: expected the key of a label; got 'acme.example/'"),
        ("removalSeconds: 60}", "removalSeconds: 1m}", "17: spec.reclaimNotice[0].removalSeconds: …"),
        ('values: ["a b*"]', "value: a", "17: spec.reclaimNotice[0].value: …"),
    ],
)  # fmt: skip
def test_an_invalid_document_is_rejected_with_its_mistake(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in DOCUMENT
    problems = mistakes(tmp_path, DOCUMENT.replace(right, wrong))
    lines = [re.sub(r"^acme.yaml:(\d+):\d+", r"\1", problem) for problem in problems]
    assert [line[: message.index("…")] + "…" if "…" in message else line for line in lines] == [message]


def test_a_provider_that_lacks_node_pools_of_the_shipped_one_is_named(tmp_path: Path) -> None:
    """The shipped policies that need these pools are right."""
    file = tmp_path / "cks.yaml"
    file.write_text(DOCUMENT.replace("metadata: {name: acme}", "metadata: {name: cks}").partition("---\n")[0])
    with pytest.raises(PolicyErrors) as raised:
        load_bundle([SHIPPED, file])
    assert str(raised.value) == (
        f"{file}:19:3: spec.nodePools: lacks nodepools of compute.coreweave.com, which shipped policies need; copy "
        "`nodePools` from policies/providers/cks.yaml, or give the provider another name"
    )
    file.write_text(f"{file.read_text()}---\n{UNKNOWN_PROVIDER}")
    with pytest.raises(
        PolicyErrors, match=r"(?s)spec.nodePools: lacks nodepools.*there is no CapacityProvider 'cloud'"
    ):
        load_bundle([SHIPPED, file])
    with pytest.raises(PolicyErrors, match=r"^[^\n]*there is no CapacityProvider 'cloud'[^\n]*$"):
        load_bundle([file])  # without the shipped policies, no policy needs the pools


UNKNOWN_PROVIDER = """\
apiVersion: spotgate.dev/v1
kind: OnDemandFallback
metadata: {name: on-demand-fallback}
spec: {requireByProvider: {cloud: gpu}}
"""
