"""Answer ``POST /mutate`` and ``POST /validate``: HTTP around `webhook.engine.engine.decide`.

Every decision is HTTP 200 with an AdmissionReview. Any other status means that the call failed, and the API server
applies its failurePolicy: 400, 413, or 415 for an invalid review, 429 for overload, and 500 (with the UID) for a bug.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from msgspec.structs import replace

from webhook.cluster.pending_changes import PendingChanges
from webhook.engine.call import Decided, decide_call, phases_of, respond_to_call
from webhook.engine.response import errored
from webhook.model.review import BadReviewError, Request, decode_review
from webhook.rules.context import ASSUMED_VERSION, Context, Phase, utc_now
from webhook.runtime.log import TEXT_LENGTH, Repeats, log, log_decision, log_failure
from webhook.server.http.request_reader import (
    JSON_TYPE,
    UNAUTHENTICATED,
    RejectedError,
    RequestReader,
    identify,
    too_busy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import StreamWriter

    from webhook.capacity.view import ClusterState, ClusterView
    from webhook.cluster.floor import FloorFacts
    from webhook.runtime.limits import Limits
    from webhook.runtime.snapshot import Snapshot
    from webhook.server.http.connections import ClientConnection
    from webhook.server.http.metrics import Metrics
    from webhook.server.http.peers import Peer, Peers
    from webhook.server.http.recorder import Recorder
    from webhook.server.http.request_reader import RequestTarget

_REQUEST_COST: Final = 0.0002
"""Seconds of work charged for TLS, HTTP, and the log line of a request, in addition to the measured decision."""

_LEAST: Final = 0.001
"""The minimum timeout in seconds. For aiohttp, 0 means no timeout."""

WITH_FINDINGS: Final = 200
"""The maximum number of decisions with findings on the operators' page. The log contains all of them."""

OF_ANY_KIND: Final = 50
"""The maximum number of other decisions on the operators' page; they show that the API server sends reviews. Both lists
take 0.3 MB, or 2 MB with names of the maximum length."""

_INTERNAL_ERROR: Final = "spotgate couldn't evaluate this request because of a bug in spotgate; see its log"
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
_MESSAGE_LENGTH: Final = 1024
"""Characters of the message for a rejected request, which may quote the request."""


class ReviewResponse(web.StreamResponse):
    """The HTTP response to a review, status 200.

    aiohttp's own response builds headers by name, which takes a tenth more CPU for each call (0.18 ms instead of 0.16).

    Args:
        body: the AdmissionReview.
        on_sent: called after the response is sent, or its client is gone.
    """

    def __init__(self, body: bytes, on_sent: Callable[[], None]) -> None:
        # aiohttp uses only `prepare`, `write_eof`, and `keep_alive` of the base class, whose `__init__` isn't called.
        self._content = body
        self._on_sent = on_sent
        self._keep_alive: bool | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send the head and body of the response in one write."""
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        ending = b"\r\n\r\n" if self._keep_alive else b"\r\nConnection: close\r\n\r\n"
        writer = cast("StreamWriter", request.writer)
        try:
            await writer.write(b"%b%d%b%b" % (_HEAD, len(self._content), ending, self._content), drain=False)
        finally:
            self._on_sent()
            del self._on_sent  # it references the request, and the connection keeps this response until the next one
        await writer.drain()
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has sent everything."""


