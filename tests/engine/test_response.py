"""Responses follow the API server's contract."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from webhook.engine.response import errored, respond
from webhook.model.decision import Decision, Finding, Outcome
from webhook.model.patch import Operation
from webhook.rules.context import Phase


def finding(outcome: Outcome = Outcome.DENY, **changes: Any) -> Finding:
    return Finding(**{"policy": "p", "id": "kind/what", "outcome": outcome, "reason": "it is wrong", **changes})


def answer(decision: Decision, phase: Phase = Phase.VALIDATE) -> dict[str, Any]:
    review = json.loads(respond("the-uid", decision, phase))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = review["response"]
    assert response["uid"] == "the-uid"
    return response


PATCH = (Operation("/spec/x", 1, "p"), Operation("/spec/y", {"a": None}, "p"))


def test_R1_an_empty_decision_is_only_allowed() -> None:
    assert answer(Decision()) == {"uid": "the-uid", "allowed": True}


def test_R2_a_mutating_response_has_a_patch_and_its_type() -> None:
    response = answer(Decision(patch=PATCH), Phase.MUTATE)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/x", "value": 1},
        {"op": "add", "path": "/spec/y", "value": {"a": None}},
    ]


@pytest.mark.parametrize("decision", [Decision(patch=PATCH), Decision(findings=(finding(),), patch=PATCH)])
def test_R2_a_validating_response_has_no_patch(decision: Decision) -> None:
    assert not {"patch", "patchType"} & answer(decision).keys()


def test_R2_a_denial_has_no_patch() -> None:
    assert not {"patch", "patchType"} & answer(Decision(findings=(finding(),), patch=PATCH), Phase.MUTATE).keys()


def test_R4_a_denial_has_a_reason_a_field_and_a_fix() -> None:
    response = answer(Decision(findings=(finding(field="spec.x", detail="because of this", fix="write that"),)))
    assert response["allowed"] is False
    assert response["status"] == {
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": "[p] it is wrong (at spec.x) [kind/what]\n  because of this\n  Fix: write that",
    }


def test_R4_an_unreadable_object_is_a_bad_request() -> None:
    assert answer(Decision(findings=(finding(),), malformed=True))["status"]["code"] == 400


def test_R4_a_message_with_many_findings_is_truncated_after_a_line() -> None:
    denials = tuple(finding(reason=f"wrong {number}", detail="x" * 100) for number in range(1000))
    message = answer(Decision(findings=denials))["status"]["message"]
    *lines, last = message.splitlines()
    assert 16_000 < len(message) < 17_000
    assert {line.rpartition(" ")[2] for line in lines} == {"[kind/what]", "x" * 100}
    assert last == "... and more of the same"


def test_R4_a_long_line_is_truncated() -> None:
    message = answer(Decision(findings=(finding(reason="x" * 100_000),)))["status"]["message"]
    assert len(message) < 17_000
    assert message.endswith("x\n... and more of the same")


def test_R4_user_input_cannot_add_a_line_to_a_reason() -> None:
    odd = finding(reason="no pool `a\nWarning: b`", field='metadata.labels["a\nWarning: b"]', detail="c\nWarning: d")
    message = answer(Decision(findings=(odd,)))["status"]["message"]
    assert message.splitlines() == [
        '[p] no pool `a Warning: b` (at metadata.labels["a Warning: b"]) [kind/what]',
        "  c",
        "  Warning: d",
    ]


def test_R5_warnings_are_short_lines_without_loss_of_text() -> None:
    long = " ".join(f"word{number}" for number in range(100))
    warnings = answer(Decision(findings=(finding(Outcome.WARN, detail=long, fix="do it"),)))["warnings"]
    assert all(len(line) <= 120 for line in warnings)
    assert warnings[0] == "[p] it is wrong [kind/what]"
    assert warnings[-1] == "  Fix: do it"
    assert " ".join(" ".join(warnings[1:-1]).split()) == long


@pytest.mark.parametrize(
    ("length", "lines"), [(116, ["  to", f"    {'x' * 116}"]), (117, [f"  to {'x' * 115}", "    xx"])]
)
def test_R5_only_a_word_longer_than_a_line_is_split(length: int, lines: list[str]) -> None:
    assert answer(Decision(findings=(finding(Outcome.WARN, detail="to " + "x" * length),)))["warnings"][1:] == lines


def test_R5_warnings_stay_below_the_size_at_which_the_api_server_truncates_them() -> None:
    findings = tuple(finding(Outcome.WARN, reason=f"wrong {number}", detail="word " * 100) for number in range(100))
    warnings = answer(Decision(findings=findings))["warnings"]
    assert 3000 < sum(map(len, warnings)) <= 4096


SPREAD = """write:
spec:
  template:
    spec: {priorityClassName: 'y'}
