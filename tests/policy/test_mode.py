"""A Mode document limits the enforcement of all policies, and sets the failure policy of workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.rules import NOW, request
from tests.policy.test_exemptions import HEAD, LABELLED, mistakes
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.engine.engine import decide
from webhook.model.decision import Outcome
from webhook.registration.configurations import configurations
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.engine.bundle import Bundle

ON_SPOT: Any = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {},
    "spec": {"nodeSelector": {"cloud.google.com/gke-spot": "true"}, "containers": [{"name": "main", "image": "a"}]},
}


def mode(spec: str, name: str = "rollout") -> str:
    return f"apiVersion: spotgate.dev/v1\nkind: Mode\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def shipped(folder: Path, *documents: str) -> Bundle:
    (folder / "modes.yaml").write_text("---\n".join(documents))
    return load_bundle([SHIPPED, folder] if documents else [])


def failing(bundle: Bundle) -> set[str]:
    rendered = configurations(bundle, {"service": {}})
    return {
        webhook["name"].partition(".")[0]
        for configuration in rendered
        for webhook in configuration["webhooks"]
        if webhook["failurePolicy"] == "Fail"
    }


@pytest.mark.parametrize(
    ("documents", "outcome", "patched", "unanswered"),
    [
        ([], "deny", True, {"node-pools"}),
        ([mode("enforcement: deny")], "deny", True, {"node-pools"}),
        ([mode("enforcement: warn")], "warn", True, set()),
        ([mode("enforcement: audit")], "audit", False, set()),
        (
            [mode("workloadFailurePolicy: Fail")],
            "deny",
            True,
            {"node-pools", "namespaces", "workloads", "spot-namespaces"},
        ),
    ],
)
def test_the_mode_limits_every_policy(
    documents: list[str], outcome: str, patched: Any, unanswered: set[str], tmp_path: Path
) -> None:
    bundle = shipped(tmp_path, *documents)
    labelled = {**LABELLED, "metadata": {"labels": {"foo.coreweave.cloud/bar": "x"}}}
    validated = decide(request(labelled), bundle.index, Context(phase=Phase.VALIDATE, now=NOW))
    assert {str(finding.outcome) for finding in validated.findings} == {outcome}
    mutated = decide(request(ON_SPOT), bundle.index, Context(phase=Phase.MUTATE, now=NOW))
    assert bool(mutated.patch) is patched
    assert failing(bundle) == unanswered


@pytest.mark.parametrize(
    ("documents", "mistake"),
    [
        (
            [mode("enforcement: warn"), mode("enforcement: audit", "other")],
            (13, "kind", "there is another Mode, at {file}:7; keep one"),
        ),
        (
            [mode("enforcement: off")],
            (
                10,
                "spec.enforcement",
                "the boolean false (YAML reads n, no and off as false) is not one of audit, warn or deny",
            ),
        ),
        (
            [mode("enforcement: warn, workloadFailurePolicy: Fail")],
            (10, "spec", "workloadFailurePolicy: Fail needs enforcement: deny, or only outages reject workloads"),
        ),
    ],
)
def test_an_invalid_mode_is_rejected_with_its_position(
    documents: list[str], mistake: tuple[int, str, str], tmp_path: Path
) -> None:
    line, field, text = mistake
    file = tmp_path / "policies.yaml"
    assert mistakes(tmp_path, HEAD, *documents) == [(line, field, text.format(file=file))]


def test_a_policy_keeps_its_declared_enforcement(tmp_path: Path) -> None:
    policies = shipped(tmp_path, mode("enforcement: audit")).index.policies
    assert {policy.name: policy.declared for policy in policies} == {
        policy.name: policy.enforcement for policy in shipped(tmp_path).index.policies
    }
    assert {policy.declared for policy in policies} >= {Outcome.DENY, Outcome.WARN}
