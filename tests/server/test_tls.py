"""Certificates are replaced while connections use them, and a bad pair never replaces a good one."""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from certs.authority import KeyPair, self_signed
from certs.files import read_pair
from certs.verify import CertificateProblem
from tests.certs.volume import mount
from tests.server.harness import AUTHORITY, PAIR, PATIENCE, eventually
from webhook.cluster.api import ApiError
from webhook.rules.context import utc_now
from webhook.runtime.log import configure_logging
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.server.conftest import Start
    from tests.server.harness import Served

OTHER_AUTHORITY, OTHER = self_signed(["localhost"], ["127.0.0.1"], utc_now())
_, EXPIRED = self_signed(["localhost"], ["127.0.0.1"], utc_now() - timedelta(days=90))


def served_certificate(served: Served) -> str:
    """Return the certificate of a new connection in PEM."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with served.plain_socket() as plain, context.wrap_socket(plain) as client:
        der = client.getpeercert(binary_form=True)
        assert der is not None
        return ssl.DER_cert_to_PEM_cert(der)


def serves(served: Served, pair: KeyPair) -> bool:
    return served_certificate(served) == pem(pair)


def pem(pair: KeyPair) -> str:
    return pair.certificate_pem.decode()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    volume = tmp_path / "tls"
    mount(volume, "1", PAIR)
    return volume


@pytest.fixture
def certificate(volume: Path) -> ServingCertificate:
    files = partial(read_pair, volume / "tls.crt", volume / "tls.key")
    return ServingCertificate(files)


def test_new_connections_get_a_new_certificate_and_open_ones_survive(
    start: Start, certificate: ServingCertificate, volume: Path
) -> None:
    served = start(certificate=certificate)
    with closing(served.connection()) as connection:
        assert served.post(over=connection).allowed
        mount(volume, "2", OTHER)
        eventually(lambda: served_certificate(served) == pem(OTHER))
        first = connection.sock
        assert served.post(over=connection).allowed
        assert connection.sock is first
    assert served.metric("spotgate_last_reload_success", what="certificate") == 1
    assert served.log("certificate loaded")


def test_no_request_fails_during_a_certificate_reload(
    start: Start, certificate: ServingCertificate, volume: Path
) -> None:
    served = start(certificate=certificate)
    served.tls.check_hostname = False
    served.tls.verify_mode = ssl.CERT_NONE
    done = threading.Event()
    answers: list[bool] = []

    def load() -> None:
        while not done.is_set():
            with closing(served.connection()) as connection:
                answers.extend(served.post(over=connection).allowed for _ in range(3))

    client = threading.Thread(target=load)
    client.start()
    for revision in range(2, 8):
        pair = OTHER if revision % 2 == 0 else PAIR
        mount(volume, str(revision), pair)
        eventually(partial(serves, served, pair))
    eventually(lambda: len(answers) > 10)
    done.set()
    client.join()
    assert all(answers)


BAD = {
    "a key of another certificate": (KeyPair(OTHER.certificate_pem, PAIR.key_pem), "does not belong"),
    "no certificate": (KeyPair(b"", OTHER.key_pem), "no readable PEM certificate"),
    "no key": (KeyPair(OTHER.certificate_pem, b"nonsense"), "no readable PEM private key"),
    "an expired certificate": (EXPIRED, "has expired"),
}
"""Pairs with their error messages."""


@pytest.mark.parametrize("name", BAD)
def test_a_bad_pair_keeps_the_last_good_one(
    start: Start, certificate: ServingCertificate, volume: Path, name: str
) -> None:
    pair, problem = BAD[name]
    served = start(certificate=certificate)
    mount(volume, "2", pair)

    def times_logged() -> int:
        # A read during the replacement may see the certificate of one pair and the key of the other: another problem.
        return sum(problem in line["problem"] for line in served.log("certificate not loaded"))

    eventually(lambda: times_logged() > 0)
    assert served.metric("spotgate_last_reload_success", what="certificate") == 0
    assert served_certificate(served) == pem(PAIR)
    assert served.post().allowed
    assert times_logged() == 1
    assert served.ops("/healthz").status == 200
    assert served.ops("/readyz").status == 200

    mount(volume, "3", OTHER)
    eventually(lambda: served_certificate(served) == pem(OTHER))
    assert served.metric("spotgate_last_reload_success", what="certificate") == 1


def test_missing_files_keep_the_last_good_pair_and_are_logged_once(
    start: Start, certificate: ServingCertificate, volume: Path
) -> None:
    served = start(certificate=certificate)
    (volume / "..data").unlink()
    eventually(lambda: served.metric("spotgate_last_reload_success", what="certificate") == 0)
    when = served.certificate.last_reload
    eventually(lambda: served.certificate.last_reload is not when)  # retried
    assert len(served.log("certificate not loaded")) == 1
    assert served_certificate(served) == pem(PAIR)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_pair_prevents_the_start(name: str) -> None:
    with pytest.raises(CertificateProblem):
        ServingCertificate(BAD[name][0])


def test_the_certificate_expiry_is_a_metric(start: Start, certificate: ServingCertificate) -> None:
    served = start(certificate=certificate)
    assert served.metric("spotgate_certificate_expiry_timestamp_seconds") == certificate.expiry.timestamp()


# Names and caBundles ------------------------------------------------------------------------------------------------

FOR_OTHERS = self_signed(["elsewhere.example"], [], utc_now())[1]


def test_a_certificate_for_other_names_keeps_the_last_good_pair(start: Start, volume: Path) -> None:
    files = partial(read_pair, volume / "tls.crt", volume / "tls.key")
    served = start(certificate=ServingCertificate(files, names=["localhost"]))
    mount(volume, "2", FOR_OTHERS)
    eventually(lambda: served.metric("spotgate_last_reload_success", what="certificate") == 0)
    eventually(lambda: any("is not for localhost" in entry["problem"] for entry in logged(served)))
    assert served_certificate(served) == pem(PAIR)
    mount(volume, "3", OTHER)
    eventually(lambda: served_certificate(served) == pem(OTHER))


def logged(served: Served) -> list[dict[str, str]]:
    return served.log("certificate not loaded")


def test_a_certificate_for_other_names_prevents_the_start() -> None:
    with pytest.raises(CertificateProblem, match=r"the certificate is not for spotgate\.spotgate-system\.svc"):
        ServingCertificate(PAIR, names=["localhost", "spotgate.spotgate-system.svc"])


class Bundles:
    """The caBundles in force, set by a test."""

    def __init__(self, **bundles: bytes) -> None:
        self.now: dict[str, bytes] | Exception = dict(bundles)
        self.read = 0

    async def __call__(self) -> dict[str, bytes]:
        self.read += 1
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    async def next(self) -> None:
        """Wait until the current bundles are read and applied."""
        read = self.read
        async with asyncio.timeout(PATIENCE):
            while self.read < read + 2:  # noqa: ASYNC110 - it is counted elsewhere
                await asyncio.sleep(0.001)


@asynccontextmanager
async def watching(certificate: ServingCertificate, bundles: Bundles) -> AsyncIterator[io.BytesIO]:
    log = io.BytesIO()
    configure_logging(log)
    task = asyncio.create_task(certificate.watch(0.001, bundles))
    await bundles.next()
    yield log
    task.cancel()
    await asyncio.wait([task])


async def test_S5_a_certificate_is_loaded_once_every_caBundle_verifies_it(
    certificate: ServingCertificate, volume: Path
) -> None:
    bundles = Bundles(one=AUTHORITY, two=AUTHORITY + OTHER_AUTHORITY)
    async with watching(certificate, bundles) as log:
        assert (certificate.trusted, certificate.waits_for) == (True, "")
        mount(volume, "2", OTHER)
        await bundles.next()
        assert not certificate.last_reload.success
        assert b"does not chain to the CA bundle" in log.getvalue()
        assert b"of one" in log.getvalue()
        assert certificate.served == PAIR.certificate_pem
        assert certificate.trusted

        bundles.now = {"one": AUTHORITY + OTHER_AUTHORITY, "two": AUTHORITY + OTHER_AUTHORITY}
        await bundles.next()
        await bundles.next()
        assert certificate.served == OTHER.certificate_pem
        assert (certificate.trusted, certificate.last_reload.success) == (True, True)


async def test_a_replica_with_an_untrusted_certificate_is_not_ready(certificate: ServingCertificate) -> None:
    bundles = Bundles(workloads=OTHER_AUTHORITY)
    async with watching(certificate, bundles) as log:
        assert certificate.trusted is False
        assert "does not chain to the CA bundle" in certificate.waits_for
        bundles.now = {"workloads": AUTHORITY}
        await bundles.next()
        assert (certificate.trusted, certificate.waits_for) == (True, "")
        bundles.now = {"workloads": OTHER_AUTHORITY}
        await bundles.next()
        await bundles.next()
        assert certificate.trusted is False
        assert "does not chain to the CA bundle" in certificate.waits_for
        assert log.getvalue().count(b"certificate not trusted") == 2, "once per certificate"


@pytest.mark.parametrize("nothing", [{}, ApiError.refused(403, "may not")], ids=["none", "forbidden"])
async def test_without_a_readable_caBundle_none_is_required(
    certificate: ServingCertificate, volume: Path, nothing: dict[str, bytes] | ApiError
) -> None:
    bundles = Bundles(one=AUTHORITY)
    async with watching(certificate, bundles) as log:
        bundles.now = nothing
        await bundles.next()
        assert (certificate.trusted, certificate.waits_for) == (None, "")
        mount(volume, "2", OTHER)
        await bundles.next()
        await bundles.next()
        assert certificate.served == OTHER.certificate_pem
        assert log.getvalue().count(b"caBundles not read") == isinstance(nothing, ApiError)


@pytest.mark.parametrize("error", [*(ApiError("not now", status) for status in (0, 401, 429, 503)), KeyError("a bug")])
async def test_the_last_caBundles_stay_in_force_if_they_cannot_be_read(
    certificate: ServingCertificate, volume: Path, error: Exception
) -> None:
    bundles = Bundles(one=AUTHORITY)
    async with watching(certificate, bundles):
        bundles.now = error
        mount(volume, "2", OTHER)
        await bundles.next()
        await bundles.next()
        assert certificate.served == PAIR.certificate_pem
        assert certificate.trusted


def test_caBundle_trust_is_a_metric_only_if_known(start: Start) -> None:
    served = start()
    assert "spotgate_certificate_trusted" not in served.ops("/metrics").body.decode()
    served.certificate.trusted = False
    assert "spotgate_certificate_trusted 0.0" in served.ops("/metrics").body.decode()
