"""The shipped policies give every golden answer, byte for byte: engine (all), command and server (some)."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.builders import answered
from tests.golden.cases import HERE, UNKNOWN_CLUSTER, Case, load_cases, mutated, readable, sent, view_of
from tests.server.harness import LOOPBACK, SHORT, Process
from webhook.commands import main
from webhook.rules.context import Phase
from webhook.server.serve import ServeOptions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CASES = load_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_file_belongs_to_a_described_case() -> None:
    names = {case.name for case in CASES}

    assert len(names) == len(CASES)
    assert {file.stem for file in (HERE / "reviews").iterdir()} == names
    assert {file.name for file in (HERE / "expected").iterdir()} == {
        f"{name}.{phase}.json" for name in names for phase in Phase
    }
    assert {file.stem for file in (HERE / "state").iterdir()} == {case.cluster for case in CASES} - {UNKNOWN_CLUSTER}
    assert all(case.proves for case in CASES)


@each_case
def test_the_engine_gives_the_golden_answer(case: Case) -> None:
    for phase in Phase:
        answer = answered(case.review(phase), phase, view_of(case.state))

        assert readable(answer) == case.expected(phase)
        assert answer == sent(case.expected(phase))


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("pod-gpu", Phase.MUTATE),
        ("nodepool-gpu-spot-in-unknown-cluster", Phase.VALIDATE),
        ("nodepool-delete-last-fallback", Phase.VALIDATE),
    ],
)
def test_the_review_command_prints_the_golden_answer(
    name: str, phase: Phase, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = next(case for case in CASES if case.name == name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.review(phase))))
    state = [] if case.state is None else ["--state", str(case.state)]

    assert main(["review", "-", "--phase", phase, *state]) == 0
    assert capfdbinary.readouterr() == (sent(case.expected(phase)), b"")


def as_dry_run(review: bytes) -> bytes:
    """Return the review as a dry run, after which the server doesn't treat the object as deleted."""
    envelope = orjson.loads(review)
    envelope["request"]["dryRun"] = True
    return orjson.dumps(envelope)


def test_the_server_sends_the_golden_answer(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.cluster == "acme"]
    (state,) = {case.state for case in cases}
    assert state is not None
    options = ServeOptions(listen=LOOPBACK, ops=LOOPBACK, self_signed=True, state=(state,), limits=SHORT)
    server = Process(options, tmp_path / "log")
    connection = server.connection()
    try:
        answers = {
            (case.name, phase): server.post(as_dry_run(case.review(phase)), f"/{phase}?timeout=3s", over=connection)
            for case in cases
            for phase in Phase
        }
    finally:
        connection.close()
        server.end()

    assert {answer.status for answer in answers.values()} == {200}
    assert {key: answer.body for key, answer in answers.items()} == {
        (case.name, phase): sent(case.expected(phase)) for case in cases for phase in Phase
    }


@each_case
def test_M1_a_second_mutation_changes_nothing(case: Case) -> None:
    expected = case.expected(Phase.MUTATE)["response"]
    again = mutated(case.review(Phase.MUTATE), expected.get("patch", []))
    response = orjson.loads(answered(again, Phase.MUTATE, view_of(case.state)))["response"]

    assert "patch" not in response
    assert response["allowed"] == expected["allowed"]


@each_case
def test_every_golden_answer_is_valid_for_an_api_server(case: Case) -> None:
    for phase in Phase:
        expect_valid(case, phase)


def expect_valid(case: Case, phase: Phase) -> None:
    request = orjson.loads(case.review(phase))["request"]
    answer = case.expected(phase)
    response = answer["response"]

    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")  # R1
    assert response["uid"] == request["uid"]
    assert ("patch" in response) == ("patchType" in response)  # R2
    assert "patch" not in response or (phase, request["operation"], request.get("subResource")) == (
        Phase.MUTATE,
        "CREATE",
        None,
    )
    assert ("status" in response) == (not response["allowed"])  # R4
    if not response["allowed"]:
        assert response["status"]["code"] in {400, 403}
        assert response["status"]["reason"]
        assert "Fix: " in response["status"]["message"]
    assert not list(bad_warnings(response.get("warnings", [])))  # R5
    for key, value in response.get("auditAnnotations", {}).items():  # R6
        assert "/" not in key
        assert value.isprintable()


def bad_warnings(warnings: list[str]) -> Iterable[Any]:
    long = {line for line in warnings if len(line) > 120 and not line.startswith("  Fix: ")}
    yield from (line for line in warnings if line in long or not line.isprintable() or line.startswith("Warning:"))
    if len(set(warnings)) < len(warnings):
        yield "kubectl drops repeated lines"
    if sum(map(len, warnings)) > 4096:
        yield "too many warnings"
