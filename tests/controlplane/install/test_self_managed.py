"""Self-managed certificates on a real API server, with the permissions of the shipped component.

Every test continuously verifies the served certificates of the replicas against the current caBundles.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from bench.chaos import service
from certs.authority import self_signed
from certs.rotation import Issued, identifier_of, issue
from certs.verify import CertificateProblem, verify_chain
from tests.controlplane.harness.clock import faketime
from tests.controlplane.harness.live import PATIENCE, admin
from webhook.cluster.api import Api
from webhook.cluster.installation import ca_bundles, read_ca_bundles, read_secret, write_ca_bundles, write_secret
from webhook.commands import main
from webhook.runtime.limits import Limits
from webhook.runtime.log import configure_logging
from webhook.server.tls.self_managed import SelfManaged
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from tests.controlplane.harness.cluster import Cluster

MANIFESTS = Path(__file__).parents[3] / "manifests"
SECRET = NAMESPACE, SECRET_NAME = "spotgate-system", "spotgate-certificates"
CONFIGURATIONS = f"--filename={MANIFESTS / 'webhooks' / 'webhooks.yaml'}"
NAMES = ("spotgate.spotgate-system.svc",)
POLL, SETTLE, RETENTION = 0.1, 0.2, 6.0
SECONDS = PATIENCE
"""The time limit of a request: the machine may be busy."""


@pytest.fixture(scope="module")
def account(bare_cluster: Cluster) -> Path:
    """Return the kubeconfig of spotgate's ServiceAccount, with the permissions of the base and the component."""
    documents = [MANIFESTS / "base" / "rbac.yaml", MANIFESTS / "components" / "self-managed" / "rbac.yaml"]
    for document in documents:
        bare_cluster.kubectl("apply", "--namespace=spotgate-system", f"--filename={document}")
    return bare_cluster.as_service_account("spotgate-system", "spotgate").kubeconfig


@pytest.fixture(scope="module")
def configurations(bare_cluster: Cluster) -> Iterator[None]:
    """Apply both shipped configurations, without caBundles, and delete them after all tests."""
    bare_cluster.kubectl("apply", CONFIGURATIONS)
    yield
    bare_cluster.kubectl("delete", CONFIGURATIONS)


class Killed(Exception):  # noqa: N818 - an event, not an error
    """The end of a replica's process."""


class Mortal:
    """An API connection that kills its replica after a number of writes."""

    def __init__(self, api: Api, writes: int) -> None:
        self._api = api
        self._writes = writes
        self.get, self.find = api.get, api.find

    async def write(self, *arguments: Any) -> None:
        if not self._writes:
            raise Killed
        self._writes -= 1
        await self._api.write(*arguments)


class Replica:
    def __init__(self, name: str, api: Api) -> None:
        self.name = name
        pair = self_signed(NAMES, [], datetime.now(UTC))[1]
        self.certificate = ServingCertificate(pair, names=NAMES)
        limits = Limits(certificate_settle=SETTLE, ca_retention=RETENTION)
        self.managed = SelfManaged(api, SECRET, NAMES, certificate=self.certificate, replica=name, limits=limits)
        self.task = asyncio.create_task(self.certificate.watch(POLL, self.managed.look))

    @property
    def ready(self) -> bool:
        return not self.managed.waits_for and not self.certificate.waits_for and not self.task.done()

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


