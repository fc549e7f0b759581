"""Reviews over TLS: answers and rejections, each of which leaves the server working."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.server.harness import Known, Slow, bundle_of, eventually, review
from webhook.model.decision import Violation
from webhook.model.review import Request
from webhook.runtime.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.server.conftest import Start
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


def deny(_: Subject, __: Context) -> Iterable[Violation]:
    yield Violation(id="unwanted", reason="it is not wanted")


def fail(subject: Subject, _: Context) -> Iterable[Violation]:
    """Fail, except in the self-test."""
    if subject.request.name == "web-0":
        raise KeyError(subject.object)
    return ()


# Decisions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/mutate?timeout=10s", "/validate?timeout=500ms&x=y"])
def test_R1_R3_a_decision_is_http_200_with_the_reviews_version_kind_and_uid(start: Start, path: str) -> None:
    answer = start().post(path=path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["apiVersion"] == "admission.k8s.io/v1"
    assert answer.json["kind"] == "AdmissionReview"
    assert answer.json["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert answer.allowed


def test_R3_R4_a_denial_is_http_200_with_a_reason(start: Start) -> None:
    answer = start(bundle_of(deny)).post()
    assert not answer.allowed
    assert answer.json["response"]["status"]["code"] == 403
    assert "it is not wanted" in answer.json["response"]["status"]["message"]


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_content_types_are_accepted(start: Start, content_type: str) -> None:
    assert start().post(headers={"Content-Type": content_type}).allowed


def test_a_chunked_body_is_accepted(start: Start) -> None:
    body = review()
    assert start().post([body[:10], body[10:]]).allowed


def test_expect_100_continue_is_answered(start: Start) -> None:
    served = start()
    body = review()
    with served.socket() as client:
        head = (
            f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert client.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(1024).startswith(b"HTTP/1.1 200 OK\r\n")


def test_pipelined_requests_are_answered_in_order(start: Start) -> None:
    uids = [f"uid-{number}" for number in range(20)]
    sent = b""
    for uid in uids:
        body = review(uid=uid)
        head = f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        sent += head.encode() + body
    received = b""
    with start().socket() as client:
        client.sendall(sent)
        while received.count(b'"uid"') < len(uids):
            received += client.recv(65536)
    assert [received.find(uid.encode()) for uid in uids] == sorted(received.find(uid.encode()) for uid in uids)


@pytest.mark.parametrize("keep_alive", [True, False])
def test_http_1_0_is_supported(start: Start, *, keep_alive: bool) -> None:
    body = review()
    head = f"POST /validate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with start().socket() as client:
        client.sendall(f"{head}{'Connection: keep-alive' if keep_alive else 'X: y'}\r\n\r\n".encode() + body)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        if not keep_alive:
            assert client.recv(1) == b""


# Invalid reviews ----------------------------------------------------------------------------------------------------


def envelope(**changes: object) -> bytes:
    return json.dumps({**json.loads(review()), **changes}).encode()


BAD_REVIEWS = {
    "an empty body": b"",
    "malformed JSON": b'{"apiVersion": ',
    "a JSON list": b"[]",
    "NaN": review().replace(b'"web-0"', b"NaN", 1),
    "Infinity": review().replace(b'"oldObject": null', b'"oldObject": Infinity'),
    "50,000 nested brackets": b"[" * 50_000,
    "50,000 nested brackets in the object": review(object="@").replace(b'"@"', b"[" * 50_000 + b"]" * 50_000),
    "50,000 nested objects": b'{"a":' * 50_000,
    "invalid UTF-8": review().replace(b"web-0", b"web-\xff\xfe"),
    "a lone surrogate in the name": review(name="@").replace(b'"@"', b'"\\ud800"'),
    "UTF-16": review().decode().encode("utf-16"),
    "another group": envelope(apiVersion="admission.example.com/v1"),
    "another version": envelope(apiVersion="admission.k8s.io/v1beta1"),
    "another kind": envelope(kind="ConversionReview"),
    "no apiVersion": envelope(apiVersion=""),
    "no request": envelope(request=None),
    "no uid": review(uid=None),
    "an empty uid": review(uid=""),
    "a uid that is a number": review(uid=7),
    "another operation": review(operation="PATCH"),
    "no resource": review(resource=None),
    "a megabyte of operation": review(operation="x" * 2**20),
}


@pytest.mark.parametrize("name", BAD_REVIEWS)
def test_I7_an_invalid_review_is_http_400_and_the_next_is_answered(start: Start, name: str) -> None:
    served = start()
    answer = served.post(BAD_REVIEWS[name])
    assert answer.status == 400, answer
    assert list(answer.json) == ["error"]
    assert 0 < len(answer.body) < 3000
    assert served.post().allowed
    assert served.metric("spotgate_rejected_total", reason="bad review") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "another version",
            "expected admission.k8s.io/v1 AdmissionReview, got admission.k8s.io/v1beta1 AdmissionReview",
        ),
        ("no request", "the AdmissionReview has no `request`"),
    ],
)
def test_a_rejection_states_the_problem(start: Start, name: str, text: str) -> None:
    assert start().post(BAD_REVIEWS[name]).json == {"error": text}


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "POST", {}, 404),
        ("/mutate/", "POST", {}, 404),
        ("/validate", "GET", {}, 405),
        ("/validate", "PUT", {}, 405),
        ("/validate", "POST", {"Content-Type": "text/plain"}, 415),
        ("/validate", "POST", {"Content-Type": "application/json-patch+json"}, 415),
        ("/validate", "POST", {"Content-Type": ""}, 415),
        ("/validate", "POST", {"Content-Encoding": "gzip"}, 415),
        ("/validate", "POST", {"Content-Encoding": "br"}, 415),
    ],
)
def test_other_requests_are_rejected_and_the_connection_stays_open(
    start: Start, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    served = start()
    connection = served.connection()
    assert served.post(path=path, method=method, headers=headers, over=connection).status == status
    assert served.post(over=connection).allowed
    connection.close()


def test_P2_a_request_sees_one_bundle(start: Start) -> None:
    state = Slow()
    served = start(bundle_of(fresh_pools=True), state)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(served.post)
        assert state.asked.acquire(timeout=20)
        served.replica.webhook.snapshot = Snapshot(bundle_of(deny), Known())
        served.loop.call_soon_threadsafe(state.open.set)
        assert waiting.result().allowed
    assert not served.post().allowed


# Bugs ---------------------------------------------------------------------------------------------------------------


def test_I7_a_bug_in_a_policy_is_a_finding_and_one_log_line_a_second(start: Start) -> None:
    served = start(bundle_of(fail))
    assert served.metric("spotgate_policy_errors_total", policy="test-policy") == 0
    begun = monotonic()
    answers = [served.post() for _ in range(20)]
    eventually(lambda: served.metric("spotgate_policy_errors_total", policy="test-policy") == 20)
    assert [(answer.status, answer.allowed) for answer in answers] == [(200, False)] * 20
    assert "object/internal-error" in answers[0].json["response"]["status"]["message"]
    assert served.metric("spotgate_errors_total", phase="validate") == 0
    failed = served.log("policy failed")
    assert len(failed) <= 1 + monotonic() - begun
    assert failed[0]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert (failed[0]["policy"], failed[0]["error"]) == ("test-policy", "KeyError")
    assert "test_app.py" in failed[0]["where"][-1]
    assert failed[0]["where"][-1].endswith(" fail")
    assert "registry.example.com" not in served.text_of_log()


def test_I7_R1_another_bug_is_http_500_with_the_uid_and_the_next_is_answered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = start()
    connection = served.connection()
    monkeypatch.setattr("webhook.server.http.app.decide_call", lambda *_: int("hunter2"))
    answer = served.post(over=connection)
    assert answer.status == 500
    assert answer.json["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert answer.json["response"]["allowed"] is False
    monkeypatch.undo()
    assert served.post(over=connection).allowed
    connection.close()
    assert served.metric("spotgate_errors_total", phase="validate") == 1
    assert "hunter2" not in served.text_of_log()
    bug = served.log("bug")[0]
    assert bug["error"] == "ValueError"
    assert "test_app.py" in bug["where"][-1]
    assert bug["where"][-1].endswith(" <lambda>")


# The log ------------------------------------------------------------------------------------------------------------


def test_a_decision_is_one_log_line(start: Start) -> None:
    served = start(bundle_of(deny))
    served.post()
    eventually(lambda: bool(served.log("decision")))
    (line,) = served.log("decision")
    assert line.pop("ms") > 0
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "decision",
        "level": "info",
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "phase": "validate",
        "operation": "CREATE",
        "resource": "pods",
        "namespace": "team-a",
        "name": "web-0",
        "user": "anna@example.com",
        "allowed": False,
        "outcome": "denied",
        "policies": ["test-policy"],
        "findings": ["test/unwanted"],
        "patch_operations": 0,
        "caller": "unauthenticated",
        "peer": "127.0.0.1",
    }


def test_H14_no_object_content_is_logged(start: Start) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"password": "aHVudGVyMg=="}, "x": {"y": "hunter2"}}

    def quote(subject: Subject, _: Context) -> Iterable[Violation]:
        yield Violation(id="unwanted", reason="no", detail=str(subject.object))

    for judge in (quote, fail):
        served = start(bundle_of(judge))
        served.post(review(object=secret))
        served.post(review(object=secret)[:-20])
        served.post(review(object=secret), headers={"Content-Type": "text/plain"})
        served.stop()
        served.wait()
        assert served.log("refused")
        assert "aHVudGVyMg" not in served.text_of_log()
        assert "hunter2" not in served.text_of_log()


def test_rejections_are_logged_once_a_second_per_reason_with_a_count(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("webhook.runtime.log.perf_counter", lambda: now)
    served = start()
    for _ in range(5):
        served.post(b"{")
    served.post(path="/elsewhere")
    now += 1
    served.post(b"{")
    assert [(line["reason"], line["count"]) for line in served.log("refused")] == [
        ("bad review", 1),
        ("not found", 1),
        ("bad review", 5),
    ]
    assert served.metric("spotgate_rejected_total", reason="bad review") == 6


def test_names_in_the_log_are_truncated(start: Start) -> None:
    served = start()
    served.post(review(name="n" * 50_000, namespace="m" * 50_000, userInfo={"username": "u" * 50_000}))
    eventually(lambda: bool(served.log("decision")))
    assert len(served.text_of_log()) < 5000


def test_the_number_of_resource_names_in_metrics_is_bounded(start: Start) -> None:
    served = start()
    connection = served.connection()
    for number in range(250):
        resource = {"group": "", "version": "v1", "resource": f"thing-{number}"}
        assert served.post(review(resource=resource), over=connection).allowed
    connection.close()
    assert served.metric("spotgate_decisions_total", resource="other") == 50
    assert served.metric("spotgate_decisions_total") == 250


def test_a_connection_closed_in_the_body_is_not_a_decision(start: Start) -> None:
    served = start()
    client = served.socket()
    client.sendall(
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
    )
    eventually(lambda: served.metric("spotgate_connections") == 1)
    client.close()
    eventually(lambda: served.metric("spotgate_rejected_total", reason="broken body") == 1)
    assert not served.log("decision")
    assert served.post().allowed


def test_an_idle_connection_keeps_no_data_of_its_last_request(start: Start) -> None:
    def reviews() -> int:
        return sum(type(thing) is Request for thing in gc.get_objects())

    served = start()
    before = reviews()
    connection = served.connection()
    assert served.post(over=connection).allowed
    eventually(lambda: reviews() <= before)
    connection.close()
