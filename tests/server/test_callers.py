"""With `--client-ca`, only callers with a certificate of that CA are served; log and metrics name them."""

from __future__ import annotations

import dataclasses
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.verify import CertificateProblem
from tests.server.harness import (
    LOOPBACK,
    PAIR,
    PATIENCE,
    SHORT,
    Client,
    Slow,
    bundle_of,
    eventually,
    put,
    write_policy,
)
from webhook.rules.context import utc_now
from webhook.runtime.address import Address
from webhook.server.http.request_reader import names_in
from webhook.server.serve import ServeOptions, serve
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.server.conftest import Spawn, Start
    from tests.server.harness import Served

NAME = "kube-apiserver.example"
CA, OTHER_CA = trustme.CA(), trustme.CA()


def give_certificate(client: Client, authority: trustme.CA = CA, name: str = NAME, days: int = 1) -> None:
    """Give a client a certificate that expires in this number of days."""
    authority.issue_cert(name, not_after=utc_now() + timedelta(days=days)).configure_cert(client.tls)


@pytest.fixture
def client_ca(tmp_path: Path) -> Path:
    folder = tmp_path / "ca"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(CA.cert_pem.bytes())
    return folder / "ca.crt"


@pytest.fixture
def served(start: Start, client_ca: Path) -> Served:
    return start(certificate=ServingCertificate(PAIR, client_ca=client_ca))


def is_rejected(served: Served) -> bool:
    """Return whether TLS rejects the client. With TLS 1.3, the client learns of it when it reads."""
    try:
        served.post()
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_a_caller_with_a_certificate_of_the_CA_is_judged_and_named(served: Served) -> None:
    give_certificate(served)
    assert served.post().allowed
    eventually(lambda: bool(served.log("decision")))
    assert [(line["caller"], line["peer"]) for line in served.log("decision")] == [(NAME, "127.0.0.1")]
    assert served.metric("spotgate_decisions_total", caller="authenticated") == 1
    assert served.metric("spotgate_decisions_total", caller="unauthenticated") == 0


def test_a_caller_without_a_certificate_is_rejected(served: Served) -> None:
    assert is_rejected(served)
    eventually(lambda: served.metric("spotgate_connections_cut_total", reason="client certificate") == 1)
    assert served.metric("spotgate_decisions_total") == 0
    assert served.log("client without a certificate of the CA")[0]["peer"] == "127.0.0.1"


@pytest.mark.parametrize(("authority", "days"), [(OTHER_CA, 1), (CA, -1)])
def test_an_expired_or_foreign_certificate_is_rejected(served: Served, authority: trustme.CA, days: int) -> None:
    give_certificate(served, authority, days=days)
    assert is_rejected(served)
    eventually(lambda: served.metric("spotgate_connections_cut_total", reason="client certificate") == 1)


def test_only_named_callers_are_judged(start: Start, client_ca: Path) -> None:
    certificate = ServingCertificate(PAIR, client_ca=client_ca)
    served = start(certificate=certificate, callers=frozenset({"other.example", NAME}))
    give_certificate(served)
    assert served.post().allowed
    give_certificate(served, name="curious.example")
    answer = served.post()
    assert answer.status == 403
    assert "the client certificate is for curious.example" in answer.json["error"]
    assert served.metric("spotgate_rejected_total", reason="caller") == 1
    assert served.metric("spotgate_decisions_total") == 1
    assert served.log("refused")[0]["reason"] == "caller"


def test_the_CA_file_is_reloaded_and_a_bad_one_keeps_the_last_good(served: Served, client_ca: Path) -> None:
    give_certificate(served)
    assert served.post().allowed
    put(client_ca, "no certificate")
    eventually(lambda: served.metric("spotgate_last_reload_success", what="certificate") == 0)
    assert "the client CA file contains no readable PEM" in served.log("certificate not loaded")[0]["problem"]
    assert served.post().allowed
    put(client_ca, OTHER_CA.cert_pem.bytes().decode())
    eventually(lambda: served.metric("spotgate_last_reload_success", what="certificate") == 1)
    assert is_rejected(served)
    give_certificate(served, OTHER_CA)
    assert served.post().allowed