class Installation:
    """Replicas, and an administrator who checks that the caBundles trust their certificates."""

    def __init__(self, administrator: Api, account: Path) -> None:
        self.api = administrator
        self.replicas: list[Replica] = []
        self.untrusted: list[str] = []
        self.log = io.BytesIO()
        self._account = account
        self._connections: list[Api] = []

    async def start(self, name: str, *, writes: int | None = None) -> Replica:
        api = await Api.connect(self._account)
        self._connections.append(api)
        replica = Replica(name, api if writes is None else Mortal(api, writes))  # type: ignore[arg-type]
        self.replicas.append(replica)
        return replica

    async def watch(self) -> None:
        while True:
            before = [(replica, replica.certificate.served) for replica in self.replicas if replica.ready]
            bundles = await ca_bundles(self.api, SECONDS)
            for replica, served in before:
                if replica.certificate.served != served:
                    continue
                for webhook, bundle in bundles.items():
                    try:
                        verify_chain(served, bundle, now=datetime.now(UTC))
                    except CertificateProblem as problem:
                        self.untrusted.append(f"{webhook}: {problem}")
            await asyncio.sleep(POLL)

    async def issued(self) -> Issued:
        return Issued.from_data((await read_secret(self.api, *SECRET, SECONDS)).data, now=datetime.now(UTC))

    async def at_rest(self) -> bool:
        """Return whether all replicas serve the Secret's leaf and report it, and the caBundles trust its CA."""
        data = (await read_secret(self.api, *SECRET, SECONDS)).data
        try:
            issued = Issued.from_data(data, now=datetime.now(UTC))
        except CertificateProblem:
            return False
        bundles = [bundle for conf in await read_ca_bundles(self.api, SECONDS) for bundle in conf.by_webhook.values()]
        running = [replica for replica in self.replicas if not replica.task.done()]
        return all(ca(issued) in bundle for bundle in bundles) and all(
            replica.ready
            and replica.certificate.served == issued.leaf.certificate_pem
            and data.get(f"serving.{replica.name}", b"").startswith(identifier_of(issued.authority).encode())
            for replica in running
        )

    async def alone(self) -> None:
        """Wait until the caBundles trust a single CA."""
        async with asyncio.timeout(PATIENCE):
            while {ca(await self.issued())} != {*(await ca_bundles(self.api, SECONDS)).values()}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def settled(self, condition: Callable[[Issued], bool] = lambda _: True) -> Issued:
        async with asyncio.timeout(PATIENCE):
            while not (await self.at_rest() and condition(await self.issued())):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.05)
        return await self.issued()

    async def store(self, data: Mapping[str, bytes | None]) -> None:
        await write_secret(self.api, *SECRET, data, SECONDS)

    async def empty_ca_bundles(self) -> None:
        for conf in await read_ca_bundles(self.api, SECONDS):
            await write_ca_bundles(self.api, replace(conf, by_webhook=dict.fromkeys(conf.by_webhook, b"")), SECONDS)

    async def delete_secret(self) -> None:
        await self.api.write("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET_NAME}", {}, SECONDS)

    async def close(self) -> None:
        """Stop everything, and delete the caBundles and the Secret before the next test."""
        for replica in self.replicas:
            await replica.kill()
        for api in self._connections:
            await api.close()
        await self.empty_ca_bundles()
        await self.delete_secret()


@asynccontextmanager
async def installed(cluster: Cluster, account: Path, replicas: int = 2) -> AsyncIterator[Installation]:
    administrator = await Api.connect(admin(cluster))
    installation = Installation(administrator, account)
    configure_logging(installation.log)
    watching = asyncio.create_task(installation.watch())
    try:
        for number in range(replicas):
            await installation.start(f"replica-{number}")
        if replicas:
            await installation.settled()
        yield installation
        assert not watching.done()
        assert installation.untrusted == []
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await installation.close()
        await administrator.close()
        await asyncio.sleep(0.1)  # the connections of cancelled requests close


def ca(issued: Issued) -> bytes:
    return issued.authority.certificate_pem


