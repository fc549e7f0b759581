"""Every line that `spotgate doctor` can print. Each case changes some recorded answers of a real API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.doctor.changes import (
    CASES,
    CONFIGMAP,
    DEPLOYMENT,
    FORBIDDEN,
    GONE,
    MUTATING,
    NODES,
    NOTHING,
    PODS,
    PROXY,
    REPLICA,
    SECRET,
    SELF_MANAGED,
    UNREACHABLE,
    VALIDATING,
    leaf,
    secret,
)
from tests.cli.doctor.recorded import NAMESPACE, Answer, RecordedApi
from webhook import __version__
from webhook.commands.doctor import configurations as check
from webhook.commands.doctor.examine import examine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.engine.bundle import Bundle


@pytest.fixture(autouse=True, scope="module")
def _rendered_once() -> Iterator[None]:
    """Cache the rendered configurations, which every case needs."""
    rendered: dict[str, list[dict[str, Any]]] = {}
    render = vars(check)["configurations"]

    def once(bundle: Bundle, client_config: dict[str, Any]) -> list[dict[str, Any]]:
        if bundle.hash not in rendered:
            rendered[bundle.hash] = render(bundle, client_config)
        return rendered[bundle.hash]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "configurations", once)
        yield


async def problems_of(api: RecordedApi) -> dict[str, list[str]]:
    """Return the problems as `state: text` by check, once for all replicas. Each problem must have a fix."""
    diagnoses = await examine(api, NAMESPACE)
    assert [line.name for line in diagnoses if not line.fix and line.state in {"warn", "fail"}] == []
    result: dict[str, list[str]] = {}
    for line in diagnoses:
        if line.state != "ok":
            name = line.name.partition(" spotgate-")[0]
            text = f"{line.state}: {line.what}"
            if text not in result.setdefault(name, []):
                result[name].append(text)
    return result


HEALTHY_SAID = (
    "3 of 3 are ready",
    "3 replicas on 3 hosts",
    "trusted until ",
    "on-demand-fallback/superchip is denied",
    "reserved-labels/reserved is denied",
    "a spot Pod is placed on spot nodes",
    "a spot Pod gets time to stop",
    "bare-pod is warned of",
)


async def test_a_healthy_installation_has_no_problem() -> None:
    diagnoses = await examine(RecordedApi(), NAMESPACE)
    assert [line for line in diagnoses if line.state != "ok" or line.fix] == []
    report = "\n".join(line.what for line in diagnoses)
    assert [text for text in HEALTHY_SAID if text not in report] == []


@pytest.mark.parametrize("case", CASES)
async def test_each_problem_is_one_line(case: str) -> None:
    changed, lines = CASES[case]
    problems = await problems_of(RecordedApi(changed))
    assert problems.keys() == lines.keys()
    for name, pattern in lines.items():
        assert [text for text in problems[name] if not re.match(pattern, text)] == []


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("version", f"it has version 0.0.1, and this program {__version__}"),
        ("bundle", "it uses bundle 0.0.1, but the Deployment names policies of bundle "),
    ],
)
async def test_during_a_rollout_only_the_replica_that_differs_has_a_problem(field: str, problem: str) -> None:
    other = {f"ck5lq:8080{REPLICA}": {f'"{field}": "[^"]*"': f'"{field}": "0.0.1"'}}
    replicas = [line for line in await examine(RecordedApi(other), NAMESPACE) if line.name.startswith("replica ")]
    assert sorted(line.state for line in replicas) == ["ok", "ok", "warn"]
    (late,) = [line for line in replicas if line.state == "warn"]
    assert late.name.endswith("-ck5lq")
    assert late.what.startswith(problem)


ACCOUNT = "ServiceAccount spotgate"


@pytest.mark.parametrize(
    ("changed", "denied", "lines"),
    [
        ({}, "list poddisruptionbudgets", {ACCOUNT: "fail: it lacks permissions: list poddisruptionbudgets.policy"}),
        ({}, "patch secrets", {}),
        ({DEPLOYMENT: SELF_MANAGED}, "", {}),
        (
            {DEPLOYMENT: SELF_MANAGED},
            "patch secrets",
            {ACCOUNT: "fail: it lacks permissions: patch secrets/spotgate-certificates in spotgate-system"},
        ),
        (
            {DEPLOYMENT: SELF_MANAGED},
            "patch mutatingwebhookconfigurations",
            {
                ACCOUNT: "fail: it lacks permissions: patch mutatingwebhookconfigurations.admissionregistration.k8s.io/spotgate"
            },
        ),
    ],
)
async def test_a_missing_permission_is_named(changed: Mapping[str, Any], denied: str, lines: Mapping[str, str]) -> None:
    problems = await problems_of(RecordedApi(changed, denied))
    assert problems == {name: [text] for name, text in lines.items()}


@pytest.mark.parametrize(
    ("answer", "fix"), [(FORBIDDEN, "allow `list nodes`"), (Answer(504, '{"message": "slow"}'), ""), (NOTHING, "")]
)
async def test_the_permission_to_list_nodes_is_suggested_only_when_missing(answer: Answer, fix: str) -> None:
    (kubelets,) = [line for line in await examine(RecordedApi({NODES: answer}), NAMESPACE) if line.name == "kubelets"]
    assert (kubelets.state, kubelets.fix) == ("unknown", fix)


@pytest.mark.parametrize("secret_answer", [GONE, FORBIDDEN])
async def test_an_empty_ca_bundle_is_reported_when_nothing_else_is_readable(secret_answer: Answer) -> None:
    emptied: Mapping[str, str] = {'"caBundle": "[^"]*"': '"caBundle": ""'}
    changed: Mapping[str, Any] = {
        CONFIGMAP: GONE,
        DEPLOYMENT: GONE,
        PODS: NOTHING,
        SECRET: secret_answer,
        MUTATING: emptied,
    }
    problems = await problems_of(RecordedApi(changed))
    assert any("it has no certificate, so every call fails" in text for text in problems["caBundles"])


async def test_only_self_managed_replicas_need_write_access() -> None:
    plain, managing = RecordedApi(), RecordedApi({DEPLOYMENT: SELF_MANAGED})
    await problems_of(plain)
    await problems_of(managing)
    assert sorted(set(managing.reviewed) - set(plain.reviewed)) == [
        *("create secrets", "get secrets"),
        *("patch mutatingwebhookconfigurations", "patch secrets", "patch validatingwebhookconfigurations"),
    ]


async def test_fixes_distinguish_a_blocked_network_from_a_missing_permission() -> None:
    refused = Answer(503, '{"message": "dial tcp 10.1.2.3:8080: connect: connection refused"}')
    for answer, fix in (
        (UNREACHABLE, "NetworkPolicy spotgate"),
        (FORBIDDEN, "allow `get` on pods/proxy"),
        (refused, "nothing listens at that address"),
    ):
        diagnoses = await examine(RecordedApi({PROXY: answer, SECRET: secret(leaf())}), NAMESPACE)
        fixes = [line.fix for line in diagnoses if line.name.startswith("replica spotgate-")]
        assert len(fixes) == 3
        assert all(fix in text for text in fixes)


async def test_the_fix_for_a_missing_installation_is_to_install() -> None:
    gone = dict.fromkeys((DEPLOYMENT, CONFIGMAP, MUTATING, VALIDATING), GONE)
    diagnoses = await examine(RecordedApi({**gone, PODS: NOTHING}), NAMESPACE)
    fixes = {line.fix for line in diagnoses if line.state == "fail"}
    assert fixes == {"install it (docs/install.md), or name another --namespace"}


async def test_a_problem_of_all_ca_bundles_is_reported_once() -> None:
    empty = {'"caBundle": "[^"]*"': '"caBundle": ""'}
    problems = await problems_of(RecordedApi({MUTATING: empty, VALIDATING: empty}))
    assert len(problems["certificate of"]) == 1
