"""Render the operators' page, ``GET /``: policies, cluster, last decisions, and unknown facts."""

from __future__ import annotations

import socket
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook import __version__
from webhook.capacity.providers.pool import Gpu
from webhook.model.decision import ENGINE
from webhook.pages import content_policy, page
from webhook.rules.context import ASSUMED_VERSION
from webhook.server.http.app import OF_ANY_KIND, WITH_FINDINGS
from webhook.server.http.metrics import WOULD_DENY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.runtime.rehearsals import PublishedRehearsals
    from webhook.server.lifecycle import Replica

_POOLS: Final = 500
"""The maximum number of pools on the page, which then has about 300 KB."""

_STALE: Final = 180.0
"""Seconds without a message about the cluster; the API server sends one for each resource every minute."""

_SHOWN: Final = 12
"""The number of visible rows of a table; the others are folded."""

_COUNTED: Final = ("deny", "warn", "audit", WOULD_DENY)
_GPUS: Final = {Gpu.YES: "GPUs", Gpu.NO: "", Gpu.ANY: "GPUs as Pods request", Gpu.UNKNOWN: "GPUs unknown"}


class Unknown(NamedTuple):
    """A fact that the replica doesn't know, the reason, and the remedy."""

    what: str
    why: str
    remedy: str = ""


def render(replica: Replica, rehearsals: PublishedRehearsals | None = None) -> tuple[str, str]:
    """Return the page and its Content-Security-Policy header. This takes milliseconds."""
    snapshot = replica.webhook.snapshot
    view = snapshot.state.view()
    pools = view.pools or ()
    named = {(pool.provider, pool.pool_name) for pool in pools if pool.pool_name and not pool.elsewhere}
    unlisted = [group for group in view.node_groups if (group.provider, group.pool_name) not in named]
    html = page(
        "overview.html",
        style="overview.css",
        version=__version__,
        replica=replica,
        name=socket.gethostname(),
        bundle=snapshot.bundle,
        view=view,
        now=_when(time.time()),
        when=_when,
        left=_left,
        unknown=[*_not_in_force(replica), *_of_cluster(replica, snapshot.bundle, view)],
        policies=list(_policies(snapshot.bundle, replica.metrics.findings())),
        COUNTED=_COUNTED,
        SHOWN=_SHOWN,
        capacities=Counter(str(pool.capacity) for pool in pools),
        pools=pools[:_POOLS],
        unshown=max(0, len(pools) - _POOLS),
        node_groups=unlisted[:_POOLS],
        GPUS=_GPUS,
        rehearsals=rehearsals,
        found=tuple(replica.webhook.found)[::-1],
        last=tuple(replica.webhook.last)[::-1],
        WITH_FINDINGS=WITH_FINDINGS,
        OF_ANY_KIND=OF_ANY_KIND,
    )
    return html, content_policy(style="overview.css")


def _not_in_force(replica: Replica) -> Iterator[Unknown]:
    """Yield why the replica isn't ready, failed reloads, and missing trust in the certificate."""
    if replica.waits_for:
        yield Unknown("This replica is not ready", replica.waits_for)
    for name, reload in replica.reloads.items():
        if not reload.success:
            why = f"changes after {_when(reload.last_success)} are invalid; the last valid state stays active"
            yield Unknown(f"Reload of {name}", why, "see the log")
    if replica.certificate.trusted is False:
        yield Unknown("Trust", "the active caBundles don't verify the certificate", "run `spotgate certs check`")
    elif replica.certificate.trusted is None:
        yield Unknown("Trust", "no caBundle is known, so it is unknown whether the API server trusts the certificate")


def _of_cluster(replica: Replica, bundle: Bundle, view: ClusterView) -> Iterator[Unknown]:
    """Yield unknown facts about the cluster."""
    if replica.cluster is not None and (silence := replica.cluster.silence) > _STALE:
        why = f"the API server's last message is {silence:.0f} s old, and the cluster may have changed"
        yield Unknown("The current state of the cluster", why, "the log has the API server's answer")
    if view.pools is None:
        yield Unknown("Node pools", view.why_unknown, view.remedy)
    if bundle.reads_budgets and view.budgets is None:
        yield Unknown("PodDisruptionBudgets", "they haven't been read", "the log says why")
    versions = {"The version of the API server": view.api_server, "The oldest kubelet": view.oldest_kubelet}
    for name, version in versions.items():
        if version is None:
            yield Unknown(name, f"unknown; spotgate assumes {'.'.join(map(str, ASSUMED_VERSION))}")


def _policies(bundle: Bundle, findings: Mapping[str, Counter[str]]) -> Iterator[tuple[str, str, str, Counter[str]]]:
    """Yield the active policies, then removed policies with findings, and the engine."""
    remaining = dict(findings)
    replacing = {document.name for document in bundle.replacing if document.is_policy}
    for policy in bundle.policies:
        kind = f"{policy.kind.name}, replaces the shipped one" if policy.name in replacing else policy.kind.name
        yield policy.name, kind, str(policy.enforcement), remaining.pop(policy.name, Counter())
    for name, counts in sorted(remaining.items()):
        yield name, "of the engine" if name == ENGINE else "no longer active", "", counts


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _left(seconds: float) -> str:
    """Return the remaining time as text."""
    hours = (seconds - time.time()) / 3600
    if hours < 0:
        return "ended"
    return f"{hours:.0f} hours" if hours < 72 else f"{hours / 24:.0f} days"  # noqa: PLR2004 - three days
