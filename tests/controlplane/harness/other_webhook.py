"""A webhook other than spotgate, on loopback over TLS, with the answers that a test sets.

with serve() as other:
    other.answers["/label"] = patching({"op": "add", "path": "/metadata/labels", "value": {"team": "blue"}})
    client_config = other.client("/label")
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import trustme

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKLOG = 128
"""Clients that may connect at once. With the default, 5, others try again after seconds, and may give up."""

Respond = Callable[[dict[str, Any]], dict[str, Any]]
"""A function from the request of an AdmissionReview to its response, without the UID."""


def patching(*operations: dict[str, Any]) -> Respond:
    """Return a function that admits every request with these operations as the patch."""
    patch = base64.b64encode(orjson.dumps(operations)).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def denying(_: dict[str, Any]) -> dict[str, Any]:
    """Deny every request."""
    return {"allowed": False, "status": {"message": "the other webhook denies everything"}}


@dataclass(frozen=True, slots=True)
class OtherWebhook:
    """A webhook: a test sets its `answers` by path (other paths fail), and reads the requests in `seen`."""

    url: str
    authority: bytes
    answers: dict[str, Respond] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def client(self, path: str) -> dict[str, str]:
        """Return the `clientConfig` for this path."""
        return {"url": self.url + path, "caBundle": base64.b64encode(self.authority).decode()}

    def answer(self, path: str, body: bytes) -> bytes | None:
        """Return the answer to a review, or None if the path has none."""
        review = orjson.loads(body)
        self.seen.append(review["request"])
        if path not in self.answers:
            return None
        response = self.answers[path](review["request"]) | {"uid": review["request"]["uid"]}
        return orjson.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


@contextlib.contextmanager
def serve() -> Iterator[OtherWebhook]:
    """Serve in threads until the block ends."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = self.rfile.read(int(self.headers["Content-Length"]))
            answer = webhook.answer(self.path.partition("?")[0], review)
            self.send_response(http.HTTPStatus.NOT_FOUND if answer is None else http.HTTPStatus.OK)
            self.end_headers()
            self.wfile.write(answer or b"")

        def log_message(self, *_: object) -> None:
            """Log nothing: tests read `seen`."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket.listen(BACKLOG)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = False  # so the end of the block waits for open requests
        webhook = OtherWebhook(f"https://127.0.0.1:{server.server_port}", authority.cert_pem.bytes())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield webhook
        finally:
            server.shutdown()
            thread.join()
