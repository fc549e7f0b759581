"""The faults of `make chaos`: each breaks a running installation while writes continue, and restores it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from bench.chaos.certificates import (
    BAD,
    BY_OTHER_CLOCKS,
    ca_bundles_emptied,
    cert_manager_renewals,
    certificate,
    clocks_off,
    leaf,
    rotation_and_kills,
    rotations,
    secret_deleted,
    secret_replaced,
    secret_truncated,
)
from bench.chaos.load import HUGE, Outcome
from bench.chaos.scene import Fault, at_once, one_after_another, restored
from tests.controlplane.harness.clock import faketime
from tests.controlplane.harness.webhook import CERT_MANAGER, NAMESPACE, PROVIDED, SELF_MANAGED, SERVICE
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.chaos.scene import Act, Scene

_RELOAD_SECONDS: Final = 4.0
"""The time for every replica to notice and compile changed policies."""

_SHORT_RELOAD: Final = 1.5
_SHORT_READ: Final = 5.0

_NEWER_POLICY: Final = """
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: newer-labels}
spec: {domains: [newer.example]}
"""

_HOSTILE: Final = 15.0
"""Seconds of hostile requests."""


async def nothing(_: Scene) -> None:
    """Change nothing."""
    await asyncio.sleep(10)


def killed(times: int) -> Act:
    """Kill a replica this many times, and start a new one 3 s later."""

    async def act(scene: Scene) -> None:
        for _ in range(times):
            replica = scene.service.replicas[0]
            replica.process.kill()
            await asyncio.sleep(3)
            scene.service.replicas.remove(replica)
            await scene.service.add()
            await asyncio.sleep(2)

    return act


def hangs(seconds: float) -> Act:
    """Pause a replica's process for this time, without closing its connections."""

    async def act(scene: Scene) -> None:
        pid = scene.service.replicas[0].process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    return act


async def rollout(scene: Scene, *flags: str) -> None:
    """Replace the replicas as a Deployment with `maxUnavailable: 0` does: it doesn't wait for the end of old Pods."""
    ending = []
    for replica in tuple(scene.service.replicas):
        await scene.service.add(*flags)
        ending.append(asyncio.create_task(scene.service.delete(replica)))
    await asyncio.gather(*ending)


async def upgrade(scene: Scene) -> None:
    """Roll out a bundle with an additional policy. Replicas that later faults add have the old bundle."""
    await rollout(scene, _newer_bundle(scene))


async def newer_bundle(scene: Scene) -> None:
    """Add a replica with an additional policy next to the old replicas, and delete it."""
    newer = await scene.service.add(_newer_bundle(scene))
    await asyncio.sleep(5)
    await scene.service.delete(newer)


def _newer_bundle(scene: Scene) -> str:
    policy = scene.directory / "newer.yaml"
    policy.write_text(_NEWER_POLICY)
    return f"--policies={policy}"


def all_killed(seconds: float) -> Act:
    """Kill all replicas, and start new ones after this time."""

    async def act(scene: Scene) -> None:
        dead = tuple(scene.service.replicas)
        for replica in dead:
            replica.process.kill()
            replica.ready = False
        await asyncio.sleep(seconds)
        for replica in dead:
            scene.service.replicas.remove(replica)
        await asyncio.gather(*(scene.service.add() for _ in dead))

    return act


def _policies(*changes: Callable[[Path], object], seconds: float = _RELOAD_SECONDS) -> Act:
    """Apply each change to the policies for this time, and restore them. A change is a function of their folder."""

    async def act(scene: Scene) -> None:
        folder = scene.directory / "policies"
        for change in changes:
            with restored(folder):
                change(folder)
                await asyncio.sleep(seconds)
        await asyncio.sleep(seconds)

    return act


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def _good_policies(folder: Path) -> None:
    for file in folder.glob("*.yaml"):
        _append(file, "\n# unchanged\n")


def _break(folder: Path) -> None:
    _append(folder / "reserved-labels.yaml", "\n{")


def _empty(folder: Path) -> None:
    (folder / "reserved-labels.yaml").write_text("")


def _remove_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


async def watches_cut(scene: Scene) -> None:
    """Close all connections of the replicas to the API server, five times."""
    for _ in range(5):
        scene.api_server.cut()
        await asyncio.sleep(2)


