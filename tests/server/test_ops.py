from __future__ import annotations

import contextlib
import dataclasses
import json
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.server.harness import PAIR, PATIENCE, SHORT, Slow, bundle_of, eventually, review
from webhook import __version__
from webhook.model.decision import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.server.conftest import Spawn, Start
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


def deny_by_name(subject: Subject, _: Context) -> Iterable[Violation]:
    if subject.request.name == "denied":
        yield Violation(id="unwanted", reason="no")


def test_the_version_page_names_program_bundle_and_policies(start: Start) -> None:
    answer = start().ops("/version")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "program": "spotgate",
        "version": __version__,
        "bundle": "test-policy",
        "policies": [{"name": "test-policy", "kind": "Test", "enforcement": "deny"}],
        "certificate": PAIR.certificate_pem.decode(),
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_serving_replica_is_healthy_and_ready(start: Start, path: str) -> None:
    answer = start().ops(path)
    assert (answer.status, answer.body) == (200, b"ok\n")


@pytest.mark.parametrize("path", ["/mutate", "/debug", "/metrics/x"])
def test_the_operators_port_has_no_other_pages(start: Start, path: str) -> None:
    assert start().ops(path).status == 404


def test_the_TLS_port_has_no_operators_pages(start: Start) -> None:
    served = start()
    assert {served.post(path=path, method="GET").status for path in ("/", "/metrics")} == {404}


def test_decisions_and_findings_are_counted(start: Start) -> None:
    served = start(bundle_of(deny_by_name))
    for name in ("denied", "denied", "fine"):
        served.post(review(name=name))
    served.post(review(name="fine"), path="/mutate")
    decisions = "spotgate_decisions_total"
    assert served.metric(decisions, phase="validate", outcome="denied", resource="pods") == 2
    assert served.metric(decisions, phase="validate", outcome="allowed", resource="pods") == 1
    assert served.metric(decisions, phase="mutate", outcome="allowed") == 1
    assert served.metric("spotgate_findings_total", policy="test-policy", outcome="deny") == 2
    assert served.metric("spotgate_request_seconds_count", phase="validate") == 3
    assert served.metric("spotgate_request_seconds_bucket", phase="validate", le="+Inf") == 3


def test_probes_of_doctor_are_answered_but_not_counted(start: Start) -> None:
    served = start(bundle_of(deny_by_name))
    probe = {"metadata": {"generateName": "spotgate-doctor-"}, "spec": {"containers": []}}
    pod = {"apiVersion": "v1", "kind": "Pod", **probe}
    answer = served.post(review(name="denied", object=pod, dryRun=True))
    assert answer.json["response"]["allowed"] is False
    served.post(review(name="denied", object=pod, dryRun=False))  # the name alone excludes nothing
    eventually(lambda: served.metric("spotgate_decisions_total", phase="validate", outcome="denied") == 1)
    assert served.metric("spotgate_findings_total", policy="test-policy", outcome="deny") == 1


def test_every_metric_has_the_prefix_and_exists_from_the_start(start: Start) -> None:
    text = start().ops("/metrics").body.decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert all(name.startswith("spotgate_") for name in families)
    assert {
        "spotgate_decisions_total",
        "spotgate_findings_total",
        "spotgate_unknown_total",
        "spotgate_errors_total",
        "spotgate_rejected_total",
        "spotgate_shed_total",
        "spotgate_connections_cut_total",
        "spotgate_request_seconds",
        "spotgate_ready",
        "spotgate_connections",
        "spotgate_in_flight",
        "spotgate_bundle_info",
        "spotgate_last_reload_success",
        "spotgate_last_reload_timestamp_seconds",
        "spotgate_certificate_expiry_timestamp_seconds",
    } <= families


def test_rehearsal_results_become_metrics(spawn: Spawn, tmp_path: Path) -> None:
    file = tmp_path / "rehearsal.json"
    served = spawn(rehearsal=file)
    assert b"rehearsal" not in served.ops("/metrics").body
    pool = {"pool": "spot-a", "nodes": 3, "pending": 12, "killedEarly": 2}
    file.write_text(json.dumps({"timestamp": 1700000000.5, "pools": [pool]}))
    assert served.metric("spotgate_rehearsal_pending_pods", pool="spot-a") == 12
    assert served.metric("spotgate_rehearsal_killed_early", pool="spot-a") == 2
    assert served.metric("spotgate_rehearsal_timestamp_seconds") == 1700000000.5
    page = served.ops("/").body.decode()
    assert "rehearsed 2023-11-14 22:13:20 UTC" in page
    file.write_text("{")  # as during an edit
    assert served.metric("spotgate_rehearsal_timestamp_seconds") == 0


def test_L5_the_operators_port_answers_while_the_TLS_port_is_full(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, connections=1, handshake=60))
    held = [served.plain_socket() for _ in range(5)]
    eventually(lambda: served.metric("spotgate_connections_cut_total") >= 3)
    assert served.ops("/healthz").status == 200
    for client in held:
        client.close()


def test_L3_a_stopping_replica_is_unready_but_healthy_and_serving(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, quiet=60, drain=60))
    connection = served.connection()
    assert "connection" not in served.post(over=connection).headers
    served.stop(gracefully=True)
    eventually(lambda: served.ops("/readyz").status == 503)
    assert served.ops("/readyz").body == b"stopping\n"
    assert served.ops("/healthz").status == 200
    existing = served.post(over=connection)
    new = served.post()
    assert existing.allowed
    assert new.allowed
    assert existing.headers["connection"] == new.headers["connection"] == "close"
    connection.close()


def test_L3_a_replica_stops_when_requests_cease(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, quiet=0.3, drain=600))
    assert served.post().allowed
    served.stop(gracefully=True)
    served.wait()
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", served.port))


def test_L3_a_request_on_an_idle_connection_is_answered_until_the_client_has_closed_it(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, quiet=0.1, drain=600, finish=PATIENCE))
    with contextlib.closing(served.connection()) as connection:
        assert served.post(over=connection).allowed
        served.stop(gracefully=True)
        assert select.select([connection.sock], [], [], PATIENCE)[0]  # the server announces its shutdown
        last = served.post(over=connection)
        assert last.allowed
        assert last.headers["connection"] == "close"
    served.wait()


def test_L3_an_idle_connection_does_not_block_the_shutdown(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, quiet=0.1, finish=0.1))
    with contextlib.closing(served.connection()) as connection:
        assert served.post(over=connection).allowed
        served.stop(gracefully=True)
        served.wait()
    assert served.log("stopped")


def test_L3_continuous_requests_do_not_block_the_shutdown(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, quiet=5, drain=0.5))
    served.stop(gracefully=True)
    with contextlib.suppress(OSError):  # of the first request that is too late
        while True:
            served.post()
    served.wait()


def test_a_request_in_flight_is_answered_before_the_shutdown(start: Start) -> None:
    state = Slow()
    served = start(bundle_of(fresh_pools=True), state, limits=dataclasses.replace(SHORT, finish=20, fresh=20))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(served.post, path="/validate?timeout=25s")
        assert state.asked.acquire(timeout=20)
        served.stop()
        eventually(lambda: served.log("stopping") != [])
        served.loop.call_soon_threadsafe(state.open.set)
        assert waiting.result().allowed
    served.wait()
