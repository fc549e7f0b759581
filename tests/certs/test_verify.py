from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import KeyPair, create_authority, issue_leaf, self_signed
from certs.verify import CertificateProblem, verify

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVICE = "spotgate.spotgate-system.svc"
CA_PEM, PAIR = self_signed([SERVICE, "*.example.com"], ["127.0.0.1", "::1"], NOW)
ANOTHER_CA_PEM, ANOTHER_PAIR = self_signed([SERVICE], [], NOW)


def handmade(*extensions: x509.ExtensionType, ca: bool | None = True) -> tuple[bytes, KeyPair]:
    """Return a CA and a leaf with only these extensions: no key identifiers or key usage."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)]) for cn in ("a CA", SERVICE))
    base = x509.CertificateBuilder().not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    authority = base.subject_name(ca_name).public_key(ca_key.public_key()).serial_number(1).issuer_name(ca_name)
    if ca is not None:
        authority = authority.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    leaf = base.subject_name(name).public_key(key.public_key()).serial_number(2).issuer_name(ca_name)
    for extension in extensions:
        leaf = leaf.add_extension(extension, critical=False)
    pem = serialization.Encoding.PEM
    return authority.sign(ca_key, hashes.SHA256()).public_bytes(pem), KeyPair(
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


FOR_SERVICE = x509.SubjectAlternativeName([x509.DNSName(SERVICE)])
FOR_CLIENTS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


def encrypted(key_pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(key_pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )


def from_trustme(leaf: trustme.LeafCert) -> KeyPair:
    return KeyPair(b"".join(blob.bytes() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes())


@pytest.mark.parametrize(
    ("pair", "now", "problem", "fix"),
    [
        pytest.param(
            replace(PAIR, key_pem=ANOTHER_PAIR.key_pem),
            NOW,
            "the private key does not belong to the certificate",
            "store the certificate with its own key",
            id="a key of another certificate",
        ),
        pytest.param(
            PAIR,
            NOW + timedelta(days=31),
            "the certificate has expired (from 2026-03-01T11:00:00+00:00 to 2026-03-31T12:00:00+00:00);"
            " it is 2026-04-01T12:00:00+00:00",
            "renew it",
            id="expired",
        ),
        pytest.param(
            PAIR, NOW - timedelta(hours=2), "the certificate is not yet valid", "correct the clock", id="not yet valid"
        ),
        pytest.param(
            replace(PAIR, certificate_pem=b""),
            NOW,
            "the certificate file contains no readable PEM certificate",
            "CERTIFICATE blocks",
            id="an empty certificate file",
        ),
        pytest.param(
            replace(PAIR, certificate_pem=PAIR.certificate_pem[:200]),
            NOW,
            "the certificate file contains no readable PEM certificate",
            "CERTIFICATE blocks",
            id="a certificate cut short",
        ),
        pytest.param(
            replace(PAIR, key_pem=b"\0\xff"),
            NOW,
            "the key file contains no readable PEM private key",
            "PRIVATE KEY block",
            id="a key file with other content",
        ),
        pytest.param(
            replace(PAIR, key_pem=encrypted(PAIR.key_pem)),
            NOW,
            "the key file contains no readable PEM private key",
            "isn't encrypted",
            id="an encrypted key",
        ),
        pytest.param(handmade()[1], NOW, "the certificate has no DNS name or IP address", "<service>", id="only a CN"),
        pytest.param(
            handmade(x509.SubjectAlternativeName([x509.RFC822Name("a@b.c")]))[1],
            NOW,
            "the certificate has no DNS name or IP address",
            "<service>.<namespace>.svc",
            id="only a mail address",
        ),
        pytest.param(
            handmade(FOR_SERVICE, FOR_CLIENTS)[1],
            NOW,
            "the certificate's extended key usage doesn't include serverAuth",
            "serverAuth",
            id="a client certificate",
        ),
        pytest.param(
            handmade(x509.UnrecognizedExtension(FOR_SERVICE.oid, b"\x30\x7f"))[1],
            NOW,
            "the certificate is malformed",
            "issue another one",
            id="an extension that does not decode",
        ),
    ],
)
def test_an_unservable_pair_is_rejected_with_a_fix(pair: KeyPair, now: datetime, problem: str, fix: str) -> None:
    with pytest.raises(CertificateProblem) as caught:
        verify(pair, now=now)
    assert caught.value.problem.startswith(problem)
    assert fix in caught.value.fix
    assert str(caught.value) == f"{caught.value.problem}: {caught.value.fix}"


@pytest.mark.parametrize("name", [SERVICE, SERVICE.upper(), "a.example.com", "127.0.0.1", "::1", "0:0::1"])
def test_a_name_in_the_certificate_is_covered(name: str) -> None:
    assert verify(PAIR, now=NOW, names=[name]).pair == PAIR


@pytest.mark.parametrize(
    "name",
    ["spotgate.other.svc", "x" + SERVICE, SERVICE + ".cluster.local", "example.com", "a.b.example.com", "127.0.0.2"],
)
def test_a_name_missing_from_the_certificate_is_rejected(name: str) -> None:
    with pytest.raises(CertificateProblem) as caught:
        verify(PAIR, now=NOW, names=[SERVICE, name])
    assert caught.value.problem == (
        f"the certificate is not for {name} "
        "(it is for DNS:*.example.com, DNS:spotgate.spotgate-system.svc, IP:127.0.0.1, IP:::1)"
    )


def test_an_address_written_as_a_dns_name_does_not_cover_the_address() -> None:
    _, pair = handmade(x509.SubjectAlternativeName([x509.DNSName("127.0.0.1")]))
    with pytest.raises(CertificateProblem, match=r"not for 127\.0\.0\.1 \(it is for DNS:127\.0\.0\.1\)"):
        verify(pair, now=NOW, names=["127.0.0.1"])


def test_a_verified_pair_has_its_expiry_date() -> None:
    assert verify(PAIR, now=NOW, ca_pem=CA_PEM).not_valid_after == NOW + timedelta(days=30)


def test_a_leaf_of_a_ca_outside_the_bundle_is_rejected() -> None:
    with pytest.raises(CertificateProblem) as caught:
        verify(PAIR, now=NOW, ca_pem=ANOTHER_CA_PEM)
    assert caught.value.problem.startswith("the certificate does not chain to the CA bundle")
    assert "add the CA that signed it to the bundle" in caught.value.fix


def test_a_bundle_without_a_certificate_is_rejected() -> None:
    with pytest.raises(CertificateProblem, match="the CA bundle contains no readable PEM certificate"):
        verify(PAIR, now=NOW, ca_pem=b"caBundle")


@pytest.mark.parametrize("pair", [PAIR, ANOTHER_PAIR], ids=["of the old CA", "of the new CA"])
def test_during_a_ca_rotation_a_bundle_of_both_verifies_both_leaves(pair: KeyPair) -> None:
    assert verify(pair, now=NOW, names=[SERVICE], ca_pem=CA_PEM + ANOTHER_CA_PEM).pair == pair


def test_a_leaf_does_not_verify_once_its_ca_has_expired() -> None:
    authority = create_authority(NOW - timedelta(days=3640))
    pair = issue_leaf(authority, names=[SERVICE], ips=[], now=NOW)
    verify(pair, now=NOW + timedelta(days=10), ca_pem=authority.certificate_pem)
    with pytest.raises(CertificateProblem, match="has expired"):
        verify(pair, now=NOW + timedelta(days=11), ca_pem=authority.certificate_pem)


def test_intermediates_after_the_certificate_complete_the_chain() -> None:
    root = trustme.CA()
    leaf = from_trustme(root.create_child_ca().issue_cert(SERVICE))
    ca_pem = root.cert_pem.bytes()
    assert verify(leaf, now=datetime.now(UTC), names=[SERVICE], ca_pem=ca_pem).pair == leaf
    end = b"-----END CERTIFICATE-----\n"
    alone = replace(leaf, certificate_pem=leaf.certificate_pem.split(end)[0] + end)
    with pytest.raises(CertificateProblem, match="does not chain"):
        verify(alone, now=datetime.now(UTC), names=[SERVICE], ca_pem=ca_pem)


def test_a_handmade_ca_and_leaf_without_key_identifiers_or_usages_verify() -> None:
    ca_pem, pair = handmade(FOR_SERVICE)
    assert verify(pair, now=NOW, names=[SERVICE], ca_pem=ca_pem).pair == pair


@pytest.mark.parametrize("ca", [False, None])
def test_an_issuer_that_is_not_a_ca_is_rejected(ca: bool | None) -> None:  # noqa: FBT001 - a table's column
    ca_pem, pair = handmade(FOR_SERVICE, ca=ca)
    with pytest.raises(CertificateProblem, match="does not chain"):
        verify(pair, now=NOW, names=[SERVICE], ca_pem=ca_pem)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x509.DNSName("*.example.com"), id="a wildcard"),
        pytest.param(x509.IPAddress(IPv4Address("10.0.0.1")), id="an address"),
    ],
)
def test_a_chain_verifies_for_any_kind_of_name(name: x509.GeneralName) -> None:
    ca_pem, pair = handmade(x509.SubjectAlternativeName([name]))
    assert verify(pair, now=NOW, ca_pem=ca_pem).pair == pair
