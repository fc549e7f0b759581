"""``spotgate explain`` for a live object, for a kind or policy by name, and for a pool with a custom reader."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.conftest import POD, SPOT_POOL
from tests.cli.judging.test_live_state import kubeconfig
from webhook.engine.bundle import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run, Write

PODS = {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": ["get", "list"]}
DISCOVERED = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [PODS]}]}
ANSWERS: dict[str, Any] = {
    "/api": {"kind": "APIGroupDiscoveryList", "items": [DISCOVERED]},
    "/apis": {"kind": "APIGroupDiscoveryList", "items": []},
    "/version": {"gitVersion": "v1.37.2"},
    "/api/v1/namespaces/shop/pods/web": yaml.safe_load(POD),
}


class ApiServer(http.server.BaseHTTPRequestHandler):
    """An API server with one Pod; lists are empty."""

    def do_GET(self) -> None:
        """Answer with the Pod or an empty list."""
        path = self.path.partition("?")[0]
        last = path.rpartition("/")[2]
        empty = {"metadata": {"resourceVersion": "1"}, "items": []} if last != "nothing" else None
        value = ANSWERS.get(path, empty)
        body = json.dumps(value or {"message": "not found"}).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture
def cluster(write: Write) -> Iterator[None]:
    """Write a kubeconfig for a cluster on loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        write("kubeconfig", kubeconfig(f"http://127.0.0.1:{server.server_port}"))
        yield
        server.shutdown()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("word", ["pod/web", "Pods/web"])
def test_a_live_object_is_explained(run: Run, word: str) -> None:
    done = run("explain", word, "-n", "shop", "--kubeconfig", "kubeconfig")
    assert (done.code, done.err) == (0, "")
    assert "Pod" in done.out
    assert "web" in done.out
    assert "reserved-labels" in done.out


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("pood/web", "error: the cluster has no kind pood, did you mean `pod`?"),
        ("pod/nothing", "error: pods nothing in namespace shop can't be read: 404"),
    ],
)
def test_a_missing_object_is_a_one_line_error(run: Run, word: str, problem: str) -> None:
    done = run("explain", word, "-n", "shop", "--kubeconfig", "kubeconfig")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(problem)


def test_a_wrong_path_in_a_custom_reader_is_shown(run: Run, write: Write, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "policies", ignore=shutil.ignore_patterns("tests"))
    cks = tmp_path / "policies" / "providers" / "cks.yaml"
    cks.write_text(cks.read_text().replace("from: spec.computeClass", "from: spec.class"))
    done = run("explain", "--policies", tmp_path / "policies", write("pool.yaml", SPOT_POOL))
    assert "  capacity         on-demand  (no spec.class)\n" in done.out