"""
PROBE = """name a probe, for example:
spec:
  template:
    spec:
      containers:
      - name: web
        command: ["a: b", '8', 8]
"""


def kubectl_shows(*responses: dict[str, Any]) -> list[str]:
    """Return the warnings that kubectl prints in one run; it drops repeated lines."""
    return list(dict.fromkeys(line for response in responses for line in response.get("warnings", [])))


def test_R5_kubectl_prints_repeated_fixes_completely() -> None:
    fixes = (SPREAD, SPREAD.replace("'y'", "x"), PROBE, "write:\n- not: [yaml", "do it\nso", "do it\nso")
    for severally in (False, True):  # in one response, or in one for each object of `kubectl apply`
        findings = [finding(Outcome.WARN, reason=f"wrong {i}", fix=fix.rstrip()) for i, fix in enumerate(fixes)]
        groups = [findings[:5], findings[5:]] if not severally else [[single] for single in findings[:5]]
        shown = kubectl_shows(*(answer(Decision(findings=tuple(group))) for group in groups))
        assert [line for line in shown if not line.startswith("[p]")][:5] == [
            '  Fix: write: {spec: {template: {spec: {priorityClassName: "y"}}}}',
            "  Fix: write: {spec: {template: {spec: {priorityClassName: x}}}}",
            (
                "  Fix: name a probe, for example: "
                '{spec: {template: {spec: {containers: [{name: web, command: ["a: b", "8", 8]}]}}}}'
            ),
            "  Fix: write: - not: [yaml",
            "  Fix: do it so",
        ]
    twice = answer(Decision(findings=tuple(findings[4:])))["warnings"]
    assert twice == ["[p] wrong 4 [kind/what]", "  Fix: do it so", "[p] wrong 5 [kind/what]", "  Fix: do it so "]


def test_R5_warnings_have_no_control_characters_or_lone_surrogates() -> None:
    odd = finding(Outcome.WARN, reason="bell \x07 escape \x1b[31m newline \n surrogate \ud800 end")
    warnings = answer(Decision(findings=(odd,)))["warnings"]
    assert all(line.isprintable() for line in warnings)


def test_R6_audit_annotations_are_printable() -> None:
    assert answer(Decision(audit={"p": "deny: a\x00b"}))["auditAnnotations"] == {"p": "deny: a b"}


def test_R6_audit_annotations_are_truncated() -> None:
    assert len(answer(Decision(audit={"p": "x" * 100_000}))["auditAnnotations"]["p"]) < 17_000


def test_audit_and_indeterminate_findings_are_neither_denials_nor_warnings() -> None:
    response = answer(Decision(findings=(finding(Outcome.AUDIT), finding(Outcome.INDETERMINATE))))
    assert response == {"uid": "the-uid", "allowed": True}


def test_R1_a_crash_still_echoes_the_uid() -> None:
    review = json.loads(errored("the-uid", 500, "a bug"))
    assert review["response"]["uid"] == "the-uid"
    assert review["response"]["allowed"] is False
    assert review["response"]["status"]["code"] == 500


def test_a_finding_in_several_templates_is_reported_once_with_all_fields() -> None:
    findings = tuple(finding(Outcome.WARN, field=f"spec.groups[{index}]", fix="correct it") for index in range(6))
    assert answer(Decision(findings=findings))["warnings"] == [
        "[p] it is wrong (at spec.groups[0]) [kind/what]",
        "  Fix: correct it",
        "  Also at spec.groups[1], spec.groups[2], spec.groups[3] and 2 more.",
    ]
