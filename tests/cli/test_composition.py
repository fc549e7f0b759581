"""Every command and the server load the same policy set: the shipped policies and those of a team."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import SPOT_POD, SPOT_POOL
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.policy.errors import PolicyErrors
from webhook.runtime.address import Address
from webhook.server.serve import ServeOptions, build_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run, Write

HEAD = "apiVersion: spotgate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
TERMINATION = HEAD.format("GracefulTermination", "graceful-termination", "{overBudget: deny}")
TEST = HEAD.format(
    "PolicyTest",
    "t",
    '{state: {}, object: {kind: Pod, apiVersion: v1}, cases: [{name: a, expect: {outcome: "allowed"}}]}',
)
MEMBERS = "\n".join(f"  {line}" for line in SPOT_POD.splitlines()).replace("  ", "- ", 1)
RESOURCES = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nfunctionConfig:\n{}items:\n{}\n".format(
    "  apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: f}\n  data:\n    policies: |\n      shipped\n      own\n",
    MEMBERS,
)
COMMANDS: dict[str, list[str]] = {
    "check": ["check", "pod.yaml"],
    "explain": ["explain", "pod.yaml"],
    "fix": ["fix", "--diff", "pod.yaml"],
    "fn": ["fn"],
    "review": ["review", "review.json"],
    "test": ["test", "t.yaml"],
    "replay": ["replay", "review.json", "--against", "shipped"],
    "webhook-config": ["webhook-config"],
    "export": ["export", "vap"],
    "audit": ["audit", "--kubeconfig", "none"],
    "rehearse": ["rehearse", "--lose", "gpu", "--state", "pod.yaml"],
}
"""A command line of each command that loads policies."""

REVIEW: dict[str, Any] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "1",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "a",
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}},
    },
}


def serve(own: Path) -> str:
    """Return the server's errors for these policies next to the shipped ones."""
    anywhere = Address("127.0.0.1", 0)
    try:
        build_snapshot(ServeOptions(listen=anywhere, ops=anywhere, policies=(SHIPPED, own)))
    except PolicyErrors as errors:
        return str(errors)
    return ""


@pytest.fixture
def loaded(run: Run, write: Write) -> Callable[[str, Path], str]:
    """Return a command's errors for the policies in a folder next to the shipped ones."""

    def loaded(command: str, own: Path) -> str:
        if command == "serve":
            return serve(own)
        write("pod.yaml", SPOT_POD)
        write("t.yaml", TEST)
        write("review.json", json.dumps(REVIEW))
        flags = [] if command == "fn" else ["--policies", "shipped", "--policies", str(own)]
        done = run(*COMMANDS[command], *flags, stdin=RESOURCES.encode())
        return done.err

    return loaded


@pytest.mark.parametrize("command", [*list(COMMANDS)[:-2], "serve"])
def test_every_command_replaces_a_shipped_policy_of_the_same_name(
    loaded: Callable[[str, Path], str], write: Write, command: str
) -> None:
    write("own/termination.yaml", TERMINATION)
    errors = loaded(command, write("own/other.yaml", HEAD.format("ReservedLabels", "team", "{domains: [a.b]}")).parent)
    assert "metadata.name" not in errors
    assert "own/other.yaml" not in errors or command == "export"


@pytest.mark.parametrize("command", [*COMMANDS, "serve"])
def test_every_command_reports_duplicate_names(loaded: Callable[[str, Path], str], write: Write, command: str) -> None:
    write("own/a.yaml", TERMINATION)
    errors = loaded(command, write("own/b.yaml", f"\n{TERMINATION}").parent)
    assert (
        "own/b.yaml:4:12: metadata.name: 'graceful-termination' is also the name of GracefulTermination at "
        "own/a.yaml:3; rename one, or remove it"
    ) in errors


def test_the_replacing_policy_is_evaluated(run: Run, write: Write) -> None:
    write("own/termination.yaml", TERMINATION)
    pod = SPOT_POD.replace("spec:", "spec:\n  terminationGracePeriodSeconds: 900")
    done = run(
        "check", "-o", "json", "--policies=shipped", "--policies=own", write("pod.yaml", f"{pod}---\n{SPOT_POOL}")
    )
    assert ("graceful-termination", "deny") in done.outcomes
    assert ("graceful-termination", "warn") not in done.outcomes


def test_a_bundle_lists_the_shipped_policies_it_replaces(write: Write) -> None:
    own = write("own/termination.yaml", TERMINATION).parent
    write("own/gke.yaml", (SHIPPED / "providers" / "gke.yaml").read_text())
    for paths, kinds in ((SHIPPED, own), {"GracefulTermination", "CapacityProvider"}), ((own,), {"CapacityProvider"}):
        replacing = load_bundle(paths).replacing
        assert {policy.kind for policy in replacing} == kinds
        assert all(policy.document.file.startswith("own/") for policy in replacing)
    assert load_bundle().replacing == ()


def test_policy_tests_load_the_shipped_policies_and_judge_by_their_own(run: Run, write: Write) -> None:
    """The team's policies allow a Pod that the shipped ones deny."""
    test = (
        "{user: a, state: {}, object: {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: team, labels: "
        "{qos.coreweave.cloud/x: z}}, spec: {containers: [{name: a, image: b}]}}, cases: [{name: a, expect: {outcome: allowed}}"
        ", {name: b, policies: [reserved-labels], expect: {outcome: denied}}]}"
    )
    write("own/tests/t.yaml", HEAD.format("PolicyTest", "t", test))
    write("own/labels.yaml", HEAD.format("ReservedLabels", "team", "{domains: [a.b]}"))
    done = run("test", "own")
    assert (done.code, done.out, done.err) == (0, "2 cases against own: 2 passed\n", "")
    write("own/again.yaml", HEAD.format("ReservedLabels", "node-pool-rules", "{domains: [a.b]}"))
    done = run("test", "own")
    assert done.code == 2
    assert "own/again.yaml:3:12: metadata.name: 'node-pool-rules' is also the name of NodePoolRules at " in done.err


def test_explain_names_the_deciding_policy_and_whether_it_replaces_one(run: Run, write: Write) -> None:
    write("own/a.yaml", HEAD.format("GracefulTermination", "team", "{overrides: [graceful-termination]}"))
    write("own/b.yaml", HEAD.format("SpotPlacement", "spot-placement", "{}"))
    write("pod.yaml", f"{SPOT_POD}---\n{SPOT_POOL}")
    for output in ("text", "html"):
        done = run("explain", "--policies=shipped", "--policies=own", "-o", output, "pod.yaml")
        text = " ".join(done.out.split())
        assert "overridden: team decides" in text
        assert "decides in place of graceful-termination" in text
        assert "SpotPlacement, enforcement: deny, replaces the shipped policy" in text
    lines = run("explain", "--policies=shipped", "--policies=own", "pod.yaml").out.splitlines()
    assert [line.split()[:2] for line in lines if "GracefulTermination" in line] == [
        ["overridden", "graceful-termination"],
        ["changes", "team"],
    ]
