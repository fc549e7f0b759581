"""Changes by ``fn`` to a ResourceList, compared with ``check``; scenarios/fn.yaml has the other cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POD, SPOT_POOL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Done, Run, Write


TAINTED = SPOT_POOL + "  nodeTaints: [{key: example.com/spot, effect: NoSchedule}]\n"
INJECTED = [
    "spec.tolerations",
    "spec.tolerations[+]",
    "spec.terminationGracePeriodSeconds",
    "spec.containers[0].lifecycle",
]


def resource_list(*manifests: str, **data: Any) -> bytes:
    """Return a ResourceList as kustomize writes it, with the items not indented."""
    config = f"functionConfig: {json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': data})}\n" if data else ""
    items = "".join(f"- {manifest.rstrip()}\n".replace("\n", "\n  ").rstrip() + "\n" for manifest in manifests)
    return f"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n{config}items:\n{items or '  []'}".encode()


def results(done: Done) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = yaml.safe_load(done.out).get("results", [])
    return listed


@pytest.fixture(autouse=True)
def state(write: Write) -> None:
    write("state/pools.yaml", f"{TAINTED}---\n{ON_DEMAND_POOL}")


def test_items_get_exactly_what_the_webhook_injects(run: Run) -> None:
    given = resource_list(
        "# the trainer\n" + SPOT_POD.replace("busybox", "'busybox'  # small"), state="state", mode="mutate"
    )

    done = run("fn", stdin=given)

    assert (done.code, done.err) == (0, "")
    items, _, rest = done.out.partition("results:")
    added = [line for line in items.splitlines() if line not in given.decode().splitlines()]
    assert "".join(added).replace(" ", "") == (
        "lifecycle:preStop:sleep:seconds:5tolerations:-key:example.com/spotoperator:Existseffect:NoSchedule"
        '-key:qos.coreweave.cloud/interruptableoperator:Equalvalue:"true"effect:NoExecute'
        "terminationGracePeriodSeconds:60"
    )
    assert [line for line in items.splitlines() if line not in added] == given.decode().splitlines()
    assert sorted(entry["field"]["path"] for entry in yaml.safe_load(f"results:{rest}")["results"]) == sorted(INJECTED)


def test_verdict_and_patch_match_check(run: Run, write: Write, policies: Path) -> None:
    pods = (SPOT_POD.replace("metadata:\n", "metadata:\n  labels: {example.com/team: a}\n"), POD)
    write("deploy/pods.yaml", "---\n".join(pods))

    checked = run("check", "-o", "json", "--state", "state", "--policies", policies, "deploy").json
    done = run("fn", stdin=resource_list(*pods, state="state", policies=str(policies)))

    reported = [
        (result["tags"]["policy"], result["tags"]["outcome"], result["field"]["path"])
        for result in results(done)
        if "tags" in result
    ]
    assert reported == [(result["policy"], result["outcome"], result["field"]) for result in checked["results"]]
    assert reported
    injected = [result["field"]["proposedValue"] for result in results(done) if "tags" not in result]
    assert injected == [operation["value"] for patch in checked["patches"] for operation in patch["patch"]]
    assert injected


def test_list_items_are_named_as_check_names_them(run: Run) -> None:
    pod = SPOT_POD.replace("spec:\n", "spec:\n  tolerations: [{key: own, operator: Exists}]\n")
    done = run("fn", stdin=resource_list(pod, mode="mutate", state="state"))
    field = {
        "path": "spec.tolerations[+]",
        "proposedValue": {"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"},
    }
    assert field in [result["field"] for result in results(done)]


def test_a_second_run_changes_nothing(run: Run) -> None:
    once = run("fn", stdin=resource_list(SPOT_POD, state="state")).out
    again = run("fn", stdin=once.encode())
    assert yaml.safe_load(again.out)["items"] == yaml.safe_load(once)["items"]


def test_json_stays_json(run: Run) -> None:
    given = json.dumps(yaml.safe_load(resource_list(SPOT_POD, state="state")), indent=1).encode()
    done = run("fn", stdin=given)
    assert done.code == 0
    assert json.loads(done.out)["items"][0]["spec"]["terminationGracePeriodSeconds"] == 60
