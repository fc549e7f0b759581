"""Share the server fairly among client addresses: the address with the highest usage is limited first.

No capacity is reserved: a single peer can use all of it. Behind a proxy or NAT (konnectivity, a Service with
`externalTrafficPolicy: Cluster`), all clients are one peer, which is the same as no fairness.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class PeerConnection(Protocol):
    """An open connection of a peer."""

    def eviction_rank(self) -> tuple[int, float] | None:
        """Return the eviction rank, the lowest first, or None if the connection can't be evicted now."""

    def abort(self) -> None:
        """End the connection now."""


@dataclass(slots=True, eq=False)
class Peer:
    """The clients at one address, and the resources that they use.

    Attributes:
        address: the address of the clients.
        connections: their open connections, including those in a handshake.
        body_bytes: the size of their request bodies in memory.
        in_flight: the number of their requests in progress.
        time: the virtual seconds of work for the clients; see `Peers.turn`.
    """

    address: str
    connections: set[PeerConnection] = field(default_factory=set)
    body_bytes: int = 0
    in_flight: int = 0
    time: float = 0.0


class Peers:
    """The peers that have connections."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._waiting: dict[Peer, deque[asyncio.Future[None]]] = {}
        self._time = 0.0

    def __len__(self) -> int:
        """Return the number of peers."""
        return len(self._peers)

    def connections(self) -> int:
        """Return the number of open connections of all peers."""
        return sum(len(peer.connections) for peer in list(self._peers.values()))  # a thread renders the page

    def at(self, address: str) -> Peer:
        """Return the peer at an address."""
        return self._peers.setdefault(address, Peer(address))

    def forget(self, peer: Peer) -> None:
        """Remove a peer if it has no connections."""
        if not peer.connections and self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def largest(self) -> Peer:
        """Return the peer with the most connections."""
        return max(self._peers.values(), key=lambda peer: len(peer.connections))

    def share(self, total: float) -> float:
        """Return the equal share of each peer in an exhausted resource.

        A peer below its share still gets more, so all peers together use at most twice the total.
        """
        return total / max(1, len(self._peers))

    async def turn(self, peer: Peer) -> None:
        """Wait for this peer's turn.

        This is start-time fair queueing: in each iteration of the event loop, the waiting peer with the least work is
        next. A new or returning peer starts at the level of the others, so peers can't accumulate unused time.
        """
        if len(self._peers) == 1:
            self._time = max(self._time, peer.time)
            return
        queue = self._waiting.get(peer)
        if queue is None:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._grant)
            queue = self._waiting[peer] = deque()
            peer.time = max(peer.time, self._time)
        future = asyncio.get_running_loop().create_future()
        queue.append(future)
        await future

    def _grant(self) -> None:
        peer = min(self._waiting, key=lambda peer: peer.time)
        queue = self._waiting[peer]
        future = queue.popleft()
        if not queue:
            del self._waiting[peer]
        self._time = peer.time
        if not future.done():  # else the request was cancelled
            future.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)
