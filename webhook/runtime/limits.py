"""Limits of the server, each with its derivation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of the server. Durations are in seconds.

    Attributes:
        body_bytes: the size of one request. etcd accepts objects of 1.5 MiB. A review of an UPDATE has two of them, in
            which Go writes each ``<`` as six bytes, and an envelope of at most 1 MiB. With failure policy Ignore, the
            API server would admit a larger request without a verdict.
        buffered_bytes: the size of all bodies in memory: two of the maximum size, or hundreds of Pods. Above it, large
            bodies of a peer above its equal share get 429. So all peers together use at most twice as much, 96 MiB, and
            48 MiB for small bodies. Of the container's 384 MiB, this leaves 240 for the process and decisions.
        in_flight: the number of requests in progress, most of which wait for the cluster's state. Equal to the API
            server's default for mutating requests in flight, so a healthy cluster stays below it. Above it, requests of
            a peer at its equal share get 429.
        connections: three API servers with `in_flight` calls each, plus a reserve; below the 1024 open files that most
            systems allow. Above it, each new connection evicts one of the peer with the most connections.
        handshake: the TLS handshake. An API server in the same region needs milliseconds.
        receive: a whole request, from its first byte to its last. Longer than any useful webhook timeout.
        keep_alive: idle connections. The API server closes them after 90 s, and must be the first to do so, because
            closing a connection can lose a request that was just sent.
        recycle: the age (with jitter) at which a connection ends with its next response, so that new replicas get a
            share.
        fresh: a fresh read of the cluster's state. The shipped webhook configuration allows 3 s for a whole call.
        reply: the part of the caller's timeout that is reserved for the decision and the response.
        quiet: while stopping, the time without a request after which all clients use other replicas.
        drain: while stopping, the limit of this wait, below the default grace period of a Pod of 30 s.
        finish: while stopping, the time for clients to close idle connections, and again for the last requests. With
            `drain`, 28 s.
        record_bytes: the size of a recorded review: its objects and its response. A Pod has about 10 KB. Recording
            1 MiB takes 10 ms, during which requests may wait for Python's global interpreter lock.
        records_waiting: the size of all reviews that wait to be recorded, for example if the disk stalls.
        record_file: the size at which a file of recorded reviews ends.
        record_files: the number of files. With 4 MiB each: 256 MiB, 20,000 reviews of a Pod (12 KB with a few pools).
        certificate_poll: the interval to check the certificate's files.
        certificate_settle: the time that a new CA must be in the caBundles before its certificate is served. API
            servers need about one second to notice the change.
        ca_retention: the time that an old CA stays in the caBundles after all known replicas serve certificates of the
            new one. Longer than a rollout, because replicas with certificates from files are unknown.
        webhooks_poll: the interval to check the webhook configurations, which change with an upgrade.
        policy_poll: the interval to check the policy files, a few dozen. A change is active after two checks.
    """

    body_bytes: int = 19 * _MIB
    buffered_bytes: int = 48 * _MIB
    in_flight: int = 200
    connections: int = 768
    handshake: float = 5
    receive: float = 10
    keep_alive: float = 180
    recycle: float = 300
    fresh: float = 2
    reply: float = 0.4
    quiet: float = 5
    drain: float = 22
    finish: float = 3
    record_bytes: int = _MIB
    records_waiting: int = 16 * _MIB
    record_file: int = 4 * _MIB
    record_files: int = 64
    certificate_poll: float = 5
    certificate_settle: float = 10
    ca_retention: float = 600
    webhooks_poll: float = 30
    policy_poll: float = 2


LIMITS: Final = Limits()
