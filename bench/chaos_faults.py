"""The faults of `make chaos`: each does something to a running installation while writes go on, and puts it back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from bench.chaos_load import HUGE, Outcome
from certs.authority import KeyPair, create_authority, issue_leaf
from certs.rotation import identifier_of, issue
from tests.controlplane.webhook import CERTIFICATES, NAMESPACE, PROVIDED, SERVICE
from webhook.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from bench.chaos_load import Load
    from bench.chaos_service import CuttableApiServer, Service
    from tests.controlplane.cluster import Cluster

_LOOKED: Final = 7.0
"""Seconds within which every replica looks at its certificate's files, every 5 s."""

_ROTATED: Final = 90.0
"""Seconds within which replicas serve what a new CA signed: two looks of 5 s, and 10 s between them."""

_HEARD: Final = 4.0
"""Seconds within which every replica hears of changed policies, and compiles them."""

_NEWER_POLICY: Final = """
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: newer-labels}
spec: {domains: [newer.example]}
"""

_HOUR: Final = timedelta(hours=1)

_HOSTILE: Final = 15.0
"""Seconds of hostile requests."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is running. Policies, certificates and the webhook's kubeconfig are in `directory`."""

    cluster: Cluster
    service: Service
    load: Load
    directory: Path
    kubeconfig: Path
    api_server: CuttableApiServer