def authority(
    name: str, *, days: int = 1, is_ca: bool = True, usages: Sequence[x509.ObjectIdentifier] = ()
) -> tuple[bytes, bytes]:
    """Return the certificate and key (PEM) of a root that expires in this number of days."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = utc_now()
    builder = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days - 2))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return pem, key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


LOCKS_OUT = {
    "CN=expired has expired (from ": authority("expired", days=-1)[0],
    "CN=early is not yet valid (from ": authority("early", days=4)[0],
    "CN=leaf is not a CA certificate": authority("leaf", is_ca=False)[0],
    "CN=server has an extended key usage without clientAuth": authority(
        "server", usages=[ExtendedKeyUsageOID.SERVER_AUTH]
    )[0],
}


@pytest.mark.parametrize("why", LOCKS_OUT)
def test_CAs_that_would_lock_out_every_caller_keep_the_last_good(served: Served, client_ca: Path, why: str) -> None:
    give_certificate(served)
    put(client_ca, LOCKS_OUT[why].decode())
    eventually(lambda: served.metric("spotgate_last_reload_success", what="certificate") == 0)
    (line,) = served.log("certificate not loaded")
    assert line["level"] == "error"
    assert f"the client CA file would lock out every client ({why}" in line["problem"]
    assert served.post().allowed


def test_CAs_that_would_lock_out_every_caller_prevent_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ca.crt").write_bytes(b"".join(LOCKS_OUT.values()))
    assert serve(ServeOptions(listen=LOOPBACK, ops=LOOPBACK, self_signed=True, client_ca=tmp_path / "ca.crt")) == 2
    error = capsys.readouterr().err
    assert all(why in error for why in list(LOCKS_OUT)[:3])


@pytest.mark.parametrize("others", [b"", b"".join(LOCKS_OUT.values())])
def test_one_valid_CA_is_enough_even_an_intermediate(start: Start, tmp_path: Path, others: bytes) -> None:
    intermediate = CA.create_child_ca()
    (tmp_path / "ca.crt").write_bytes(others + intermediate.cert_pem.bytes())
    served = start(certificate=ServingCertificate(PAIR, client_ca=tmp_path / "ca.crt"))
    give_certificate(served, intermediate)
    assert served.post().allowed


def test_a_leaf_next_to_a_CA_authenticates_no_caller(start: Start, tmp_path: Path) -> None:
    leaf, key = authority("leaf", is_ca=False)
    (tmp_path / "ca.crt").write_bytes(CA.cert_pem.bytes() + leaf)
    (tmp_path / "leaf.pem").write_bytes(leaf + key)
    served = start(certificate=ServingCertificate(PAIR, client_ca=tmp_path / "ca.crt"))
    served.tls.load_cert_chain(tmp_path / "leaf.pem")
    assert is_rejected(served)


def test_connections_of_a_replaced_CA_are_closed(start: Start, client_ca: Path) -> None:
    cluster = Slow()
    served = start(
        bundle_of(fresh_pools=True), state=cluster, certificate=ServingCertificate(PAIR, client_ca=client_ca)
    )
    give_certificate(served)
    with closing(served.connection()) as idle, closing(served.connection()) as busy, ThreadPoolExecutor(1) as pool:
        idle.connect()
        answer = pool.submit(served.post, over=busy)
        assert cluster.asked.acquire(timeout=PATIENCE)
        put(client_ca, OTHER_CA.cert_pem.bytes().decode())
        idle.sock.settimeout(PATIENCE)
        while idle.sock.recv(1024):  # first a hint to the client to close, then the end
            pass
        served.loop.call_soon_threadsafe(cluster.open.set)
        assert answer.result().allowed
        assert answer.result().headers["connection"] == "close"
    give_certificate(served, OTHER_CA)
    assert served.post().allowed


def test_a_handshake_begun_under_the_old_CA_is_rejected(served: Served, client_ca: Path) -> None:
    give_certificate(served)
    with served.plain_socket() as begun:
        eventually(lambda: len(served.replica.acceptor) == 1)
        put(client_ca, OTHER_CA.cert_pem.bytes().decode())
        eventually(lambda: bool(served.log("certificate loaded")))
        with served.tls.wrap_socket(begun, server_hostname="127.0.0.1") as connection:
            while connection.recv(1024):
                pass


def test_connections_outlive_an_equivalent_CA_file(served: Served, client_ca: Path) -> None:
    give_certificate(served)
    with closing(served.connection()) as connection:
        assert served.post(over=connection).allowed
        put(client_ca, "# the same\n" + CA.cert_pem.bytes().decode())
        eventually(lambda: bool(served.log("certificate loaded")))
        assert served.post(over=connection).allowed


def test_without_a_CA_callers_are_not_authenticated(start: Start) -> None:
    served = start()
    give_certificate(served)
    assert served.post().allowed
    eventually(lambda: bool(served.log("decision")))
    assert served.log("decision")[0]["caller"] == "unauthenticated"
    assert served.metric("spotgate_decisions_total", caller="unauthenticated") == 1


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_an_unreadable_CA_prevents_the_start(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(CertificateProblem, match="the client CA file"):
        ServingCertificate(PAIR, client_ca=tmp_path / "ca.crt")


def test_reviews_of_unauthenticated_callers_are_not_recorded(spawn: Spawn, client_ca: Path, tmp_path: Path) -> None:
    process = spawn(record=tmp_path / "recorded", client_ca=client_ca, limits=dataclasses.replace(SHORT, finish=20))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        process.post()
    give_certificate(process)
    assert process.post().allowed
    process.end()
    assert sum(len(file.read_text().splitlines()) for file in (tmp_path / "recorded").iterdir()) == 1


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("commonName", "a"),),)}, ("a",)),
        ({"subject": ((("organizationName", "o"),), (("commonName", "a"),))}, ("a",)),
        ({"subject": (), "subjectAltName": (("DNS", "b"), ("IP Address", "10.0.0.1"), ("DNS", "c"))}, ("b", "c")),
        ({"subject": ((("organizationName", "o"),),)}, ("unnamed",)),
    ],
)
def test_the_names_in_a_certificate(certificate: dict[str, object] | None, names: tuple[str, ...]) -> None:
    assert names_in(certificate) == names


def test_a_certificate_without_the_required_names_prevents_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_policy(tmp_path / "policies")
    (tmp_path / "tls.crt").write_bytes(PAIR.certificate_pem)
    (tmp_path / "tls.key").write_bytes(PAIR.key_pem)
    options = ServeOptions(
        listen=Address("127.0.0.1", 0),
        ops=Address("127.0.0.1", 0),
        policies=(tmp_path / "policies",),
        tls_cert=tmp_path / "tls.crt",
        tls_key=tmp_path / "tls.key",
        tls_name=("localhost", "spotgate.spotgate-system.svc"),
    )
    assert serve(options) == 2
    assert "the certificate is not for spotgate.spotgate-system.svc (it is for " in capsys.readouterr().err
