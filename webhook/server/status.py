"""What a worker says of itself. With several workers it travels to their supervisor as a message."""

from __future__ import annotations

import time

import msgspec


class PolicyInfo(msgspec.Struct, frozen=True):
    """One policy in force."""

    name: str
    kind: str
    enforcement: str


class Reload(msgspec.Struct, frozen=True):
    """How the last attempt to take over changed files ended, and when (Unix time). The start counts as one."""

    success: bool
    time: float

    @classmethod
    def now(cls, *, success: bool) -> Reload:
        """An attempt that ended just now."""
        return cls(success, time.time())


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A worker at one moment.

    Attributes:
        ready: it answers reviews, knows the cluster and is not stopping.
        waits_for: what must be read of a live cluster before it is ready.
        bundle: the hash of the bundle in force.
        reloads: by what was loaded: ``policies``, ``certificate``.
        certificate_expiry: Unix time.
        connections: open ones, handshakes included.
        in_flight: requests that are being judged.
        cluster_silence: seconds since a live cluster was last heard of; None: there is none.
    """

    ready: bool
    waits_for: str = ""
    bundle: str
    policies: tuple[PolicyInfo, ...]
    reloads: dict[str, Reload]
    certificate_expiry: float
    connections: int
    in_flight: int
    cluster_silence: float | None = None
