"""A webhook that is not spotgate, on loopback and over TLS: it answers what a test tells it to.

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

Respond = Callable[[dict[str, Any]], dict[str, Any]]
"""From the request of an AdmissionReview to its response, without the UID."""


def patching(*operations: dict[str, Any]) -> Respond:
    """Let everything in, changed."""
    patch = base64.b64encode(orjson.dumps(operations)).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def denying(_: dict[str, Any]) -> dict[str, Any]:
    """Let nothing in."""
    return {"allowed": False, "status": {"message": "the other webhook denies everything"}}


@dataclass(frozen=True, slots=True)
class OtherWebhook:
    """Its `answers` by path, which a test fills in (any other path fails), and the requests it has `seen`."""

    url: str
    authority: bytes
    answers: dict[str, Respond] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def client(self, path: str) -> dict[str, str]:
        """Return the `clientConfig` that leads there."""
        return {"url": self.url + path, "caBundle": base64.b64encode(self.authority).decode()}

    def answer(self, path: str, body: bytes) -> bytes | None:
        """Answer one review; None if there is no answer."""
        review = orjson.loads(body)
        self.seen.append(review["request"])
        if path not in self.answers:
            return None
        response = self.answers[path](review["request"]) | {"uid": review["request"]["uid"]}
        return orjson.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


@contextlib.contextmanager
def serve() -> Iterator[OtherWebhook]:
    """Serve in threads until the block is left."""
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
            """Say nothing: tests look at `seen`."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = False  # then leaving the block waits for what is being answered
        webhook = OtherWebhook(f"https://127.0.0.1:{server.server_port}", authority.cert_pem.bytes())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield webhook
        finally:
            server.shutdown()
            thread.join()
