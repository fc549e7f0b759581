"""From an HTTP request to the bytes of a review, with a bound on everything a client chooses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import orjson
from aiohttp import hdrs, web

from webhook.context import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import StreamReader

    from webhook.server.limits import Limits
    from webhook.server.peers import Peer, Peers

JSON: Final = "application/json"

_PHASES: Final = {"/mutate": Phase.MUTATE, "/validate": Phase.VALIDATE}
_DEFAULT_TIMEOUT: Final = 10.0
"""Seconds: what the API server waits if the webhook configuration doesn't say."""

_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The request is not judged.

    Attributes:
        status: of the HTTP answer.
        reason: a few words, the same for all requests of this sort.
        message: for the person who reads the answer.
        headers: to add to the answer.
    """

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = headers

    def response(self) -> web.Response:
        """The refusal as an HTTP answer: plain JSON, as no UID is known."""
        body = orjson.dumps({"error": self.message})
        headers = {hdrs.SERVER: "spotgate", **(self.headers or {})}  # else aiohttp tells versions
        return web.Response(status=self.status, body=body, headers=headers, content_type=JSON)


def busy(reason: str) -> Refused:
    """Too much at once. The API server asks again, within its timeout."""
    return Refused(429, reason, f"too busy ({reason}); try again in a second", {hdrs.RETRY_AFTER: "1"})


@dataclass(frozen=True, slots=True)
class Route:
    """What the request line asks for.

    Attributes:
        phase: by the path.
        timeout: how long the caller waits, in seconds.
    """

    phase: Phase
    timeout: float


@lru_cache(maxsize=64)
def route_of(target: str) -> Route | None:
    """The route of a request target such as ``/mutate?timeout=3s``; None: there is none."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return None
    phase = _PHASES.get(parts.path)
    if phase is None:
        return None
    given = parse_qs(parts.query).get("timeout", [""])[-1]
    return Route(phase, go_duration(given) or _DEFAULT_TIMEOUT)


def go_duration(text: str) -> float | None:
    """Seconds of a duration as Go writes it (``1m30s``, ``500ms``); None if it is none."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


_SMALL: Final = 64 * 1024
"""Bytes of a body that is read however much is held: of a Pod, and room. All connections with one hold 48 MiB."""


class Intake:
    """Reads bodies, and knows how much of them is held in memory."""

    def __init__(self, limits: Limits, peers: Peers) -> None:
        self._limits = limits
        self._peers = peers
        self._held = 0

    async def read(self, request: web.BaseRequest, peer: Peer) -> tuple[Route, bytes]:
        """The route and the body, to be given back to `release`.

        Raises:
            Refused: it is no review that could be judged, or too much.
        """
        route = self._check_head(request)
        if hdrs.EXPECT in request.headers:
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0  # the answer has not begun
        try:
            return route, await self._read_body(request.content, peer)
        except (web.RequestPayloadError, ConnectionError):
            raise Refused(400, "broken body", "the request's body broke off or is malformed") from None

    def release(self, body: bytes, peer: Peer) -> None:
        """The body is not needed any more."""
        self._hold(-len(body), peer)

    def _hold(self, size: int, peer: Peer) -> None:
        self._held += size
        peer.body_bytes += size

    def _check_head(self, request: web.BaseRequest) -> Route:
        route = route_of(request.raw_path)
        if route is None:
            raise Refused(404, "not found", "there are POST /mutate and POST /validate here")
        if request.method != hdrs.METH_POST:
            raise Refused(405, "method", "send AdmissionReviews with POST", {hdrs.ALLOW: hdrs.METH_POST})
        headers = request.headers
        content_type = headers.get(hdrs.CONTENT_TYPE, "")
        if content_type != JSON and content_type.partition(";")[0].strip().lower() != JSON:
            raise Refused(415, "content type", f"the Content-Type must be {JSON}")
        # The API server never compresses; whoever does could hide gigabytes in a small body.
        if headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise Refused(415, "content encoding", "send it uncompressed", {hdrs.ACCEPT_ENCODING: "identity"})
        if (request.content_length or 0) > self._limits.body_bytes:
            raise self._too_large()
        return route

    async def _read_body(self, content: StreamReader, peer: Peer) -> bytes:
        if content.is_eof():  # as with most: nothing is awaited
            body = content.read_nowait()
            if len(body) > self._limits.body_bytes:
                raise self._too_large()
            self._hold(len(body), peer)
            return body
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := await content.readany():
                pieces.append(piece)
                size += len(piece)
                self._hold(len(piece), peer)
                self._check_size(size, peer)
        except BaseException:
            self._hold(-size, peer)
            raise
        return b"".join(pieces)

    def _check_size(self, size: int, peer: Peer) -> None:
        if size > self._limits.body_bytes:
            raise self._too_large()
        most = self._limits.buffered_bytes
        if self._held > most and peer.body_bytes > self._peers.share(most) and size > _SMALL:
            raise busy("many large requests")

    def _too_large(self) -> Refused:
        return Refused(413, "too large", f"the request's body is larger than {self._limits.body_bytes} bytes")