def certs(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    """Run `spotgate certs` in this process. Return its exit code, stdout, and stderr."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = main(["certs", *arguments, f"--kubeconfig={admin(cluster)}"])
    return code, output.getvalue(), errors.getvalue()


# Without configurations: before the first test that applies them.


def test_the_command_reports_what_an_installation_lacks(bare_cluster: Cluster) -> None:
    code, shown, _ = certs(bare_cluster, "check", "-o", "json")
    assert code == 1
    assert [item["problem"] for item in json.loads(shown)["items"]] == ["it does not exist", "none is named spotgate"]
    code, _, errors = certs(bare_cluster, "rotate")
    assert code == 2
    assert "nothing to rotate" in errors


async def test_a_replica_is_ready_without_configurations_and_fills_them_once_they_exist(
    bare_cluster: Cluster, account: Path
) -> None:
    async with installed(bare_cluster, account, replicas=1) as installation:
        assert await ca_bundles(installation.api, SECONDS) == {}
        await asyncio.to_thread(bare_cluster.kubectl, "apply", CONFIGURATIONS)
        async with asyncio.timeout(PATIENCE):
            while len(await ca_bundles(installation.api, SECONDS)) < 4:  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("configurations")
async def test_replicas_that_start_together_serve_one_leaf_that_the_ca_bundles_trust(
    bare_cluster: Cluster, account: Path
) -> None:
    async with installed(bare_cluster, account, replicas=3) as installation:
        bundles = await ca_bundles(installation.api, SECONDS)
        issued = await installation.issued()
        logged = [json.loads(line) for line in installation.log.getvalue().splitlines()]
        assert "certificates stored" in {line["event"] for line in logged}
        assert {line["level"] for line in logged} == {"info"}
        assert len(bundles) >= 4
        assert {*bundles.values()} == {ca(issued)}
        data = (await read_secret(installation.api, *SECRET, SECONDS)).data
        assert {key for key in data if key.startswith("serving.")} == {f"serving.replica-{n}" for n in range(3)}


@pytest.mark.usefixtures("configurations")
async def test_a_ca_past_half_of_its_lifetime_is_replaced_while_replicas_serve(
    bare_cluster: Cluster, account: Path
) -> None:
    async with installed(bare_cluster, account) as installation:
        for age in (200, 364):
            old = issue(NAMES, now=datetime.now(UTC) - timedelta(days=age))
            await installation.store(old.to_data())
            fresh = await installation.settled(lambda issued, old=old: ca(issued) != ca(old))  # type: ignore[misc]
            assert fresh.authority != old.authority
        await installation.alone()


@pytest.mark.usefixtures("configurations")
async def test_five_manual_rotations_in_a_row_succeed(bare_cluster: Cluster, account: Path) -> None:
    async with installed(bare_cluster, account) as installation:
        for _ in range(4):
            await installation.store(issue(NAMES, now=datetime.now(UTC)).to_data())
            await asyncio.sleep(SETTLE)  # the previous rotation may be unfinished
        last = issue(NAMES, now=datetime.now(UTC))
        await installation.store(last.to_data())
        assert await installation.settled(lambda issued: ca(issued) == ca(last)) == last


@pytest.mark.usefixtures("configurations")
@pytest.mark.parametrize("writes", [0, 1, 2, 4])
async def test_another_replica_continues_after_one_was_killed(
    bare_cluster: Cluster, account: Path, writes: int
) -> None:
    old = issue(NAMES, now=datetime.now(UTC) - timedelta(days=200))
    async with installed(bare_cluster, account, replicas=0) as installation:
        await write_secret(installation.api, *SECRET, old.to_data(), SECONDS, "")
        first = await installation.start("first", writes=writes)
        await asyncio.wait([first.task], timeout=1)  # it may finish with these writes
        await first.kill()
        await installation.start("second")
        await installation.settled(lambda issued: ca(issued) != ca(old))


@pytest.mark.skipif(faketime() is None, reason="libfaketime is not installed")
@pytest.mark.usefixtures("configurations")
@pytest.mark.parametrize("clock", ["+1h", "-1h"])
async def test_a_clock_that_is_an_hour_off_is_tolerated(
    bare_cluster: Cluster, account: Path, tmp_path: Path, clock: str
) -> None:
    """Have a process with a fast clock issue what others serve, and one with a slow clock serve what they issue."""
    policies = f"--policies={MANIFESTS.parent / 'policies'}"
    flags = [f"--tls-secret={'/'.join(SECRET)}", f"--tls-name={NAMES[0]}", policies, f"--kubeconfig={account}"]
    process = service.Replica(0, tmp_path, flags, clock, hasty=True)
    async with installed(bare_cluster, account, replicas=0 if clock == "+1h" else 1) as installation:
        try:
            await process.start()
            if clock == "+1h":
                await installation.start("right")
            issued = await installation.settled()
            trusting = ssl.create_default_context(cadata=ca(issued).decode())
            _, writer = await asyncio.open_connection("127.0.0.1", process.port, ssl=trusting, server_hostname=NAMES[0])
            writer.transport.abort()
        finally:
            process.process.kill()


BROKEN: dict[str, dict[str, bytes | None]] = {
    "emptied": dict.fromkeys(issue(NAMES, now=datetime.now(UTC)).to_data()),
    "truncated": {"tls.key": b"-----BEGIN PRIVATE KEY-----\nhalf"},
    "no text": {"ca.crt": b"\xff\xfe"},
    "a stranger's": {**issue(("other.example",), now=datetime.now(UTC)).to_data()},
    "expired": {**issue(NAMES, now=datetime.now(UTC) - timedelta(days=400)).to_data()},
}


@pytest.mark.usefixtures("configurations")
async def test_a_broken_secret_is_repaired_every_time(bare_cluster: Cluster, account: Path) -> None:
    async with installed(bare_cluster, account) as installation:
        for data in BROKEN.values():
            await installation.store(data)
            await installation.settled()
        await installation.delete_secret()
        await installation.settled()


@pytest.mark.usefixtures("configurations")
async def test_emptied_ca_bundles_are_filled_again(bare_cluster: Cluster, account: Path) -> None:
    async with installed(bare_cluster, account) as installation:
        before = await installation.issued()
        await installation.empty_ca_bundles()
        assert await installation.settled() == before
        installation.untrusted.clear()  # no caBundle trusts a replica until one of them has looked


@pytest.mark.usefixtures("configurations")
async def test_applying_the_configurations_again_keeps_the_ca_bundles(bare_cluster: Cluster, account: Path) -> None:
    async with installed(bare_cluster, account) as installation:
        before = await ca_bundles(installation.api, SECONDS)
        for how in ([], ["--server-side", "--force-conflicts"]):
            await asyncio.to_thread(bare_cluster.kubectl, "apply", *how, CONFIGURATIONS)
            assert await ca_bundles(installation.api, SECONDS) == before


@pytest.mark.usefixtures("configurations")
async def test_a_ca_from_another_source_is_removed_after_the_retention(bare_cluster: Cluster, account: Path) -> None:
    stranger = issue(NAMES, now=datetime.now(UTC))
    for resource in ("mutating", "validating"):
        stored = json.loads(bare_cluster.kubectl("get", f"{resource}webhookconfiguration", "spotgate", "--output=json"))
        for webhook in stored["webhooks"]:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(ca(stranger)).decode()
        bare_cluster.kubectl("replace", "--filename=-", documents=json.dumps(stored))
    async with installed(bare_cluster, account) as installation:
        installation.untrusted.clear()  # the stranger's CA trusts no replica until one of them has looked
        await installation.alone()


@pytest.mark.usefixtures("configurations")
async def test_the_command_shows_checks_and_rotates(bare_cluster: Cluster, account: Path) -> None:
    async with installed(bare_cluster, account) as installation:
        code, shown, errors = await asyncio.to_thread(certs, bare_cluster, "show")
        assert (code, errors) == (0, "")
        for part in ("CA ", "for spotgate.spotgate-system.svc", "replica replica-0", "caBundle of mutate"):
            assert part in shown
        assert "PRIVATE" not in shown
        code, checked, _ = await asyncio.to_thread(certs, bare_cluster, "check", "--within=31")
        assert code == 1
        assert "it expires in 29 days" in checked
        assert (await asyncio.to_thread(certs, bare_cluster, "check"))[1] == "the served certificates are trusted\n"
        before = await installation.issued()
        code, rotated, errors = await asyncio.to_thread(certs, bare_cluster, "rotate")
        assert (code, errors) == (0, "")
        assert "2 replicas serve it" in rotated
        assert (await installation.settled()).authority != before.authority