Act: TypeAlias = "Callable[[Scene], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: what is printed.
        act: does it, and puts back what it has changed.
        may: outcomes that are not promised to be absent while it lasts, beside denials as unknown.
        component: of manifests/components for the certificates.
    """

    name: str
    act: Act
    may: frozenset[Outcome] = frozenset()
    component: str = PROVIDED


async def nothing(_: Scene) -> None:
    """Leave everything as it is."""
    await asyncio.sleep(10)


async def kill(scene: Scene) -> None:
    """Kill a replica, twice; a new one comes 3 s later."""
    for _ in range(2):
        replica = scene.service.replicas[0]
        replica.process.kill()
        await asyncio.sleep(3)
        scene.service.replicas.remove(replica)
        await scene.service.add()
        await asyncio.sleep(2)


async def rollout(scene: Scene) -> None:
    """Replace every replica, one after another, as a Deployment with `maxUnavailable: 0` does."""
    for replica in tuple(scene.service.replicas):
        await scene.service.add()
        await scene.service.delete(replica)


async def newer_bundle(scene: Scene) -> None:
    """Serve a bundle with one policy more beside the old one, and take it back."""
    policy = scene.directory / "newer.yaml"
    policy.write_text(_NEWER_POLICY)
    newer = await scene.service.add(f"--policies={policy}")
    await asyncio.sleep(5)
    await scene.service.delete(newer)


async def all_dead(scene: Scene) -> None:
    """Kill all replicas; new ones come 5 s later."""
    dead = tuple(scene.service.replicas)
    for replica in dead:
        replica.process.kill()
        replica.ready = False
    await asyncio.sleep(5)
    for replica in dead:
        scene.service.replicas.remove(replica)
        await scene.service.add()


@contextlib.contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Put back what is in this folder or file."""
    copy = path.with_name(f"{path.name}.kept")
    (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    try:
        yield
    finally:
        if path.is_dir():
            for file in copy.iterdir():
                shutil.copy(file, path / file.name)
            shutil.rmtree(copy)
        else:
            copy.replace(path)


def _policies(change: Callable[[Path], object]) -> Act:
    """Change the policies and put them back; `change` is given their folder."""

    async def act(scene: Scene) -> None:
        folder = scene.directory / "policies"
        with _kept(folder):
            change(folder)
            await asyncio.sleep(_HEARD)
        await asyncio.sleep(_HEARD)

    return act


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def _good_policies(folder: Path) -> None:
    for file in folder.glob("*.yaml"):
        _append(file, "\n# as before\n")


def _remove_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _certificate(make: Callable[[KeyPair], KeyPair]) -> Act:
    """Serve another pair, which `make` makes with the CA in force, and put the old one back."""

    async def act(scene: Scene) -> None:
        folder = scene.directory
        authority = KeyPair((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        pair = make(authority)
        with _kept(folder / "tls.crt"), _kept(folder / "tls.key"):
            (folder / "tls.key").write_bytes(pair.key_pem)
            (folder / "tls.crt").write_bytes(pair.certificate_pem)
            await asyncio.sleep(_LOOKED)
        await asyncio.sleep(_LOOKED)

    return act


def _leaf(authority: KeyPair, name: str = f"{SERVICE}.{NAMESPACE}.svc", *, age: timedelta = timedelta()) -> KeyPair:
    return issue_leaf(authority, names=[name], ips=[], now=datetime.now(UTC) - age)


def _half_written(authority: KeyPair) -> KeyPair:
    leaf = _leaf(authority)
    return KeyPair(leaf.certificate_pem[:300], leaf.key_pem)


def _mismatched(authority: KeyPair) -> KeyPair:
    return KeyPair(_leaf(authority).certificate_pem, _leaf(authority).key_pem)


def _not_in_force(_: KeyPair) -> KeyPair:
    return _leaf(create_authority(datetime.now(UTC)))


async def _until_served(scene: Scene) -> None:
    """Wait until all replicas say that they serve what the Secret's CA signed."""
    async with asyncio.timeout(_ROTATED):
        while True:
            data = await asyncio.to_thread(_secret, scene)
            signer = identifier_of(KeyPair(data["ca.crt"], data["ca.key"])) if "ca.key" in data else "none"
            serving = [value.decode().partition(" ")[0] for key, value in data.items() if key.startswith("serving.")]
            if serving.count(signer) >= len(scene.service.replicas):
                return
            await asyncio.sleep(1)


def _secret(scene: Scene) -> dict[str, bytes]:
    found = scene.cluster.kubectl.get("secret", CERTIFICATES, f"--namespace={NAMESPACE}")
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


async def _store(scene: Scene, data: dict[str, bytes]) -> None:
    """Put these entries into the Secret."""
    entries = {key: base64.b64encode(value).decode() for key, value in data.items()}
    patch = f"--patch={json.dumps({'data': entries})}"
    await asyncio.to_thread(scene.cluster.kubectl, "patch", "secret", CERTIFICATES, f"--namespace={NAMESPACE}", patch)


def _issued() -> dict[str, bytes]:
    return issue((f"{SERVICE}.{NAMESPACE}.svc",), now=datetime.now(UTC)).to_data()


async def rotations(scene: Scene) -> None:
    """Replace the CA five times in a row."""
    for _ in range(5):
        await _store(scene, _issued())
        await _until_served(scene)


async def rotation_and_kills(scene: Scene) -> None:
    """Replace the CA, and kill a replica every 4 s until another CA is served; a new one comes at once."""
    await _store(scene, _issued())
    for _ in range(4):
        await asyncio.sleep(4)
        replica = scene.service.replicas[0]
        replica.process.kill()
        scene.service.replicas.remove(replica)
        await scene.service.add()
    await _until_served(scene)


async def secret_deleted(scene: Scene) -> None:
    """Delete the Secret."""
    await asyncio.to_thread(scene.cluster.kubectl, "delete", "secret", CERTIFICATES, f"--namespace={NAMESPACE}")
    await asyncio.sleep(_LOOKED)
    await _until_served(scene)


async def secret_truncated(scene: Scene) -> None:
    """Cut the keys in the Secret off."""
    await _store(scene, {key: value[:60] for key, value in _issued().items()})
    await asyncio.sleep(_LOOKED)
    await _until_served(scene)


async def ca_bundles_emptied(scene: Scene) -> None:
    """Empty all caBundles."""
    for resource in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        found = scene.cluster.kubectl.get(resource, SERVICE)
        paths = [f"/webhooks/{number}/clientConfig/caBundle" for number in range(len(found["webhooks"]))]
        patch = json.dumps([{"op": "remove", "path": path} for path in paths])
        await asyncio.to_thread(scene.cluster.kubectl, "patch", resource, SERVICE, "--type=json", f"--patch={patch}")
    await asyncio.sleep(_LOOKED)


async def cert_manager_renewals(scene: Scene) -> None:
    """Have cert-manager renew the CA and the certificate five times in a row."""
    for name in ("spotgate-ca", SERVICE) * 5:
        before = await asyncio.to_thread(_certificate_of, scene, name)
        issuing = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "",
            "observedGeneration": 1,
        }
        renew = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
        arguments = ("patch", "certificate", name, f"--namespace={NAMESPACE}", "--subresource=status", "--type=json")
        await asyncio.to_thread(scene.cluster.kubectl, *arguments, f"--patch={renew}")
        async with asyncio.timeout(_ROTATED):
            while await asyncio.to_thread(_certificate_of, scene, name) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
    await asyncio.sleep(_LOOKED)


def _certificate_of(scene: Scene, name: str) -> str:
    secret = "spotgate-tls" if name == SERVICE else name
    data: dict[str, str] = scene.cluster.kubectl.get("secret", secret, f"--namespace={NAMESPACE}")["data"]
    return data["tls.crt"]


async def watches_cut(scene: Scene) -> None:
    """End every connection of the replicas to the API server, five times."""
    for _ in range(5):
        scene.api_server.cut()
        await asyncio.sleep(2)


async def etcd_stopped(scene: Scene) -> None:
    """Stop etcd for 10 s."""
    pid = scene.cluster.processes["etcd"].pid
    os.killpg(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(10)
    finally:
        os.killpg(pid, signal.SIGCONT)
    await asyncio.sleep(5)


async def api_server_restarted(scene: Scene) -> None:
    """Kill the API server and start it again."""
    process = scene.cluster.processes["kube-apiserver"]
    process.kill()
    process.start()  # here and not in a thread, with whose end it would end
    await asyncio.to_thread(scene.cluster.wait_until_ready)
    await asyncio.sleep(5)


async def token_revoked(scene: Scene) -> None:
    """Delete the webhook's ServiceAccount, whose tokens end with it; a new one comes 12 s later."""
    kubectl = scene.cluster.kubectl
    await asyncio.to_thread(kubectl, "delete", "serviceaccount", SERVICE, f"--namespace={NAMESPACE}")
    await asyncio.sleep(12)  # the API server believes in a token for 10 s after it has looked
    await asyncio.to_thread(kubectl, "create", "serviceaccount", SERVICE, f"--namespace={NAMESPACE}")
    renewed = await asyncio.to_thread(scene.cluster.as_service_account, NAMESPACE, SERVICE)
    renewed.kubeconfig.replace(scene.kubeconfig)
    await asyncio.sleep(5)


def _hostile(kind: str) -> Act:
    """Have hostile clients ask every replica."""

    async def act(scene: Scene) -> None:
        ports = [str(replica.port) for replica in scene.service.replicas]
        arguments = ["-m", "bench.chaos_hostile", kind, str(_HOSTILE), *ports]
        process = Process(kind, [sys.executable, *arguments], scene.directory / f"{kind}.log")
        process.start()
        try:
            await asyncio.sleep(_HOSTILE)
        finally:
            process.kill()

    return act


async def huge_objects(scene: Scene) -> None:
    """Let a tenant create Pods of 1.3 MiB with a reserved label one after another, ten or for 30 s."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            for _ in range(10):
                await scene.load.send(HUGE)


# A killed process answers no call that it had, and no connection that comes before its probe fails. Without an answer
# the API server admits what `failurePolicy: Ignore` is for, and fails the rest.
_UNANSWERED: Final = frozenset({Outcome.LET_IN, Outcome.UNCHANGED, Outcome.FAILED})

FAULTS: Final = tuple(
    Fault(*each)
    for each in (
        ("nothing", nothing),
        ("a replica killed, twice", kill, _UNANSWERED),
        ("rollout", rollout),
        ("upgrade and downgrade: two bundles side by side", newer_bundle),
        ("all replicas killed, back after 5 s", all_dead, _UNANSWERED),
        ("policies: good", _policies(_good_policies)),
        ("policies: broken", _policies(lambda folder: _append(folder / "reserved-labels.yaml", "\n{"))),
        ("policies: a file emptied", _policies(lambda folder: (folder / "reserved-labels.yaml").write_text(""))),
        ("policies: all removed", _policies(_remove_all)),
        ("certificate: good", _certificate(_leaf)),
        ("certificate: of another key", _certificate(_mismatched)),
        ("certificate: half written", _certificate(_half_written)),
        ("certificate: expired", _certificate(lambda authority: _leaf(authority, age=timedelta(days=60)))),
        ("certificate: by a clock an hour ahead", _certificate(lambda authority: _leaf(authority, age=-_HOUR))),
        ("certificate: by a clock an hour behind", _certificate(lambda authority: _leaf(authority, age=_HOUR))),
        ("certificate: of another name", _certificate(lambda authority: _leaf(authority, name="other.example"))),
        ("certificate: of a CA not in force", _certificate(_not_in_force)),
        ("etcd stopped for 10 s", etcd_stopped, frozenset({Outcome.FAILED})),
        ("API server restarted", api_server_restarted, frozenset({Outcome.FAILED})),
        ("watches cut, five times", watches_cut),
        ("webhook's token revoked", token_revoked),  # after it, replicas reach the API server by its own port
        ("hostile: 2,000 half-sent bodies", _hostile("half_sent")),
        ("hostile: 8 clients with reviews of 282 KiB", _hostile("reviews")),
        ("hostile: handshakes", _hostile("handshakes")),
        ("a tenant's Pods of 1.3 MiB", huge_objects),
        ("self-managed: rollout", rollout, frozenset(), "self-managed"),
        ("self-managed: five rotations in a row", rotations, frozenset(), "self-managed"),
        ("self-managed: a rotation, and four replicas killed", rotation_and_kills, _UNANSWERED, "self-managed"),
        ("self-managed: Secret deleted", secret_deleted, frozenset(), "self-managed"),
        ("self-managed: Secret truncated", secret_truncated, frozenset(), "self-managed"),
        ("self-managed: caBundles emptied", ca_bundles_emptied, _UNANSWERED, "self-managed"),
        ("self-managed: etcd stopped for 10 s", etcd_stopped, frozenset({Outcome.FAILED}), "self-managed"),
        ("cert-manager: five renewals in a row", cert_manager_renewals, frozenset(), "cert-manager"),
    )
)
