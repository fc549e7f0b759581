"""The state of the server, for its operators' port."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from datetime import time as time_of_day
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping
    from datetime import date

    from webhook.cluster.protocol import ClusterView
    from webhook.index import Policy


class PolicyInfo(msgspec.Struct, frozen=True):
    """One policy in force."""

    name: str
    kind: str
    enforcement: str


class Ending(msgspec.Struct, frozen=True, order=True):
    """The end of an exemption from a policy (Unix time); ``exemption`` is ``exempt[0]`` or ``Exemption team-a``."""

    time: float
    policy: str
    exemption: str


def endings(policies: Iterable[Policy]) -> tuple[Ending, ...]:
    """Return the ends of all exemptions that have one, the earliest first. An exemption includes its last day."""
    found = [
        Ending(_midnight_after(exemption.expires), policy.name, exemption.name)
        for policy in policies
        for exemption in policy.exemptions
        if exemption.expires is not None
    ]
    return tuple(sorted(found))


def _midnight_after(day: date) -> float:
    return datetime.combine(day, time_of_day(), UTC).timestamp() + 86400


class Reload(msgspec.Struct, frozen=True):
    """The result of the last attempt to load changed files, and the Unix time of the last success. The start is one."""

    success: bool
    last_success: float

    @classmethod
    def first(cls) -> Reload:
        """Return the result of a start that succeeded just now."""
        return cls(success=True, last_success=time.time())

    def then(self, *, success: bool) -> Reload:
        """Return the result of the next attempt, which ended just now."""
        return Reload(success, time.time() if success else self.last_success)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the server at one moment.

    Attributes:
        ready: it answers reviews, knows the cluster and is not stopping.
        waits_for: what keeps it from being ready: something to be read of a live cluster, or its certificate.
        bundle: the hash of the bundle in force.
        policies: those in force.
        policies_removed: that were in force since the start, and are no more.
        endings: of exemptions.
        reloads: by what was loaded: ``policies``, ``certificate``; ``renewal`` is that of self-managed certificates.
        certificate: what is served, PEM, with its intermediates.
        certificate_expiry: Unix time.
        certificate_trusted: the caBundles in force verify it; None: they are not known.
        authority_expiry: of the CA that signs it, UTC; None: something else signs.
        trust_expiry: when the first caBundle in force trusts nothing any more, UTC; None: they are not known.
        connections: open ones, handshakes included.
        in_flight: requests that are being judged.
        cluster_silence: seconds since a live cluster was last heard of; None: there is none.
    """

    ready: bool
    waits_for: str = ""
    bundle: str
    policies: tuple[PolicyInfo, ...]
    policies_removed: int = 0
    endings: tuple[Ending, ...] = ()
    reloads: dict[str, Reload]
    certificate: bytes
    certificate_expiry: float
    certificate_trusted: bool | None = None
    authority_expiry: datetime | None = None
    trust_expiry: datetime | None = None
    connections: int
    in_flight: int
    cluster_silence: float | None = None


class Overview(NamedTuple):
    """The state of the server and what it decided so far, for the page.

    Attributes:
        status: of the replica.
        replica: its name.
        view: of the cluster, as the next request is judged with it.
        findings: how many there were, by policy and outcome.
        found: the log lines of the last decisions with findings, the oldest first.
        last: the log lines of the last decisions of any kind.
        needs_budgets: a policy asks for PodDisruptionBudgets.
    """

    status: Status
    replica: str
    view: ClusterView
    findings: Mapping[str, Counter[str]]
    found: tuple[dict[str, Any], ...]
    last: tuple[dict[str, Any], ...]
    needs_budgets: bool
