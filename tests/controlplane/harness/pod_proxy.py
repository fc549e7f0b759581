"""A proxy to an API server that forwards the /proxy/ requests for Pods to a local process.

KWOK's Pods have no ports, and the API server's proxy refuses loopback addresses. This proxy records all answers.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import ssl
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cli.doctor.recorded import Answer, key_of
from tests.controlplane.harness.other_webhook import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

_PROXY = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/:]+):8080/proxy(/.*)")


@dataclass(slots=True)
class PodProxy:
    """A proxy to the API server of `cluster` and to `ops`.

    Attributes:
        cluster: the cluster of the API server.
        ops: the address that serves the operators' port of every Pod.
        port: the proxy's own port.
        changed: functions that change the answers to paths that contain the key.
        answers: the answers so far, by request.
    """

    cluster: Cluster
    ops: str
    port: int = 0
    changed: dict[str, Callable[[str], str]] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    def kubeconfig(self, file: Path, token: str = "") -> Path:
        """Write a kubeconfig for this proxy, by default the administrator's."""
        user = {"token": token or self.cluster.credentials.tokens["admin"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "it", "user": user}],
        }
        file.write_text(json.dumps(config))
        return file

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the status, headers, and body of the answer."""
        if proxied := _PROXY.fullmatch(path):
            connection = http.client.HTTPConnection(self.ops, timeout=10)
            target = proxied[2]
        else:
            tls = ssl.create_default_context(cafile=str(self.cluster.credentials.authority))
            address = self.cluster.credentials.url.removeprefix("https://")
            connection = http.client.HTTPSConnection(address, timeout=10, context=tls)
            target = path
        with contextlib.closing(connection):
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            content, status = response.read(), response.status
            sent = [header for header in response.getheaders() if header[0] in {"Content-Type", "Warning", "Date"}]
        for part, change in self.changed.items():
            if part in path:
                content = change(content.decode()).encode()
        key = key_of(method, path, json.loads(body) if body else None)
        self.answers[key] = Answer(status, content.decode(), tuple(value for name, value in sent if name == "Warning"))
        return status, sent, content


@contextlib.contextmanager
def serve_pod_proxy(cluster: Cluster, ops: str) -> Iterator[PodProxy]:
    """Serve in threads until the block ends."""
    proxy = PodProxy(cluster, ops)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            forwarded = ("Authorization", "Accept", "Content-Type", "User-Agent")
            headers = {name: self.headers[name] for name in forwarded if name in self.headers}
            status, sent, answer = proxy.answer(self.command, self.path, headers, body)
            with contextlib.suppress(ConnectionError):  # a client that doesn't wait any longer
                self.send_response_only(status)
                for name, value in sent:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket.listen(BACKLOG)
        proxy.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
