"""``fn``: a ResourceList in, the same out, with what the webhook would inject and say."""

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
INJECTED = ["spec.tolerations", "spec.terminationGracePeriodSeconds", "spec.containers[0].lifecycle"]


def read_from(file: str, index: int, manifest: str) -> str:
    """Return the manifest, as an orchestrator annotates what it has read from a file."""
    annotations = f'  annotations: {{internal.config.kubernetes.io/path: {file}, internal.config.kubernetes.io/index: "{index}"}}\n'
    return manifest.replace("metadata:\n", f"metadata:\n{annotations}", 1)


def resource_list(*manifests: str, **data: Any) -> bytes:
    """As kustomize writes it: the items not indented."""
    config = f"functionConfig: {json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': data})}\n" if data else ""
    items = "".join(f"- {each.rstrip()}\n".replace("\n", "\n  ").rstrip() + "\n" for each in manifests)
    return f"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n{config}items:\n{items or '  []'}".encode()


def results(done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(done.out).get("results", [])
    return found


def severities(done: Done) -> list[str]:
    return [result["severity"] for result in results(done)]


@pytest.fixture(autouse=True)
def state(write: Write) -> None:
    write("state/pools.yaml", f"{TAINTED}---\n{ON_DEMAND_POOL}")


def test_what_the_webhook_would_inject_is_in_the_items_and_nothing_else_changes(run: Run) -> None:
    given = resource_list(
        "# the trainer\n" + SPOT_POD.replace("busybox", "'busybox'  # small"), state="state", mode="mutate"
    )

    done = run("fn", stdin=given)

    assert (done.code, done.err) == (0, "")
    items, _, rest = done.out.partition("results:")
    added = [line for line in items.splitlines() if line not in given.decode().splitlines()]
    assert "".join(added).replace(" ", "") == (
        "lifecycle:preStop:sleep:seconds:5tolerations:-key:example.com/spotoperator:Existseffect:NoSchedule"
        "terminationGracePeriodSeconds:60"
    )
    assert [line for line in items.splitlines() if line not in added] == given.decode().splitlines()
    assert sorted(each["field"]["path"] for each in yaml.safe_load(f"results:{rest}")["results"]) == sorted(INJECTED)


def test_result_names_the_object_the_field_the_file_and_the_policy(run: Run, policies: Path) -> None:
    pod = read_from("apps/web.yaml", 3, POD)

    done = run("fn", stdin=resource_list(pod, policies=str(policies)))

    assert done.code == 1
    (result,) = results(done)
    assert result == {
        "message": result["message"],
        "severity": "error",
        "resourceRef": {"apiVersion": "v1", "kind": "Pod", "name": "web"},
        "field": {"path": 'metadata.labels["example.com/team"]'},
        "file": {"path": "apps/web.yaml", "index": 3},
        "tags": {"policy": "labels", "id": "reserved-labels/reserved", "outcome": "deny"},
    }
    assert result["message"].startswith("label example.com/team is in the reserved domain example.com\n")
    assert "\nFix: " in result["message"]


def test_findings_are_on_standard_error_too_because_kustomize_shows_no_results(run: Run, policies: Path) -> None:
    done = run("fn", stdin=resource_list(read_from("web.yaml", 0, POD), policies=str(policies)))
    assert done.err.startswith(
        "web.yaml: deny  Pod default/web  labels  reserved-labels/reserved\n    label example.com/team is in "
    )
    assert '(at metadata.labels["example.com/team"])\n' in done.err


def test_verdict_and_patch_are_those_of_check(run: Run, write: Write, policies: Path) -> None:
    pods = (SPOT_POD.replace("metadata:\n", "metadata:\n  labels: {example.com/team: a}\n"), POD)
    write("deploy/pods.yaml", "---\n".join(pods))

    checked = run("check", "-o", "json", "--state", "state", "--policies", policies, "deploy").json
    done = run("fn", stdin=resource_list(*pods, state="state", policies=str(policies)))

    found = [
        (each["tags"]["policy"], each["tags"]["outcome"], each["field"]["path"])
        for each in results(done)
        if "tags" in each
    ]
    assert found == [(each["policy"], each["outcome"], each["field"]) for each in checked["results"]]
    assert found
    injected = [each["field"]["proposedValue"] for each in results(done) if "tags" not in each]
    assert injected == [each["value"] for patch in checked["patches"] for each in patch["patch"]]
    assert injected


def test_mutate_injects_and_reports_no_finding(run: Run, policies: Path) -> None:
    given = resource_list(POD, SPOT_POD, mode="mutate", state="state", policies=str(policies))
    done = run("fn", stdin=given)
    assert (done.code, done.err) == (0, "")
    assert set(severities(done)) == {"info"}
    assert yaml.safe_load(done.out)["items"][1]["spec"]["terminationGracePeriodSeconds"] == 60


def test_validate_reports_and_changes_no_item(run: Run, policies: Path) -> None:
    given = resource_list(POD, SPOT_POD, mode="validate", state="state", policies=str(policies))
    done = run("fn", stdin=given)
    assert done.code == 1
    assert done.out.startswith(given.decode())
    assert severities(done) == ["info", "info", "error"]
    assert results(done)[0]["message"].startswith("the webhook would inject spec.")


def test_items_are_state_for_each_other(run: Run) -> None:
    alone = run("fn", stdin=resource_list(SPOT_POOL))
    together = run("fn", stdin=resource_list(SPOT_POOL, ON_DEMAND_POOL))
    assert (alone.code, "error" in severities(alone)) == (1, True)
    assert (together.code, "error" in severities(together)) == (0, False)


@pytest.mark.parametrize(
    ("fail_on", "expected"),
    [("deny", ["warning", "info"]), ("warn", ["error", "info"]), ("indeterminate", ["error", "error"])],
)
def test_fail_on_says_what_is_an_error(run: Run, fail_on: str, expected: list[str]) -> None:
    done = run("fn", stdin=resource_list(SPOT_POOL, ON_DEMAND_POOL, failOn=fail_on, partial="true"))
    assert severities(done) == expected
    assert done.code == ("error" in expected)


def test_a_further_item_of_a_list_is_named_as_check_does(run: Run) -> None:
    pod = SPOT_POD.replace("spec:\n", "spec:\n  tolerations: [{key: own, operator: Exists}]\n")
    done = run("fn", stdin=resource_list(pod, mode="mutate", state="state"))
    field = {
        "path": "spec.tolerations[+]",
        "proposedValue": {"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"},
    }
    assert field in [each["field"] for each in results(done)]


def test_a_second_run_changes_nothing_more(run: Run) -> None:
    once = run("fn", stdin=resource_list(SPOT_POD, state="state")).out
    again = run("fn", stdin=once.encode())
    assert yaml.safe_load(again.out)["items"] == yaml.safe_load(once)["items"]


def test_results_of_functions_before_it_stay(run: Run, policies: Path) -> None:
    given = resource_list(POD, policies=str(policies)) + b"results:\n- {message: by another, severity: info}\n"
    done = run("fn", stdin=given)
    assert [each["message"][:10] for each in results(done)] == ["by another", "label exam"]


def test_annotations_that_orchestrators_take_off_are_not_judged_and_stay(run: Run, write: Write) -> None:
    pod = read_from("web.yaml", 0, POD)
    write(
        "policies/own.yaml",
        "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: x}\nspec: {domains: [a.example]}\n",
    )
    done = run("fn", stdin=resource_list(pod, policies="policies"))
    assert (done.code, results(done)) == (0, [])
    assert "internal.config.kubernetes.io/path: web.yaml" in done.out


@pytest.mark.parametrize(
    "given", [b"kind: ResourceList\napiVersion: config.kubernetes.io/v1\nitems: []\n", resource_list()]
)
def test_nothing_in_nothing_out(run: Run, given: bytes) -> None:
    done = run("fn", stdin=given)
    assert (done.code, done.out.strip(), done.err) == (0, given.decode().strip(), "")


def test_json_stays_json(run: Run) -> None:
    given = json.dumps(yaml.safe_load(resource_list(SPOT_POD, state="state")), indent=1).encode()
    done = run("fn", stdin=given)
    assert done.code == 0
    assert json.loads(done.out)["items"][0]["spec"]["terminationGracePeriodSeconds"] == 60


def test_an_item_that_can_not_be_judged_is_an_error_and_the_others_are_judged(run: Run, policies: Path) -> None:
    broken = read_from("bad.yaml", 0, POD.replace("a\n", "1\n", 1).replace("name: web", "name: 5"))
    done = run("fn", stdin=resource_list(POD, broken, policies=str(policies)))
    assert done.code == 2
    assert severities(done) == ["error", "error"]
    assert results(done)[1]["file"] == {"path": "bad.yaml", "index": 0}
    assert "bad.yaml: metadata.name: expected text, got the number 5; write it in quotes\n" in done.err


@pytest.mark.parametrize("item", ["", "null", "5", "[]", "{}", "kind: Pod", "apiVersion: v1"])
def test_an_item_that_is_no_object_is_an_error(run: Run, item: str) -> None:
    done = run("fn", stdin=resource_list(item))
    assert done.code == 2
    assert severities(done) == ["error"]
    assert "-:4:" in done.err
    assert "not a Kubernetes object, which has `apiVersion` and `kind`; add them or remove the item" in done.err


def test_state_that_is_not_there_is_said(run: Run) -> None:
    done = run("fn", stdin=resource_list(SPOT_POD, state="nowhere.yaml"))
    assert done.code == 2
    assert "nowhere.yaml: can't be read: No such file or directory" in done.err
    assert yaml.safe_load(done.out)["items"]


def test_a_change_in_what_an_alias_repeats_is_refused(run: Run) -> None:
    first = SPOT_POD.replace("spec:\n", "spec: &same\n")
    second = SPOT_POD.partition("spec:")[0].replace("trainer", "other") + "spec: *same\n"
    done = run("fn", stdin=resource_list(first, second, state="state"))
    assert (done.code, done.out) == (2, "")
    assert (
        "can't be changed in place: the change is inside of the part that &same names, and aliases repeat it; write out"
        in done.err
    )
