"""``spotgate check --kubeconfig`` for an unreadable cluster: a clear error, in bounded time, with exit code 2.

tests/controlplane/commands/test_check.py covers readable clusters.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POD
from webhook.judging import live_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run, Write

ROOT = Path(__file__).parents[3]


EXEC = "client.authentication.k8s.io/v1"


def kubeconfig(server: str, **user: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "prod",
        }
    )


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yield a reserved port without a listener."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of a server that answers every request with the parametrized (status, body)."""
    status, body = request.param

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def error_of(run: Run, write: Write, text: str | None, *arguments: str) -> str:
    """Return the standard error of a run that evaluates nothing."""
    write("pod.yaml", POD)
    if text is not None:
        write("kubeconfig", text)
    done = run("check", "--kubeconfig", "kubeconfig", *arguments, "pod.yaml")
    assert (done.code, done.out) == (2, "")
    return done.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("", "it isn't a kubeconfig"),
        ("just a text", "it isn't a kubeconfig"),
        ("{a: [", "while parsing a flow node"),
        ("{apiVersion: v1, kind: Config}", "Expected key current-context"),
        (
            kubeconfig("https://127.0.0.1:1", tokenFile="/nowhere/token"),
            "server: /nowhere/token: No such file or directory",
        ),
        (kubeconfig("https://127.0.0.1:1", **{"token": "t", "as": "alice"}), "its user has `as`, and spotgate can't"),
        (kubeconfig("https://127.0.0.1:1", **{"token": "t", "as-groups": ["a"]}), "its user has `as-groups`"),
        (
            kubeconfig("https://127.0.0.1:1", exec={"apiVersion": EXEC, "command": "no-plugin"}),
            "its `exec` no-plugin gave no credentials; install it",
        ),
        (
            kubeconfig("https://127.0.0.1:1", **{"auth-provider": {"name": "azure"}}),
            "its `auth-provider` azure gave no",
        ),
    ],
    ids=[
        "missing",
        "empty",
        "text",
        "no YAML",
        "no context",
        "no token",
        "impersonates",
        "impersonates a group",
        "no plugin",
        "no such provider",
    ],
)
def test_an_unusable_kubeconfig_is_named(run: Run, write: Write, text: str | None, why: str) -> None:
    error = error_of(run, write, text)
    assert error.startswith("spotgate check: kubeconfig: can't be used to reach an API server: ")
    assert why in error
    assert error.count("\n") == 1


def test_kubeconfigs_are_merged_and_the_first_current_context_wins(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(kubeconfig("https://127.0.0.1:1"))
    write("first", json.dumps({**whole, "contexts": [], "users": []}))
    write("second", json.dumps({**whole, "clusters": [], "current-context": "staging"}))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["first", "nowhere", "second"]))
    assert run("doctor").err.startswith(
        "spotgate doctor: the cluster at https://127.0.0.1:1 can't be read: Cannot connect"
    )


def test_a_missing_context_is_named(run: Run, write: Write) -> None:
    error = error_of(run, write, kubeconfig("https://127.0.0.1:1"), "--context=staging")
    assert "Expected object with name staging in kubeconfig/contexts list" in error


def test_an_unreachable_api_server_is_named(run: Run, write: Write, closed_port: int) -> None:
    url = f"https://127.0.0.1:{closed_port}"
    error = error_of(run, write, kubeconfig(url))
    assert error.startswith(f"spotgate check: the cluster at {url} can't be read: Cannot connect to host")
    assert error.endswith("; check --kubeconfig and --context, and whether this machine can reach it\n")
    done = run("certs", "show", "--kubeconfig=kubeconfig")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"spotgate certs: the cluster at {url} can't be read: Cannot connect to host")


def test_an_api_server_that_never_answers_times_out(
    run: Run, write: Write, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "_ANSWER", 0.2)
    error = error_of(run, write, kubeconfig(f"http://127.0.0.1:{silent_port}"))
    assert "can't be read: the API server didn't answer in time; check --kubeconfig" in error


@pytest.mark.parametrize(
    ("answering", "why"),
    [
        (
            (401, b'{"kind": "Status", "message": "Unauthorized"}'),
            "401 Unauthorized: Unauthorized; the credentials are",
        ),
        ((200, b"<html>Log in first</html>"), "the API server's answer is malformed: JSON is malformed"),
        ((200, b"[]"), "the API server's answer is malformed: Expected `object`"),
    ],
    indirect=["answering"],
    ids=["refusing the credentials", "a login page", "something else"],
)
def test_a_server_that_is_not_an_api_server_is_named(run: Run, write: Write, answering: str, why: str) -> None:
    error = error_of(run, write, kubeconfig(answering))
    assert error.startswith(f"spotgate check: the cluster at {answering} can't be read: {why}")


@pytest.mark.parametrize("answering", [(503, b"come back later")], indirect=True)
def test_unreadable_resources_are_listed_one_by_one(run: Run, write: Write, answering: str) -> None:
    write("pod.yaml", POD)
    write("kubeconfig", kubeconfig(answering))
    done = run("check", "--kubeconfig=kubeconfig", "-o", "json", "pod.yaml")
    assert done.code == 2
    assert "kubeconfig: nodes can't be read: 503 Service Unavailable: come back later\n" in done.err
    assert "kubeconfig: nodepools.compute.coreweave.com can't be read: 503" in done.err
    assert "pod.yaml:1:1: the cluster's version of this object can't be read: 503" in done.err
    assert done.json["summary"]["documents"] == 1
