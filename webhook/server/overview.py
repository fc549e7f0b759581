"""Render the operators' page, ``GET /``: policies, cluster, last decisions, and what this replica does not know."""

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
from webhook.server.app import OF_ANY_KIND, WITH_FINDINGS
from webhook.server.metrics import WOULD_DENY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.server.lifecycle import Replica
    from webhook.server.rehearsals import PublishedRehearsals

_POOLS: Final = 500
"""Pools that are shown: a page of some 300 KB. `kubectl` lists the others."""

_STALE: Final = 180.0
"""Seconds without a word of the cluster; the API server says something of each resource every minute."""

_SHOWN: Final = 12
"""Rows of a table that are shown; the rest is folded."""

_COUNTED: Final = ("deny", "warn", "audit", WOULD_DENY)
_GPUS: Final = {Gpu.YES: "GPUs", Gpu.NO: "", Gpu.ANY: "GPUs as Pods request", Gpu.UNKNOWN: "GPUs unknown"}


class Unknown(NamedTuple):
    """A fact that the replica does not know, the reason, and the remedy."""

    what: str
    why: str
    remedy: str = ""


def render(replica: Replica, rehearsals: PublishedRehearsals | None = None) -> tuple[str, str]:
    """Return the page, and its Content-Security-Policy for the header. That takes milliseconds."""
    snapshot = replica.webhook.snapshot
    view = snapshot.state.view()
    pools = view.pools or ()
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
        pools=list(map(_row, pools[:_POOLS])),
        unshown=max(0, len(pools) - _POOLS),
        node_groups=list(map(_row, view.node_groups[:_POOLS])),
        certificates=list(_certificates(replica)),
        rehearsals=rehearsals,
        found=tuple(replica.webhook.found)[::-1],
        last=tuple(replica.webhook.last)[::-1],
        WITH_FINDINGS=WITH_FINDINGS,
        OF_ANY_KIND=OF_ANY_KIND,
    )
    return html, content_policy(style="overview.css")


def _not_in_force(replica: Replica) -> Iterator[Unknown]:
    """Yield what the replica waits for, could not reload, or can't prove to API servers."""
    if replica.waits_for:
        yield Unknown("This replica is not ready", replica.waits_for)
    for what, reload in replica.reloads.items():
        if not reload.success:
            why = f"what came after {_when(reload.last_success)} could not be used; the last good one is in force"
            yield Unknown(f"New: {what}", why, "the log has the mistake")
    if replica.certificate.trusted is False:
        yield Unknown("Trust", "the caBundles in force do not verify the certificate", "run `spotgate certs check`")
    elif replica.certificate.trusted is None:
        yield Unknown("Trust", "no caBundle is known, so nothing says whether the API server trusts the certificate")


def _of_cluster(replica: Replica, bundle: Bundle, view: ClusterView) -> Iterator[Unknown]:
    """Yield what the replica does not know of the cluster."""
    if replica.cluster is not None and (silence := replica.cluster.silence) > _STALE:
        why = f"the cluster was last heard of {silence:.0f} s ago, and may have changed"
        yield Unknown("The cluster as it is now", why, "the log has what the API server answered")
    if view.pools is None:
        yield Unknown("Node pools", view.why_unknown, view.remedy)
    if any(policy.needs.budgets for policy in bundle.policies) and view.budgets is None:
        yield Unknown("PodDisruptionBudgets", "they have not been read", "the log says why")
    versions = {"The version of the API server": view.api_server, "The oldest kubelet": view.oldest_kubelet}
    for what, version in versions.items():
        if version is None:
            yield Unknown(what, f"unknown; spotgate assumes {'.'.join(map(str, ASSUMED_VERSION))}")


def _policies(bundle: Bundle, findings: Mapping[str, Counter[str]]) -> Iterator[tuple[str, str, str, Counter[str]]]:
    """Yield the policies in force, then those of which only findings are left, and the engine."""
    left = dict(findings)
    replacing = {document.name for document in bundle.replacing if document.is_policy}
    for policy in bundle.policies:
        kind = f"{policy.kind.name}, replaces the shipped one" if policy.name in replacing else policy.kind.name
        yield policy.name, kind, str(policy.enforcement), left.pop(policy.name, Counter())
    for name, counts in sorted(left.items()):
        yield name, "of the engine" if name == ENGINE else "no longer in force", "", counts


def _row(pool: Pool) -> dict[str, str]:
    """Return a node pool as the webhook sees it."""
    machines = (pool.instance_type, _GPUS[pool.gpu], pool.gpu_type)
    return {
        "name": f"{pool.namespace}/{pool.name}" if pool.namespace else pool.name,
        "kind": f"{pool.provider} {pool.kind}",
        "capacity": str(pool.capacity),
        "size": _size(pool),
        "machines": ", ".join(filter(None, machines)),
        "unusable": f"in cluster {pool.cluster_id}" if pool.elsewhere else pool.unusable,
        "unread": "; ".join(pool.problems),
    }


def _size(pool: Pool) -> str:
    nodes = "" if pool.desired is None else f"{pool.desired} nodes" if pool.desired != 1 else "1 node"
    if not pool.autoscaling:
        return nodes
    most = "without a maximum" if pool.unlimited else f"up to {'?' if pool.maximum is None else pool.maximum}"
    return ", ".join(filter(None, (nodes, f"autoscaled {most}")))


def _certificates(replica: Replica) -> Iterator[tuple[str, float]]:
    """Yield the name of each certificate, and when it expires."""
    managed, certificate = replica.managed, replica.certificate
    ends = {
        "the certificate that is served": certificate.expiry,
        "the CA that signs it": managed.authority_expiry if managed is not None else None,
        "the first caBundle in force": certificate.trust_expiry,
    }
    yield from ((name, end.timestamp()) for name, end in ends.items() if end is not None)


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _left(seconds: float) -> str:
    """Return the time until then in words."""
    hours = (seconds - time.time()) / 3600
    if hours < 0:
        return "ended"
    return f"{hours:.0f} hours" if hours < 72 else f"{hours / 24:.0f} days"  # noqa: PLR2004 - three days
