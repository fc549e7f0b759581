"""Share the server fairly among the addresses of its clients: the one that takes most goes short first.

Nothing is kept back: a lone peer may have everything. All clients are one peer where a proxy or NAT stands between
(konnectivity, a Service with `externalTrafficPolicy: Cluster`), which is no worse than no fairness at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class PeerConnection(Protocol):
    """An open connection of a peer."""

    def eviction_rank(self) -> tuple[int, float] | None:
        """Return how soon the connection is evicted, the lowest first, or None if it must not be now."""

    def abort(self) -> None:
        """End the connection now."""


@dataclass(slots=True, eq=False)
class Peer:
    """The clients at one address, and the resources that they use.

    Attributes:
        address: of the clients.
        connections: those that are open, from before their handshakes.
        body_bytes: of bodies that are held in memory.
        in_flight: requests that are being judged.
        time: virtual seconds of work that was done for them, see `Peers.turn`.
    """

    address: str
    connections: set[PeerConnection] = field(default_factory=set)
    body_bytes: int = 0
    in_flight: int = 0
    time: float = 0.0


class Peers:
    """The peers that have a connection."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._waiting: dict[Peer, deque[asyncio.Future[None]]] = {}
        self._time = 0.0

    def __len__(self) -> int:
        """Return the number of peers."""
        return len(self._peers)

    def connections(self) -> int:
        """Return the number of open connections, of all peers."""
        return sum(len(peer.connections) for peer in list(self._peers.values()))  # a page is rendered in a thread

    def at(self, address: str) -> Peer:
        """Return the peer at an address."""
        return self._peers.setdefault(address, Peer(address))

    def forget(self, peer: Peer) -> None:
        """Forget a peer that has no connection any more."""
        if not peer.connections and self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def largest(self) -> Peer:
        """Return the peer with the most connections."""
        return max(self._peers.values(), key=lambda peer: len(peer.connections))

    def share(self, whole: float) -> float:
        """Return the equal share of each peer in something that has run out.

        A peer below its share still gets more when the whole is used up: together they have at most twice the whole.
        """
        return whole / max(1, len(self._peers))

    async def turn(self, peer: Peer) -> None:
        """Wait until it is this peer's turn to be worked for.

        That is start-time fair queueing: of the peers that wait, the one for which the least work was done is next, one
        in each round of the event loop. A peer that comes (again) begins where the others are: unused time can't be
        saved up. Peers that don't wait leave all the time to the others.
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
        mine = asyncio.get_running_loop().create_future()
        queue.append(mine)
        await mine

    def _grant(self) -> None:
        peer = min(self._waiting, key=lambda peer: peer.time)
        queue = self._waiting[peer]
        turn = queue.popleft()
        if not queue:
            del self._waiting[peer]
        self._time = peer.time
        if not turn.done():  # else the request was cancelled
            turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)
