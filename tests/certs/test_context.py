from __future__ import annotations

import socket
import ssl
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.authority import KeyPair, self_signed
from certs.context import server_context
from certs.files import read_pair
from certs.verify import CertificateProblem, VerifiedKeyPair, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime.now(UTC)
SERVICE = "spotgate.spotgate-system.svc"
CA_PEM, PAIR = self_signed([SERVICE], ["127.0.0.1"], NOW)
ANOTHER_CA_PEM, ANOTHER_PAIR = self_signed([SERVICE], [], NOW)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection as seen by a client."""

    version: str | None
    protocol: str | None


def serve_one(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    connection.settimeout(30)
    # The client sees any failure here, and the test asserts on the client.
    with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
        tls.sendall(b"!")


def connect(server: ssl.SSLContext, client: ssl.SSLContext, name: str = SERVICE) -> Session:
    """Do a TLS handshake over loopback; return the client's session, or raise its error."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(30)
        pool.submit(serve_one, listener, server)
        with (
            socket.create_connection(listener.getsockname(), timeout=30) as connection,
            client.wrap_socket(connection, server_hostname=name) as tls,
        ):
            assert tls.recv(1) == b"!"
            return Session(tls.version(), tls.selected_alpn_protocol())


def client_context(ca_pem: bytes = CA_PEM) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca_pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def verified(pair: KeyPair) -> VerifiedKeyPair:
    return verify(pair, now=NOW)


@pytest.fixture(params=["memory", "temporary file"])
def hand_over(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run with each way to pass a file to OpenSSL; assert that no file or descriptor remains."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if request.param == "temporary file":
        monkeypatch.setattr(sys, "platform", "another")
    elif sys.platform != "linux":
        pytest.skip("files in memory are Linux'")
    before = sorted(Path("/dev/fd").iterdir())
    yield
    assert sorted(Path("/dev/fd").iterdir()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [SERVICE, "127.0.0.1"])
def test_a_strict_client_that_knows_the_ca_is_served_http_1_1(name: str) -> None:
    session = connect(server_context(verified(PAIR)), client_context(), name)
    assert session == Session("TLSv1.3", "http/1.1")


def test_a_client_that_asks_for_another_name_refuses() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(server_context(verified(PAIR)), client_context(), "spotgate.other.svc")


def test_a_client_that_knows_another_ca_refuses() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server_context(verified(PAIR)), client_context(ANOTHER_CA_PEM))


def test_a_client_that_knows_the_old_and_the_new_ca_is_served_by_leaves_of_both() -> None:
    client = client_context(CA_PEM + ANOTHER_CA_PEM)
    for pair in (PAIR, ANOTHER_PAIR):
        assert connect(server_context(verified(pair)), client).version == "TLSv1.3"


def test_intermediates_are_sent_with_the_certificate() -> None:
    root = trustme.CA()
    leaf = root.create_child_ca().issue_cert(SERVICE)
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    context = server_context(verified(KeyPair(chain, leaf.private_key_pem.bytes())))
    assert connect(context, client_context(root.cert_pem.bytes())).version == "TLSv1.3"


def test_h13_tls_1_2_is_accepted() -> None:
    client = client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert connect(server_context(verified(PAIR)), client).version == "TLSv1.2"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_h13_tls_1_1_is_rejected_by_the_server() -> None:
    client = client_context()
    client.set_ciphers("DEFAULT:@SECLEVEL=0")  # otherwise the client doesn't offer it
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError) as caught:
        connect(server_context(verified(PAIR)), client)
    assert caught.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"


@pytest.mark.usefixtures("hand_over")
def test_a_loaded_pair_leaves_no_files() -> None:
    assert connect(server_context(verified(PAIR)), client_context()).version == "TLSv1.3"


@pytest.mark.usefixtures("hand_over")
def test_a_pair_that_openssl_rejects_leaves_no_files() -> None:
    # The verified type prevents this; the cleanup doesn't rely on it.
    mismatched = replace(verified(PAIR), pair=replace(PAIR, key_pem=ANOTHER_PAIR.key_pem))
    with pytest.raises(CertificateProblem, match="KEY_VALUES_MISMATCH"):
        server_context(mismatched)


@pytest.mark.usefixtures("hand_over")
def test_a_key_is_never_readable_by_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, certificate: str, key: str) -> None:
        modes.extend(Path(path).stat().st_mode & 0o777 for path in (certificate, key))
        load(context, certificate, key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    server_context(verified(PAIR))
    assert modes == [0o600, 0o600]


def test_a_key_too_short_for_openssl_is_reported_without_a_traceback() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - weak is the point
    certificate = (
        x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1)
        .not_valid_before(NOW)
        .not_valid_after(NOW.replace(year=NOW.year + 1, day=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVICE)]), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    weak = verify(KeyPair(certificate.public_bytes(pem), key_pem), now=NOW)
    with pytest.raises(CertificateProblem, match="EE_KEY_TOO_SMALL"):
        server_context(weak)


def test_a_bad_reload_keeps_the_context_and_a_good_one_replaces_it(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(PAIR.certificate_pem)
    key.write_bytes(PAIR.key_pem)
    serving = server_context(verified(read_pair(certificate, key)))

    key.write_bytes(ANOTHER_PAIR.key_pem)
    with pytest.raises(CertificateProblem, match="does not belong"):
        verified(read_pair(certificate, key))
    assert connect(serving, client_context()).version == "TLSv1.3"

    certificate.write_bytes(ANOTHER_PAIR.certificate_pem)
    serving = server_context(verified(read_pair(certificate, key)))
    assert connect(serving, client_context(ANOTHER_CA_PEM)).version == "TLSv1.3"
