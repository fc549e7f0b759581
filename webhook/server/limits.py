"""Limits of the server, each with its derivation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of the server. Durations are in seconds.

    Attributes:
        body_bytes: of one request. etcd keeps objects of 1.5 MiB; a review of an UPDATE carries two, in which Go writes
            each ``<`` as six bytes, and an envelope of at most 1 MiB. What is larger would pass unjudged where the
            failure policy is Ignore.
        buffered_bytes: of all bodies at once: two maximal ones, or hundreds of Pods. Beyond it, a large body of a peer
            that holds more than an equal share is told to come again. So all peers together hold twice as much at
            most: 96 MiB, and 48 MiB of small bodies; of the container's 384 MiB that leaves 240 for the process and for
            judging.
        in_flight: requests that are being judged or wait for it, nearly all of them for the cluster's state. The API
            server's own default for mutating requests in flight: a healthy cluster stays below it. Beyond it, a request
            of a peer that has an equal share is told to come again.
        connections: three API servers, each with `in_flight` calls open, and some; below the 1024 files that most
            systems grant a process. Beyond it, the peer that has most loses one for each that comes.
        handshake: an API server in the same region takes milliseconds.
        receive: for a whole request, from its first byte to its last. Longer than any useful webhook timeout.
        keep_alive: the API server gives up idle connections after 90 s, and must be the first to: who closes one may
            cut off a request that was just sent.
        recycle: after so long (and a jitter) a connection ends with its next answer, so that new replicas get a share.
        fresh: for a new reading of the cluster's state; the shipped webhook configuration gives a whole call 3 s.
        reply: kept back from the caller's timeout for deciding and for the way back.
        quiet: while stopping, so long without a request and all clients have gone elsewhere.
        drain: while stopping, the longest to wait for that: below the 30 s that Kubernetes grants a Pod by default.
        finish: while stopping, for clients to close idle connections; then again for the last requests to end. With
            `drain` 28 s.
        record_bytes: of one review that is recorded, its objects and its answer. A Pod has some 10 KB; to read one
            of 1 MiB takes the recorder 10 ms, in which requests may have to wait for Python's lock.
        records_waiting: bytes of reviews that wait to be recorded: what a disk that stalls costs before it costs
            reviews.
        record_file: bytes after which a file of recorded reviews ends.
        record_files: how many are kept. With 4 MiB each: 256 MiB, 20,000 reviews of a Pod (12 KB with a few pools).
        certificate_poll: between looks at the certificate's files.
        certificate_settle: that a new CA has been in the caBundles before a certificate of it is served: several times
            the second that API servers take to notice.
        ca_retention: that an old CA stays in the caBundles once all known replicas serve certificates of the new one. A
            rollout ends in less: replicas that take their certificate from files are not known.
        webhooks_poll: between looks at the webhook configurations, which change with an upgrade.
        policy_poll: between looks at the policies' files, a few dozen. A change is in force after two of them.
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
