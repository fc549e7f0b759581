"""Identify the caller of an HTTP request and read its body, with a limit on everything that a client controls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

import orjson
from aiohttp import StreamReader, hdrs, web

from webhook.base.text import go_duration
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.runtime.limits import Limits
    from webhook.server.http.peers import Peer, Peers

JSON_TYPE: Final = "application/json"


@dataclass(eq=False)
class RejectedError(Exception):
    """An error for a request that gets no verdict.

    Attributes:
        status: the HTTP status of the response.
        reason: a fixed short reason, used in metrics and logs.
        message: the message in the response.
        headers: headers to add to the response.
    """

    status: int
    reason: str
    message: str
    headers: Mapping[str, str] | None = None

    def response(self) -> web.Response:
        """Return the HTTP response: JSON without an AdmissionReview, because the UID is unknown."""
        body = orjson.dumps({"error": self.message})
        headers = {hdrs.SERVER: "spotgate", **(self.headers or {})}  # aiohttp's default shows versions
        return web.Response(status=self.status, body=body, headers=headers, content_type=JSON_TYPE)


def too_busy(reason: str) -> RejectedError:
    """Return the error for too many requests. The API server retries within its timeout."""
    return RejectedError(429, reason, f"too busy ({reason}); try again in a second", {hdrs.RETRY_AFTER: "1"})


UNAUTHENTICATED: Final = "unauthenticated"
"""The name of a caller without a certificate in the log."""

_UNNAMED: Final = "unnamed"


def identify(names: Sequence[str], allowed: frozenset[str]) -> str:
    """Return the name of a caller, or an empty string if it has no certificate.

    The client certificate, which TLS has verified, identifies the caller. API servers of Kubernetes 1.37 can send a
    ServiceAccount token with each review instead (KEP-6060, alpha); such a token would be verified here.

    Args:
        names: the names in the caller's client certificate.
        allowed: the names of allowed callers; empty allows any caller that passes TLS.

    Raises:
        RejectedError: the caller isn't allowed.
    """
    if allowed and allowed.isdisjoint(names):
        shown = ", ".join(names)
        raise RejectedError(
            403, "caller", f"the client certificate is for {shown}, and spotgate doesn't serve this client"
        )
    return names[0] if names else ""


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the common name and the DNS names in a certificate, as `ssl.SSLSocket.getpeercert` returns it.

    Return an empty tuple if there is no certificate. A certificate without a name gets the name ``unnamed``.
    """
    if not certificate:
        return ()
    subject = [
        value for attributes in certificate.get("subject", ()) for name, value in attributes if name == "commonName"
    ]
    dns = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return (*subject, *dns) or (_UNNAMED,)


_PHASES: Final = {"/mutate": Phase.MUTATE, "/validate": Phase.VALIDATE}
_DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for which the API server waits if the webhook configuration has no timeout."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestTarget(NamedTuple):
    """The target of a request, such as ``/mutate?timeout=3s``.

    Attributes:
        phase: the phase of the path.
        timeout: the seconds for which the caller waits.
    """

    phase: Phase
    timeout: float


@lru_cache(maxsize=64)
def parse_target(text: str) -> RequestTarget | None:
    """Parse the target of an HTTP request. Return None if the path isn't one of the webhook's."""
    path, _, query = text.partition("?")
    if path not in _PHASES:
        return None
    given = parse_qs(query).get("timeout", [""])[-1]
    return RequestTarget(_PHASES[path], go_duration(given) or _DEFAULT_TIMEOUT)


_SMALL: Final = 64 * 1024
"""The size of a body that is read even if the buffers are full: enough for a Pod. All connections: 48 MiB."""


class RequestReader:
    """A reader of request bodies that counts their bytes in memory."""

    def __init__(self, limits: Limits, peers: Peers) -> None:
        self._limits = limits
        self._peers = peers
        self._held = 0

    async def read(self, request: web.BaseRequest, peer: Peer) -> tuple[RequestTarget, bytes]:
        """Return the target and the body of a request. After use, call `hold` with the negative size of the body.

        Raises:
            RejectedError: the request can't be a review, or exceeds a limit.
        """
        target = self._check_head(request)
        if hdrs.EXPECT in request.headers:
            await request.writer.write(CONTINUE)
            request.writer.output_size = 0  # the response hasn't started
        try:
            return target, await self._read_body(request.content, peer)
        except (web.RequestPayloadError, ConnectionError):
            raise RejectedError(400, "broken body", "the request's body is incomplete or malformed") from None

    def hold(self, size: int, peer: Peer) -> None:
        """Add to the number of body bytes in memory, or subtract with a negative size."""
        self._held += size
        peer.body_bytes += size

    def _check_head(self, request: web.BaseRequest) -> RequestTarget:
        target = parse_target(request.raw_path)
        if target is None:
            raise RejectedError(404, "not found", "use POST /mutate or POST /validate")
        if request.method != hdrs.METH_POST:
            raise RejectedError(405, "method", "send AdmissionReviews with POST", {hdrs.ALLOW: hdrs.METH_POST})
        headers = request.headers
        content_type = headers.get(hdrs.CONTENT_TYPE, "")
        if content_type != JSON_TYPE and content_type.partition(";")[0].strip().lower() != JSON_TYPE:
            raise RejectedError(415, "content type", f"the Content-Type must be {JSON_TYPE}")
        # The API server never compresses, and a small body can expand to gigabytes.
        if headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise RejectedError(415, "content encoding", "send it uncompressed", {hdrs.ACCEPT_ENCODING: "identity"})
        if (request.content_length or 0) > self._limits.body_bytes:
            raise self._too_large()
        return target

    async def _read_body(self, content: StreamReader, peer: Peer) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := await content.readany():  # most bodies have arrived, so this doesn't wait
                pieces.append(piece)
                size += len(piece)
                self.hold(len(piece), peer)
                self._check_size(size, peer)
        except BaseException:
            self.hold(-size, peer)
            raise
        return b"".join(pieces)

    def _check_size(self, size: int, peer: Peer) -> None:
        if size > self._limits.body_bytes:
            raise self._too_large()
        limit = self._limits.buffered_bytes
        if self._held > limit and peer.body_bytes > self._peers.share(limit) and size > _SMALL:
            raise too_busy("many large requests")

    def _too_large(self) -> RejectedError:
        return RejectedError(413, "too large", f"the request's body is larger than {self._limits.body_bytes} bytes")
