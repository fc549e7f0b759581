"""Check the replicas: their number, Nodes, reported state, and certificates."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from certs.rotation import end_of_trust
from webhook import __version__
from webhook.base.terminal import counted
from webhook.capacity.view import spot_nodes
from webhook.cluster.api import ApiError
from webhook.cluster.installation import read_ca_bundles
from webhook.commands.doctor.installation import INSTALL, NODES, SECONDS, Diagnosis, Installed, ReplicaVersion, samples
from webhook.commands.shared.certificates import Item, judge, judge_trust, read_certificates
from webhook.report.report import alike
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator


_STALE: Final = 180.0
"""The maximum silence in seconds, as in the alert. The API server sends an event or bookmark about every minute."""

_SILENCE: Final = "spotgate_cluster_silence_seconds"

_SOON: Final = timedelta(days=7)
"""Self-managed and cert-manager certificates are renewed at least ten days before they expire."""

_RENEW: Final = "renew it now (docs/certificates.md); with --tls-secret, the log of the replicas says why they haven't"


async def check_replicas(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check the number, hosts, and capacity of the replicas."""
    yield _count(installed)
    nodes = Counter(replica.node for replica in installed.replicas if replica.node)
    if not nodes:
        return
    shared = ", ".join(sorted(node for node, count in nodes.items() if count > 1))
    fix = "make room on another host, and delete one of the Pods on the shared host"
    fine = f"{counted(nodes.total(), 'replica')} on {counted(len(nodes), 'host')}"
    yield Diagnosis.of("hosts", shared and f"several replicas are on {shared}", fix, fine)
    if unread := installed.unread.sentence(NODES):
        yield Diagnosis("capacity", "unknown", unread)
        return
    spot = ", ".join(sorted(nodes.keys() & spot_nodes(installed.view).keys()))
    fix = "exclude spot nodes in the Deployment's affinity, and delete the Pods there (docs/install.md)"
    yield Diagnosis.of("capacity", spot and f"replicas run on spot: {spot}", fix, "no replica runs on spot")


def _count(installed: Installed) -> Diagnosis:
    if installed.deployment is None:
        what = f"there is no Deployment spotgate in namespace {installed.namespace}"
        return Diagnosis("replicas", "fail", what, INSTALL)
    wanted = installed.deployment["spec"].get("replicas", 1)
    waiting = [replica for replica in installed.replicas if not replica.ready]
    ready = len(installed.replicas) - len(waiting)
    late = ", ".join(f"{replica.name} ({replica.waits})" if replica.waits else replica.name for replica in waiting)
    what = f"{ready} of {wanted} are ready"
    wrong = f"{what}: {late or 'the other Pods are missing'}" if ready < wanted else ""
    fix = f"run `kubectl -n {installed.namespace} describe pods`; their /readyz says what they wait for"
    return Diagnosis.of("replicas", wrong, fix, what, "warn" if ready else "fail")


async def check_states(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check the version, policies, reloads, and cluster state that each replica reports on its operators' port."""
    for replica in installed.replicas:
        name, version = f"replica {replica.name}", replica.version
        if version is None:
            what = f"its state can't be read: {replica.problem}"
            yield Diagnosis(name, "unknown", what, replica.fix)
            continue
        problems = list(_problems(installed, version, replica.metrics))
        for what, fix in problems:
            yield Diagnosis(name, "warn", what, fix)
        if not problems:
            silence = max((value for _, value in samples(replica.metrics, _SILENCE)), default=0)
            what = f"version {version.version}, bundle {version.bundle}; last cluster event {silence:.0f} s ago"
            yield Diagnosis(name, "ok", what)


def _problems(installed: Installed, version: ReplicaVersion, metrics: str) -> Iterator[tuple[str, str]]:
    """Yield the problems of a replica, each with its fix."""
    if version.version != __version__:
        yield f"it has version {version.version}, and this program {__version__}", "use the same version of both"
    if installed.bundle is not None and version.bundle != installed.bundle.hash:
        what = f"it uses bundle {version.bundle}, but the Deployment names policies of bundle {installed.bundle.hash}"
        yield what, "wait two minutes for the kubelet; after that, see why in the replica's log"
    for labels, value in samples(metrics, "spotgate_last_reload_success"):
        if not value:
            yield f"the last reload of its {labels['what']} failed", "see its log; the last valid state stays active"
    for _, value in samples(metrics, _SILENCE):
        if value > _STALE:
            yield f"its last cluster event was {value:.0f} s ago", "see docs/cluster-state.md, and its log"
    for _, value in samples(metrics, "spotgate_certificate_trusted"):
        if not value:
            yield "the caBundles that it last read don't trust its certificate", "see docs/certificates.md"


async def check_trust(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Verify the certificate of each replica, or of the Secret if a replica's can't be read."""
    now = utc_now()
    bundles = await read_ca_bundles(installed.api, SECONDS, newest=False)
    served = {replica.name: replica.version.certificate for replica in installed.replicas if replica.version}
    for name, certificate in served.items() if bundles else ():
        leaf = certificate.encode()
        items = [Item("it", end_of_trust(leaf)), *judge_trust(leaf, bundles, now=now)]
        for diagnosis in _diagnose(f"certificate of {name}", items, now):
            yield diagnosis
    silent = [replica.problem for replica in installed.replicas if replica.version is None]
    if served and not silent:
        return
    what = "certificate in the Secret"
    note = f"; the replicas' certificates can't be read: {silent[0] if silent else 'there are no replicas'}"
    items, problem = [], "the Deployment names no Secret"
    try:
        if any(installed.secret):
            items = list(judge(await read_certificates(installed.api, *installed.secret, now=now), now=now))
    except ApiError as error:
        problem = f"the Secret can't be read: {error}"
    if not items:
        yield Diagnosis(what, "unknown", f"{problem}{note}", "see docs/certificates.md")
        what, items, note = "caBundles", list(judge_trust(b"", bundles, now=now)), ""
    for diagnosis in _diagnose(what, items, now, note) if items else ():
        yield diagnosis


def _diagnose(name: str, items: Iterable[Item], now: datetime, note: str = "") -> Iterator[Diagnosis]:
    """Yield each problem of the certificate and the caBundles, or their expiry date if there is none."""
    problems = alike((item for item in items if item.problem), lambda item: (item.problem, item.fix))
    for (problem, fix), wrong in problems.items():  # often all caBundles have the same problem
        yield Diagnosis(name, "fail", f"{', '.join(item.what for item in wrong)}: {problem}{note}", fix)
    if not problems:
        end = min((item.expires for item in items if item.expires is not None), default=now)
        what = f"trusted until {end:%Y-%m-%d}{note}"
        yield Diagnosis.of(name, what if end - now < _SOON else "", _RENEW, what, "warn")