def etcd_stopped(seconds: float) -> Act:
    """Pause etcd for this time."""

    async def act(scene: Scene) -> None:
        pid = scene.cluster.processes["etcd"].pid
        os.killpg(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(pid, signal.SIGCONT)
        await asyncio.sleep(seconds / 2)

    return act


async def api_server_restarted(scene: Scene) -> None:
    """Kill and restart the API server."""
    process = scene.cluster.processes["kube-apiserver"]
    process.kill()
    process.start()  # not in a thread: the process would end with it
    await asyncio.to_thread(scene.cluster.wait_until_ready)
    await asyncio.sleep(5)


async def token_revoked(scene: Scene) -> None:
    """Delete the webhook's ServiceAccount, which revokes its tokens; create a new one 12 s later."""
    kubectl = scene.cluster.kubectl
    await asyncio.to_thread(kubectl, "delete", "serviceaccount", SERVICE, f"--namespace={NAMESPACE}")
    await asyncio.sleep(12)  # the API server caches a valid token for 10 s
    await asyncio.to_thread(kubectl, "create", "serviceaccount", SERVICE, f"--namespace={NAMESPACE}")
    renewed = await asyncio.to_thread(scene.cluster.as_service_account, NAMESPACE, SERVICE)
    renewed.kubeconfig.replace(scene.kubeconfig)
    await asyncio.sleep(5)


def _hostile(kind: str) -> Act:
    """Attack every replica with hostile clients."""

    async def act(scene: Scene) -> None:
        ports = [str(replica.port) for replica in scene.service.replicas]
        arguments = ["-m", "bench.chaos.hostile", kind, str(_HOSTILE), *ports]
        process = Process(kind, [sys.executable, *arguments], scene.directory / f"{kind}.log")
        process.start()
        try:
            await asyncio.sleep(_HOSTILE)
        finally:
            process.kill()

    return act


async def huge_objects(scene: Scene) -> None:
    """Create Pods of 1.3 MiB with a reserved label as a tenant: ten in a row, for at most 30 s."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            for _ in range(10):
                await scene.load.send(HUGE)


# A killed process doesn't answer open calls, or new connections until its probe fails. Without an answer, the API
# server admits requests with `failurePolicy: Ignore`, and rejects the others.
_UNANSWERED: Final = frozenset({Outcome.ADMITTED, Outcome.UNCHANGED, Outcome.FAILED})

_LATE: Final = frozenset({Outcome.FAILED})

_CLOCKS: Final = (
    Fault("self-managed: all clocks an hour ahead", clocks_off("+1h"), component=SELF_MANAGED),
    Fault("self-managed: all clocks an hour behind", clocks_off("-1h"), component=SELF_MANAGED),
)
_CERTIFICATES_OF_CLOCKS: Final = (
    Fault("certificate: by clocks an hour ahead and behind", certificate(*BY_OTHER_CLOCKS, loaded=True)),
)

FAULTS: Final = (
    Fault("nothing", nothing),
    Fault("a replica killed, twice", killed(2), _UNANSWERED),
    Fault("a replica hangs for 20 s", hangs(20), _UNANSWERED),
    Fault("rollout", rollout),
    Fault("upgrade and downgrade: two bundles side by side", newer_bundle),
    Fault("all replicas killed, back after 5 s", all_killed(5), _UNANSWERED),
    Fault("policies: good", _policies(_good_policies)),
    Fault("policies: broken", _policies(_break)),
    Fault("policies: a file emptied", _policies(_empty)),
    Fault("policies: all removed", _policies(_remove_all)),
    Fault("certificate: good", certificate(leaf, loaded=True)),
    *(Fault(f"certificate: {name}", certificate(make, loaded=False)) for name, make in BAD.items()),
    Fault("etcd stopped for 10 s", etcd_stopped(10), _LATE),
    Fault("API server restarted", api_server_restarted, _LATE),
    Fault("watches cut, five times", watches_cut),
    Fault("webhook's token revoked", token_revoked),  # from here on, replicas use the API server's real port
    Fault("hostile: 2,000 half-sent bodies", _hostile("half_sent")),
    Fault("hostile: 8 clients with reviews of 282 KiB", _hostile("reviews")),
    Fault("hostile: handshakes", _hostile("handshakes")),
    Fault("a tenant's Pods of 1.3 MiB", huge_objects),
    Fault("self-managed: five rotations in a row", rotations, component=SELF_MANAGED),
    Fault("self-managed: a rotation, and four replicas killed", rotation_and_kills, _UNANSWERED, SELF_MANAGED),
    Fault("self-managed: Secret deleted", secret_deleted, component=SELF_MANAGED),
    Fault("self-managed: Secret truncated", secret_truncated, component=SELF_MANAGED),
    Fault("self-managed: Secret of a stranger", secret_replaced, component=SELF_MANAGED),
    Fault("self-managed: caBundles emptied", ca_bundles_emptied, _UNANSWERED, SELF_MANAGED),
    Fault("self-managed: etcd stopped for 10 s", etcd_stopped(10), _LATE, SELF_MANAGED),
    *(_CLOCKS if faketime() else _CERTIFICATES_OF_CLOCKS),
    Fault("cert-manager: five renewals in a row", cert_manager_renewals(5), component=CERT_MANAGER),
)


def _short(component: str, files: Act) -> tuple[Fault, ...]:
    policies = _policies(_break, _empty, _remove_all, seconds=_SHORT_RELOAD)
    harmless = at_once(files, policies, watches_cut)
    return (
        Fault("bad certificates and policies, watches cut", harmless, component=component),
        Fault("rollout of another bundle", upgrade, component=component),
        Fault("all replicas killed, back after 2 s", all_killed(2), _UNANSWERED, component),
        Fault("etcd stopped for 3 s", etcd_stopped(3), _LATE, component),
    )


_BAD_FILES: Final = certificate(*BAD.values(), loaded=False)

SHORT: Final = {
    PROVIDED: _short(PROVIDED, _BAD_FILES),
    CERT_MANAGER: _short(CERT_MANAGER, one_after_another(cert_manager_renewals(1, seconds=_SHORT_READ), _BAD_FILES)),
}
"""The faults of a one-minute `make chaos`, by the source of the certificate files."""
