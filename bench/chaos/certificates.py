"""Certificate faults: bad files, rotations of a CA, broken Secrets and caBundles, and wrong clocks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from bench.chaos.scene import restored
from certs.authority import KeyPair, create_authority, issue_leaf
from certs.rotation import identifier_of, issue
from tests.controlplane.harness.webhook import CERTIFICATES, NAMESPACE, SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bench.chaos.scene import Act, Scene

_READ_SECONDS: Final = 7.0
"""The time for every replica to read its Secret or files, which happens every 5 s."""

_ROTATION_SECONDS: Final = 90.0
"""The time for the replicas to serve a certificate of a new CA: two reads, 5 s each, and 10 s between them."""

_HOUR: Final = timedelta(hours=1)

Make: TypeAlias = Callable[[KeyPair], KeyPair]
"""A function that creates a certificate and a key with the current CA."""


def certificate(*makes: Make, loaded: bool) -> Act:
    """Write each pair to the files until all replicas have logged it, and then restore the old one."""

    async def act(scene: Scene) -> None:
        certificate, key = scene.directory / "tls.crt", scene.directory / "tls.key"
        authority = KeyPair((scene.directory / "ca.crt").read_bytes(), (scene.directory / "ca.key").read_bytes())
        with restored(certificate), restored(key):
            for make in makes:
                async with _logged(scene, "loaded" if loaded else "not loaded"):
                    pair = make(authority)
                    key.write_bytes(pair.key_pem)
                    certificate.write_bytes(pair.certificate_pem)
            before = _logged_times(scene, "loaded")
        await _until_logged(scene, "loaded", before)

    return act


@contextlib.asynccontextmanager
async def _logged(scene: Scene, what: str) -> AsyncIterator[None]:
    """Wait after the block until every replica has logged the event again: a certificate was (not) loaded."""
    before = _logged_times(scene, what)
    yield
    await _until_logged(scene, what, before)


async def _until_logged(scene: Scene, what: str, before: Mapping[Path, int]) -> None:
    async with asyncio.timeout(_ROTATION_SECONDS):
        while any(count <= before[log] for log, count in _logged_times(scene, what).items()):  # noqa: ASYNC110 - files
            await asyncio.sleep(0.2)


def _logged_times(scene: Scene, what: str) -> dict[Path, int]:
    """Return how often each replica has logged the event, by log file."""
    logs = [replica.process.log for replica in scene.service.replicas]
    return {log: log.read_text().count(f'"event":"certificate {what}"') for log in logs}


def leaf(authority: KeyPair, name: str = f"{SERVICE}.{NAMESPACE}.svc", *, age: timedelta = timedelta()) -> KeyPair:
    """Return a valid certificate for this name, issued `age` ago."""
    return issue_leaf(authority, names=[name], ips=[], now=datetime.now(UTC) - age)


def _half_written(authority: KeyPair) -> KeyPair:
    pair = leaf(authority)
    return KeyPair(pair.certificate_pem[:300], pair.key_pem)


def _mismatched(authority: KeyPair) -> KeyPair:
    return KeyPair(leaf(authority).certificate_pem, leaf(authority).key_pem)


def _expired(authority: KeyPair) -> KeyPair:
    return leaf(authority, age=timedelta(days=60))


def _misnamed(authority: KeyPair) -> KeyPair:
    return leaf(authority, "other.example")


def _not_in_force(_: KeyPair) -> KeyPair:
    return leaf(create_authority(datetime.now(UTC)))


BAD: Final[Mapping[str, Make]] = {
    "of another key": _mismatched,
    "half written": _half_written,
    "expired": _expired,
    "of another name": _misnamed,
    "of a CA not in force": _not_in_force,
}
"""Bad certificates, each rejected for a different reason."""

BY_OTHER_CLOCKS: Final[tuple[Make, ...]] = (partial(leaf, age=-_HOUR), partial(leaf, age=_HOUR))


async def _until_served(scene: Scene) -> None:
    """Wait until all replicas report that they serve a certificate of the Secret's CA."""
    async with asyncio.timeout(_ROTATION_SECONDS):
        while True:
            data = await asyncio.to_thread(_secret, scene)
            signer = identifier_of(KeyPair(data["ca.crt"], data["ca.key"])) if "ca.key" in data else "none"
            serving = [value.decode().partition(" ")[0] for key, value in data.items() if key.startswith("serving.")]
            if serving.count(signer) >= len(scene.service.replicas):
                return
            await asyncio.sleep(1)


def _secret(scene: Scene) -> dict[str, bytes]:
    secret = scene.cluster.kubectl.get("secret", CERTIFICATES, f"--namespace={NAMESPACE}")
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


