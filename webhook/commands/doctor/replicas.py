"""Check the replicas: how many, where, what each says of itself, and whether its certificate is trusted."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from certs.rotation import end_of_trust
from webhook import __version__
from webhook.capacity.providers.pool import CapacityType
from webhook.cluster.api import ApiError
from webhook.cluster.installation import read_ca_bundles
from webhook.commands.certs.certificates import Item, judge, judge_trust, read_certificates
from webhook.commands.doctor.installation import INSTALL, SECONDS, Diagnosis, read, samples
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from datetime import datetime

    from webhook.commands.doctor.installation import Installed, ReplicaVersion

_NO_IMAGE: Final = ("ErrImage", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable")
"""What kubelets call an image that they can't have."""

_STALE: Final = 180.0
"""Seconds of silence, as in the alert: the API server says something of each resource every minute or so."""


async def check_replicas(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check number, hosts and capacity of the replicas."""
    yield _count(installed)
    placed = [each for each in installed.replicas if each.node]
    if not placed:
        return
    hosts = Counter(each.node for each in placed)
    shared = ", ".join(sorted(node for node, count in hosts.items() if count > 1))
    fix = "free a host for each, and delete one of the two Pods"
    fine = f"{len(placed)} replicas on {len(placed)} hosts"
    yield Diagnosis.of("hosts", shared and f"several replicas are on {shared}", fix, fine)
    spot = []
    for name in sorted(hosts):
        node = await read(installed.api, f"/api/v1/nodes/{name}")
        if node is not None and _is_spot(installed, node["metadata"].get("labels", {})):
            spot.append(name)
    fix = "keep them off by the Deployment's affinity, and delete the Pods there: docs/install.md"
    on_spot = f"replicas run on spot: {', '.join(spot)}" if spot else ""
    yield Diagnosis.of("capacity", on_spot, fix, "no replica runs on spot")


def _count(installed: Installed) -> Diagnosis:
    if installed.deployment is None:
        what = f"there is no Deployment spotgate in namespace {installed.namespace}"
        return Diagnosis("replicas", "fail", what, INSTALL)
    wanted = installed.deployment["spec"].get("replicas", 1)
    ready = sum(each.ready for each in installed.replicas)
    if ready < wanted:
        waiting = [each for each in installed.replicas if not each.ready]
        late = ", ".join(f"{each.name} ({each.waits})" if each.waits else each.name for each in waiting)
        late = late or "the other Pods are missing"
        fix = f"kubectl -n {installed.namespace} describe pods, and their /readyz says what they wait for"
        if any(each.waits.startswith(_NO_IMAGE) for each in waiting):
            fix = "name one that nodes can pull: `images` of the kustomization, `image` of the chart (docs/install.md)"
        return Diagnosis("replicas", "warn" if ready else "fail", f"{ready} of {wanted} are ready: {late}", fix)
    return Diagnosis("replicas", "ok", f"{ready} of {wanted} are ready")


def _is_spot(installed: Installed, labels: dict[str, str]) -> bool:
    providers = installed.bundle.providers if installed.bundle else {}
    if any(each.is_spot_node(labels) for each in providers.values()):
        return True
    return any(
        pool.capacity is CapacityType.SPOT and labels.get(providers[pool.provider].pool_name_label) == pool.pool_name
        for pool in installed.view.pools or ()
        if pool.provider in providers and not pool.elsewhere
    )


async def check_what_they_say(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check version, policies, reloads and the age of the view of the cluster, from each replica's operators' port."""
    for each in installed.replicas:
        name, version = f"replica {each.name}", each.version
        if version is None:
            yield Diagnosis(name, "unknown", f"what it serves and knows can't be read: {each.problem}", each.fix)
            continue
        bad = list(_wrong(installed, version, each.metrics))
        for what, fix in bad:
            yield Diagnosis(name, "warn", what, fix)
        if not bad:
            silence = max((value for _, value in samples(each.metrics, "spotgate_cluster_silence_seconds")), default=0)
            what = f"version {version.version}, bundle {version.bundle}; heard of the cluster {silence:.0f} s ago"
            yield Diagnosis(name, "ok", what)


def _wrong(installed: Installed, version: ReplicaVersion, metrics: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a replica, and the fix."""
    if version.version != __version__:
        yield f"it is version {version.version}, this program {__version__}", "use the same version of both"
    if installed.bundle is not None and version.bundle != installed.bundle.hash:
        what = f"it judges by bundle {version.bundle}, the Deployment names policies of bundle {installed.bundle.hash}"
        yield what, "the kubelet takes up to two minutes; else its log says why it does not load it"
    for labels, value in samples(metrics, "spotgate_last_reload_success"):
        if not value:
            yield f"the last reload of its {labels['what']} failed", "its log says why; the last good one is in force"
    for _, value in samples(metrics, "spotgate_cluster_silence_seconds"):
        if value > _STALE:
            yield f"it last heard of the cluster {value:.0f} s ago", "see docs/cluster-state.md, and its log"
    for _, value in samples(metrics, "spotgate_certificate_trusted"):
        if not value:
            yield "its certificate is not trusted by the caBundles that it last read", "see docs/certificates.md"


_SOON: Final = timedelta(days=7)
"""Self-managed certificates and cert-manager's are renewed with at least ten days left."""

_RENEW: Final = "renew it now (docs/certificates.md); the log of replicas with --tls-secret says why they have not"


async def check_trust(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Verify each replica's certificate, or where none can be read of a replica, the Secret's."""
    now = utc_now()
    bundles = await read_ca_bundles(installed.api, SECONDS, newest=False)
    served = {each.name: each.version.certificate.encode() for each in installed.replicas if each.version is not None}
    for name, leaf in served.items() if bundles else ():
        items = [Item("it", end_of_trust(leaf)), *judge_trust(leaf, bundles, now=now)]
        for found in _diagnosed(f"certificate of {name}", items, now):
            yield found
    silent = [each for each in installed.replicas if each.version is None]
    if silent or not served:
        why = silent[0].problem if silent else "there are no replicas"
        what, note = "certificate in the Secret", f"; what replicas serve can't be read: {why}"
        namespace, name = installed.secret()
        problem = "the Deployment names no Secret"
        try:
            items = (
                list(judge(await read_certificates(installed.api, namespace, name, now=now), now=now)) if name else []
            )
        except ApiError as error:
            items, problem = [], f"the Secret can't be read: {error}"
        if not items:
            yield Diagnosis(what, "unknown", f"{problem}{note}", "see docs/certificates.md")
            what, items, note = "caBundles", list(judge_trust(b"", bundles, now=now)), ""
        for found in _diagnosed(what, items, now, note) if items else ():
            yield found


def _diagnosed(what: str, items: Iterable[Item], now: datetime, note: str = "") -> Iterator[Diagnosis]:
    """Yield each problem of certificate and caBundles, or until when they are trusted."""
    problems: dict[tuple[str, str], list[str]] = {}  # often all caBundles have the same
    for each in items:
        if each.problem:
            problems.setdefault((each.problem, each.fix), []).append(each.what)
    for (problem, fix), where in problems.items():
        yield Diagnosis(what, "fail", f"{', '.join(where)}: {problem}{note}", fix)
    if problems:
        return
    end = min((each.expires for each in items if each.expires is not None), default=now)
    soon = end - now < _SOON
    yield Diagnosis(what, "warn" if soon else "ok", f"trusted until {end:%Y-%m-%d}{note}", _RENEW if soon else "")