class Webhook:
    """The handler of the API server's requests.

    Attributes:
        snapshot: the snapshot for the next request.
        floor: the facts for the on-demand floors of Pods; None without a live cluster.
        stopping: whether every response asks the client to close the connection.
        in_flight: the number of requests in progress.
        last_request: the time of the last request, by `time.perf_counter`.
        found: the log lines of the last decisions with findings, oldest first.
        last: the log lines of the last decisions of any kind.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        metrics: Metrics,
        limits: Limits,
        peers: Peers,
        callers: frozenset[str],
        recorder: Recorder | None = None,
    ) -> None:
        self.floor: FloorFacts | None = None
        self.stopping = False
        self.in_flight = 0
        self.last_request = perf_counter()
        self.found: deque[dict[str, Any]] = deque(maxlen=WITH_FINDINGS)
        self.last: deque[dict[str, Any]] = deque(maxlen=OF_ANY_KIND)
        self._metrics = metrics
        self._limits = limits
        self._recorder = recorder
        self._pending_changes = PendingChanges()
        self._peers = peers
        self._callers = callers
        self._request_reader = RequestReader(limits, peers)
        self._repeats = Repeats()
        self.use(snapshot)

    def use(self, snapshot: Snapshot) -> None:
        """Evaluate the next requests with this snapshot."""
        self.snapshot = snapshot
        for policy in snapshot.bundle.policies:
            self._metrics.count("policy_errors", policy.name, by=0)  # alerts compute increases

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        self.last_request = started = perf_counter()
        connection = cast("ClientConnection", request.protocol)
        connection.request_begins()
        peer = connection.peer
        peer.time += _REQUEST_COST
        try:
            caller = identify(connection.certificate_names, self._callers)
            target, body = await self._request_reader.read(request, peer)
            connection.request_received()
            try:
                response = await self._answer(target, body, started, peer, caller)
            finally:
                self._request_reader.hold(-len(body), peer)
        except RejectedError as error:
            reason, status = error.reason, error.status
            self._metrics.count("shed" if status == HTTPStatus.TOO_MANY_REQUESTS else "rejected", reason)
            self._repeats.log(log.warning, "refused", reason, status=status, reason=reason, peer=peer.address)
            response = error.response()
            if not request.content.is_eof():
                response.force_close()
        if connection.request_ends() or self.stopping:
            response.force_close()
        return response

    async def _answer(
        self, target: RequestTarget, body: bytes, started: float, peer: Peer, caller: str
    ) -> web.StreamResponse:
        limit = self._limits.in_flight
        if self.in_flight >= limit and peer.in_flight >= self._peers.share(limit):
            raise too_busy("many requests")
        self.in_flight += 1
        peer.in_flight += 1
        try:
            await self._peers.turn(peer)
            began = perf_counter()
            if began - started > target.timeout:
                raise too_busy("waited too long")
            try:
                return await self._judge(target, body, started, peer, caller)
            finally:
                peer.time += perf_counter() - began
        finally:
            self.in_flight -= 1
            peer.in_flight -= 1

    async def _judge(
        self, target: RequestTarget, body: bytes, started: float, peer: Peer, caller: str
    ) -> web.StreamResponse:
        try:
            request = decode_review(body)
        except BadReviewError as error:
            raise RejectedError(400, "bad review", str(error)[:_MESSAGE_LENGTH]) from None
        phase = target.phase
        try:
            snapshot = self.snapshot
            index, view = snapshot.bundle.index, snapshot.state.view()
            routes = [index.route(decided, request) for decided in phases_of(request, phase, snapshot.bundle)]
            fresh = any(route is not None and route.fresh_pools for route in routes)
            waiting_since = perf_counter()
            wait = max(_LEAST, min(target.timeout - self._limits.reply - (waiting_since - started), self._limits.fresh))
            if fresh:
                view = await self._fresh(snapshot.state, wait)
            if self.floor is not None:
                view = await self.floor.seen_from(view, request, wait)
            peer.time -= perf_counter() - waiting_since  # waiting isn't work
            seen = self._pending_changes.applied(view) if fresh else view
            context = Context(phase=phase, now=utc_now()).seeing(seen, ASSUMED_VERSION)
            decided = decide_call(request, snapshot.bundle, context)
            if fresh and phase is Phase.VALIDATE and not decided[0][1].denied and not request.dry_run:
                self._pending_changes.note(request, view, index.providers)
            answer = respond_to_call(decided)
            if self._recorder is not None:
                for one in decided:
                    self._recorder.take(*one, snapshot.bundle, answer if len(decided) == 1 else respond_to_call([one]))
        except Exception as error:  # noqa: BLE001 - no request must stop the server
            return self._bug(request, phase, error)
        seconds = perf_counter() - started
        # The client doesn't wait until the decision is logged.
        return ReviewResponse(answer, partial(self._write_down, decided, seconds, peer, caller))

    def _write_down(self, decided: list[Decided], seconds: float, peer: Peer, caller: str) -> None:
        """Count each decision, log it, and remember its line for the operators' page."""
        for request, decision, context in decided:
            policies = [finding.policy for finding in decision.findings] + [
                operation.policy for operation in decision.patch
            ]
            effect = self._metrics.decided(request, context.phase, decision, authenticated=bool(caller))
            line = {
                "event": "decision",
                "uid": request.uid[:TEXT_LENGTH],
                "phase": str(context.phase),  # much faster than its `value`
                "operation": request.operation,
                "resource": request.path[:TEXT_LENGTH],
                "namespace": request.namespace[:TEXT_LENGTH],
                "name": request.name[:TEXT_LENGTH],
                "user": request.user_info.username[:TEXT_LENGTH],
                "allowed": not decision.denied,
                "outcome": effect,
                "policies": list(dict.fromkeys(policies)),
                "findings": list(dict.fromkeys([finding.id for finding in decision.findings])),
                "patch_operations": len(decision.patch),
                "ms": round(seconds * 1000, 3),
                "caller": caller[:TEXT_LENGTH] or UNAUTHENTICATED,
                "peer": peer.address,
            }
            log_decision(line)
            for failure in decision.failures:
                self._metrics.count("policy_errors", failure.policy)
                fields = {"policy": failure.policy, "error": failure.error, "where": failure.where}
                key = f"{failure.policy} {failure.where[-1]}"
                self._repeats.log(log.error, "policy failed", key, uid=line["uid"], phase=line["phase"], **fields)
            if not request.is_probe:
                self.last.append(line)
                if decision.findings:
                    self.found.append(line)
        self._metrics.answered(decided[0][0], decided[0][2].phase, seconds)

    async def _fresh(self, state: ClusterState, seconds: float) -> ClusterView:
        """Return a fresh view of the cluster. If the read fails or takes too long, the node pools are unknown."""
        try:
            async with asyncio.timeout(seconds):
                return await state.fresh()
        except TimeoutError:
            why = f"The node pools could not be read within {seconds:.1f} s."
        except Exception as error:  # noqa: BLE001 - whatever the cause, the pools are unknown
            log_failure("reading the cluster failed", error)
            why = "Reading the node pools failed."
        return replace(state.view(), pools=None, why_unknown=why, remedy="try again")

    def _bug(self, request: Request, phase: Phase, error: Exception) -> web.Response:
        self._metrics.count("errors", phase.value)
        log_failure("bug", error, uid=request.uid[:TEXT_LENGTH], phase=phase)
        return web.Response(status=500, body=errored(request.uid, 500, _INTERNAL_ERROR), content_type=JSON_TYPE)