async def _store(scene: Scene, data: dict[str, bytes]) -> None:
    """Write these entries to the Secret."""
    entries = {key: base64.b64encode(value).decode() for key, value in data.items()}
    patch = f"--patch={json.dumps({'data': entries})}"
    await asyncio.to_thread(scene.cluster.kubectl, "patch", "secret", CERTIFICATES, f"--namespace={NAMESPACE}", patch)


def _issued(*, age: timedelta = timedelta()) -> dict[str, bytes]:
    return issue((f"{SERVICE}.{NAMESPACE}.svc",), now=datetime.now(UTC) - age).to_data()


async def rotations(scene: Scene) -> None:
    """Replace the CA five times in a row."""
    for _ in range(5):
        await _store(scene, _issued())
        await _until_served(scene)


async def rotation_and_kills(scene: Scene) -> None:
    """Replace the CA, and kill and replace a replica every 4 s until the replicas serve another CA."""
    await _store(scene, _issued())
    for _ in range(4):
        await asyncio.sleep(4)
        replica = scene.service.replicas[0]
        replica.process.kill()
        scene.service.replicas.remove(replica)
        await scene.service.add()
    await _until_served(scene)


def clocks_off(offset: str) -> Act:
    """Replace the replicas with replicas whose clocks are wrong, let these issue a new CA, and replace them again."""

    async def replace_replicas(scene: Scene, clock: str) -> None:
        before = tuple(scene.service.replicas)
        for _ in before:
            await scene.service.add(clock=clock)
        await asyncio.gather(*(scene.service.delete(replica) for replica in before))

    async def act(scene: Scene) -> None:
        await replace_replicas(scene, offset)
        await _store(scene, _issued(age=timedelta(days=200)))  # past half of its lifetime, so a replica replaces it
        await _until_served(scene)
        await replace_replicas(scene, "")

    return act


async def secret_deleted(scene: Scene) -> None:
    """Delete the Secret."""
    await asyncio.to_thread(scene.cluster.kubectl, "delete", "secret", CERTIFICATES, f"--namespace={NAMESPACE}")
    await asyncio.sleep(_READ_SECONDS)
    await _until_served(scene)


async def secret_truncated(scene: Scene) -> None:
    """Truncate the keys in the Secret."""
    await _store(scene, {key: value[:60] for key, value in _issued().items()})
    await asyncio.sleep(_READ_SECONDS)
    await _until_served(scene)


async def secret_replaced(scene: Scene) -> None:
    """Write an unrelated CA and its certificate to the Secret."""
    await _store(scene, issue(("other.example",), now=datetime.now(UTC)).to_data())
    await asyncio.sleep(_READ_SECONDS)
    await _until_served(scene)


async def ca_bundles_emptied(scene: Scene) -> None:
    """Remove all caBundles."""
    for resource in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        stored = scene.cluster.kubectl.get(resource, SERVICE)
        paths = [f"/webhooks/{number}/clientConfig/caBundle" for number in range(len(stored["webhooks"]))]
        patch = json.dumps([{"op": "remove", "path": path} for path in paths])
        await asyncio.to_thread(scene.cluster.kubectl, "patch", resource, SERVICE, "--type=json", f"--patch={patch}")
    await asyncio.sleep(_READ_SECONDS)


def cert_manager_renewals(times: int, *, seconds: float = _READ_SECONDS) -> Act:
    """Make cert-manager renew the CA and the certificate this many times in a row, and wait for this time."""

    async def act(scene: Scene) -> None:
        for name in ("spotgate-ca", SERVICE) * times:
            before = await asyncio.to_thread(_certificate_of, scene, name)
            await _renew(scene, name)
            async with asyncio.timeout(_ROTATION_SECONDS):
                while await asyncio.to_thread(_certificate_of, scene, name) == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
        await asyncio.sleep(seconds)

    return act


async def _renew(scene: Scene, name: str) -> None:
    """Make cert-manager renew a certificate, as `cmctl renew` does."""
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "",
        "observedGeneration": 1,
    }
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": condition}])
    arguments = ("patch", "certificate", name, f"--namespace={NAMESPACE}", "--subresource=status", "--type=json")
    await asyncio.to_thread(scene.cluster.kubectl, *arguments, f"--patch={patch}")


def _certificate_of(scene: Scene, name: str) -> str:
    secret = "spotgate-tls" if name == SERVICE else name
    data: dict[str, str] = scene.cluster.kubectl.get("secret", secret, f"--namespace={NAMESPACE}")["data"]
    return data["tls.crt"]
