"""Accept connections, hand them to aiohttp over TLS, and bound their number and age.

This module accepts connections itself, instead of using ``loop.create_server``. As a result, the connection limit
includes connections in their handshake, and each new connection uses the current certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web

from webhook.runtime.log import Repeats, log, log_failure
from webhook.server.http.request_reader import CONTINUE, RejectedError, names_in

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from webhook.runtime.limits import Limits
    from webhook.server.http.metrics import Metrics
    from webhook.server.http.peers import Peer, Peers

_SWEEP: Final = 0.5
"""Seconds between checks for connections past their deadline."""

_ACCEPT_PAUSE: Final = 0.1
"""Seconds to wait if the system has no file descriptor or memory for another connection."""

_BATCH: Final = 64
"""Connections accepted in one batch: more than any API server opens, and accepted within milliseconds."""

_HANDSHAKE_COST: Final = 0.001
"""Seconds of work charged for a handshake: 0.8 ms of a core, from TCP to the end of TLS."""

_LINGER: Final = 3.0
"""Seconds to read and discard the rest of a rejected body. Closing immediately could lose the response."""

_CLOSE_TIMEOUT: Final = 1.0
"""Seconds for the client to complete the TLS shutdown, or to close a dismissed connection."""


class ClientConnection(web.RequestHandler):
    """A connection with a deadline to receive a request, and a maximum age. It counts even before its TLS handshake.

    Attributes:
        peer: the peer with the address of the client.
        certificate_names: the names in the client certificate, which TLS verified; empty without one.
        receiving_since: the loop time of the first byte of an incomplete request; else infinity.
        idle_since: the loop time when the last request ended; infinity while one is received or answered.
        has_served: whether a request was answered.
        handshake: the task of its TLS handshake.
        lost: a future that is done after both sides have closed the connection.
    """

    handshake: asyncio.Task[None]

    def __init__(self, acceptor: Acceptor, peer: Peer) -> None:
        loop, limits = asyncio.get_running_loop(), acceptor.limits
        super().__init__(
            acceptor.server,
            loop=loop,
            keepalive_timeout=limits.keep_alive,
            lingering_time=_LINGER,
            access_log=None,  # type: ignore[arg-type]  # aiohttp accepts None
            auto_decompress=False,
        )
        self.peer = peer
        self.certificate_names: tuple[str, ...] = ()
        self._acceptor = acceptor
        self.receiving_since = math.inf
        self.idle_since = now = loop.time()
        self.has_served = False
        self.lost: asyncio.Future[None] = loop.create_future()
        self._retires = now + limits.recycle * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        peer.connections.add(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the names in the client certificate."""
        self.certificate_names = names_in(transport.get_extra_info("peercert"))
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Record when a request begins. aiohttp also calls this without data, to continue with buffered data."""
        if self.receiving_since == math.inf and data:
            self.receiving_since = self._loop.time()
        super().data_received(data)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Resume reading if it is paused. aiohttp also calls this for each body."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection as one of its peer."""
        self.uncount()
        if not self.lost.done():
            self.lost.set_result(None)
        super().connection_lost(exc)

    def uncount(self) -> None:
        """Stop counting the connection as one of its peer."""
        self.peer.connections.discard(self)
        self._acceptor.peers.forget(self.peer)

    def request_begins(self) -> None:
        """Record a request with a complete head, which may have arrived together with the previous request."""
        self.idle_since = math.inf
        if self.receiving_since == math.inf:
            self.receiving_since = self._loop.time()

    def request_received(self) -> None:
        """Stop the deadline to receive the request, which is complete."""
        self.receiving_since = math.inf

    def eviction_rank(self) -> tuple[int, float] | None:
        """Return how soon the connection is evicted, the lowest first, or None while a request is being answered.

        The order is: connections with an incomplete request, connections without a request yet (including those in
        their handshake), other idle connections. Within each group, the longest wait comes first.
        """
        if self.receiving_since < math.inf:
            return 0, self.receiving_since
        if self.idle_since < math.inf:
            return 1 + self.has_served, self.idle_since
        return None

    def request_ends(self) -> bool:
        """Record that the request is answered. Return whether the connection must end."""
        self.idle_since = now = self._loop.time()
        self.receiving_since = math.inf
        self.has_served = True
        return now > self._retires

    def dismiss(self) -> None:
        """Make the client close the connection if it is idle.

        The client closes the connection when it reads a response without a request. If the client has just sent a
        request, it ignores this response.
        """
        if self._is_idle() and self.transport is not None:
            self.transport.write(CONTINUE)

    def retire(self) -> None:
        """End the connection after the next response, or, if it stays idle and the client doesn't close it, soon."""
        self._retires = -math.inf
        self.dismiss()
        self._loop.call_later(_CLOSE_TIMEOUT, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._is_idle() and self.transport is not None:
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.idle_since < math.inf and self.receiving_since == math.inf

    def abort(self) -> None:
        """End the connection now, and no longer treat it as slow or idle."""
        self.receiving_since = self.idle_since = math.inf
        if self.transport is not None:
            self.transport.abort()
        else:
            self.handshake.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        """Answer a request that aiohttp can't parse, with spotgate's message and without a traceback."""
        if status == web.HTTPBadRequest.status_code:
            self._acceptor.metrics.count("rejected", "malformed HTTP")
            rejected = RejectedError(status, "malformed HTTP", "this isn't a well-formed HTTP request")
        else:
            self.log_exception("the request handler failed", exc_info=exc)
            rejected = RejectedError(status, "bug", "spotgate failed to answer; see its log")
        response = rejected.response()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log where aiohttp or the handler raised an exception, but not the text of the exception."""
        error = options.get("exc_info")
        if isinstance(error, BaseException):
            log_failure("connection failed", error, problem=args[0])


class Acceptor:
    """The acceptor of connections on a listening socket. It passes their requests to a handler.

    Args:
        listener: a listening, non-blocking socket.
        handler: answers each request.
        context: returns the TLS context for the next connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        context: Callable[[], ssl.SSLContext],
        *,
        metrics: Metrics,
        limits: Limits,
        peers: Peers,
    ) -> None:
        self._listener = listener
        self.server = web.Server(handler)
        self.limits = limits
        self.metrics = metrics
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.peers = peers
        self._repeats = Repeats()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retired = 0

    def __len__(self) -> int:
        """Return the number of open connections."""
        return self.peers.connections()

    def _open(self) -> list[ClientConnection]:
        """Return all connections whose handshake is done."""
        return cast("list[ClientConnection]", self.server.connections)

    async def accept(self) -> None:
        """Accept connections until cancelled."""
        while True:
            await self._readable()
            try:
                for _ in range(_BATCH):
                    self._take(*self._listener.accept())
            except BlockingIOError:  # no more clients
                continue
            except OSError as error:
                # The client left, or the system reached a limit. Continue to accept.
                log.warning("connection not accepted", error=error.strerror)
                if len(self.peers):
                    self._evict(self.peers.largest())
                await asyncio.sleep(_ACCEPT_PAUSE)

    def _take(self, client: socket.socket, address: tuple[str, int]) -> None:
        client.settimeout(0)
        peer = self.peers.at(address[0])
        if len(self) >= self.limits.connections and not self._make_room(peer):
            self.metrics.count("connections_cut", "all busy")
            client.close()
            self.peers.forget(peer)
            return
        connection = ClientConnection(self, peer)
        connection.handshake = self._loop.create_task(self._handshake(client, connection))
        self._handshakes.add(connection.handshake)
        connection.handshake.add_done_callback(partial(self._handshake_ends, client, connection))

    async def _readable(self) -> None:
        """Wait for a client without accepting it.

        ``loop.sock_accept`` can leak the accepted socket if it is cancelled.
        """
        readable = asyncio.Event()
        self._loop.add_reader(self._listener, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(self._listener)

    def _handshake_ends(
        self, client: socket.socket, connection: ClientConnection, handshake: asyncio.Task[None]
    ) -> None:
        self._handshakes.discard(handshake)
        if connection.transport is None:
            connection.uncount()
        if handshake.cancelled():  # maybe before its first step, so nothing else owns the socket
            client.close()

    async def _handshake(self, client: socket.socket, connection: ClientConnection) -> None:
        peer = connection.peer
        await self.peers.turn(peer)
        peer.time += _HANDSHAKE_COST
        try:
            retired = self._retired
            await self._loop.connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._context(),
                ssl_handshake_timeout=self.limits.handshake,
                ssl_shutdown_timeout=_CLOSE_TIMEOUT,
            )
            if retired != self._retired:
                connection.retire()
        except ssl.SSLError as error:
            reason = error.reason or ""
            unknown = "CERTIFICATE" in reason and "ALERT" not in reason  # the server rejected the client's certificate
            self.metrics.count("connections_cut", "client certificate" if unknown else "handshake")
            if unknown:
                event = "client without a certificate of the CA"
                self._repeats.log(log.warning, event, reason, peer=peer.address, problem=reason)
        except OSError:  # also raised for a timeout
            self.metrics.count("connections_cut", "handshake")

    def retire(self) -> None:
        """End all connections, because the TLS context has changed."""
        self._retired += 1
        for connection in self._open():
            connection.retire()

    def _make_room(self, newcomer: Peer) -> bool:
        """Evict a connection of the peer with the most connections. Return False if none can be evicted."""
        largest = self.peers.largest()
        return self._evict(largest if len(largest.connections) > len(newcomer.connections) else newcomer)

    def _evict(self, peer: Peer) -> bool:
        """Evict the connection of a peer with the lowest rank. Return False if none can be evicted."""
        ranks = {
            connection: rank for connection in peer.connections if (rank := connection.eviction_rank()) is not None
        }
        if not ranks:
            return False
        victim = min(ranks, key=ranks.__getitem__)
        peer.connections.discard(victim)
        victim.abort()
        self.metrics.count("connections_cut", "evicted")
        return True

    async def sweep(self) -> None:
        """End connections whose request takes too long to arrive, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP)
            deadline = self._loop.time() - self.limits.receive
            for connection in self._open():
                if connection.receiving_since < deadline:
                    self.metrics.count("connections_cut", "slow")
                    connection.abort()

    async def dismiss(self) -> None:
        """Make the clients close their idle connections, and wait for them.

        If the server closed a connection, it could lose a request that the client sends at the same time: Go, and
        therefore the API server, doesn't retry a POST. But Go closes an idle connection when it reads a response
        without a request.
        """
        connections = self._open()
        for connection in connections:
            connection.dismiss()
        if connections:
            await asyncio.wait([connection.lost for connection in connections], timeout=self.limits.finish)

    async def close(self) -> None:
        """End all connections, after a grace period for requests in progress."""
        self._listener.close()
        handshakes = list(self._handshakes)
        for handshake in handshakes:
            handshake.cancel()
        connections = self._open()
        transports = [connection.transport for connection in connections]
        self.server.pre_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.finish + _CLOSE_TIMEOUT):
                await self.server.shutdown(self.limits.finish)
                await asyncio.gather(*(connection.lost for connection in connections))
        for transport in transports:
            if transport is not None:
                transport.abort()
        await asyncio.gather(*handshakes, return_exceptions=True)
