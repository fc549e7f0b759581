from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import (
    AUTHORITY_LIFETIME,
    BACKDATE,
    LEAF_LIFETIME,
    KeyPair,
    create_authority,
    issue_leaf,
    self_signed,
)
from certs.files import read_pair
from certs.verify import CertificateProblem, verify
from tests.certs.volume import mount

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVICE = "spotgate.spotgate-system.svc"

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
dns_names = st.lists(labels, min_size=1, max_size=4).map(".".join)
addresses = st.ip_addresses().map(str)


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


def test_an_authority_is_a_p256_ca_for_ten_years_that_signs_no_other_ca() -> None:
    authority = certificate(create_authority(NOW))
    public_key = authority.public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)
    assert public_key.curve.name == "secp256r1"
    assert authority.not_valid_after_utc == NOW + AUTHORITY_LIFETIME
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (True, False)


def test_a_leaf_is_a_p256_server_certificate_for_weeks_with_its_names() -> None:
    authority = create_authority(NOW)
    leaf = certificate(issue_leaf(authority, names=[SERVICE], ips=["127.0.0.1", "::1"], now=NOW))
    public_key = leaf.public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)
    assert public_key.curve.name == "secp256r1"
    assert leaf.not_valid_after_utc == NOW + LEAF_LIFETIME
    constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.digital_signature) == (False, True)
    assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == [SERVICE]
    assert [str(ip) for ip in alternatives.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_leaf_points_at_its_authority_by_key_identifier() -> None:
    authority = create_authority(NOW)
    leaf = certificate(issue_leaf(authority, names=[SERVICE], ips=[], now=NOW))
    pointer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    target = certificate(authority).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert pointer.key_identifier == target.digest


def test_i21_what_is_issued_is_valid_for_a_clock_an_hour_behind() -> None:
    authority = create_authority(NOW)
    leaf = issue_leaf(authority, names=[SERVICE], ips=[], now=NOW)
    assert certificate(authority).not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate(leaf).not_valid_before_utc == NOW - timedelta(hours=1)


def test_a_leaf_does_not_outlive_its_authority() -> None:
    authority = create_authority(NOW - AUTHORITY_LIFETIME + timedelta(days=3))
    leaf = issue_leaf(authority, names=[SERVICE], ips=[], now=NOW)
    assert certificate(leaf).not_valid_after_utc == NOW + timedelta(days=3)


def test_an_expired_authority_can_not_sign() -> None:
    authority = create_authority(NOW - AUTHORITY_LIFETIME)
    with pytest.raises(ValueError, match=r"^the CA expired at 2026-03-01T12:00:00\+00:00: create a new one$"):
        issue_leaf(authority, names=[SERVICE], ips=[], now=NOW)


@pytest.mark.parametrize(
    ("names", "ips", "message"),
    [
        pytest.param([], [], "at least one DNS name or IP address", id="no names"),
        pytest.param([], ["127.0.0.256"], "'127.0.0.256'", id="not an address"),
        pytest.param(["spötgate"], [], "DNSName", id="not ASCII"),
    ],
)
def test_a_leaf_for_malformed_names_is_rejected(names: list[str], ips: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        issue_leaf(create_authority(NOW), names=names, ips=ips, now=NOW)


def test_two_leaves_share_neither_key_nor_serial_number() -> None:
    authority = create_authority(NOW)
    first, second = (certificate(issue_leaf(authority, names=[SERVICE], ips=[], now=NOW)) for _ in range(2))
    assert first.public_key() != second.public_key()
    assert first.serial_number != second.serial_number


def test_a_key_is_not_printed_with_its_pair() -> None:
    assert "PRIVATE" not in repr(create_authority(NOW))


@settings(deadline=None)  # no deadline on slow machines
@given(
    names=st.lists(dns_names, max_size=4),
    address=addresses,
    now=st.datetimes(datetime(2024, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - as given
    age=st.timedeltas(-BACKDATE - LEAF_LIFETIME, 3 * LEAF_LIFETIME),
)
def test_a_leaf_verifies_for_its_names_only_while_valid(
    names: list[str], address: str, now: datetime, age: timedelta
) -> None:
    ca_pem, pair = self_signed(names, [address], now)
    leaf = certificate(pair)
    try:
        verify(pair, now=now + age, names=[*names, address], ca_pem=ca_pem)
        accepted = True
    except CertificateProblem:
        accepted = False
    assert accepted == (leaf.not_valid_before_utc <= now + age <= leaf.not_valid_after_utc)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_openssl_accepts_the_chain_strictly(tmp_path: Path) -> None:
    ca_pem, pair = self_signed([SERVICE], ["127.0.0.1"], NOW)
    (tmp_path / "ca.crt").write_bytes(ca_pem)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-attime", str(int(NOW.timestamp()))]
    for check in (["-verify_hostname", SERVICE], ["-verify_ip", "127.0.0.1"]):
        subprocess.run([*command, *check, "-CAfile", "ca.crt", "tls.crt"], cwd=tmp_path, check=True)
    wrong = [*command, "-verify_hostname", "other.svc", "-CAfile", "ca.crt", "tls.crt"]
    assert subprocess.run(wrong, cwd=tmp_path, check=False, capture_output=True).returncode != 0


# Files

_, PAIR = self_signed(["first.svc"], [], datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(("name", "what"), [("tls.crt", "certificate"), ("tls.key", "key")])
def test_a_mounted_secret_is_read_and_a_missing_file_is_named(tmp_path: Path, name: str, what: str) -> None:
    mount(tmp_path, "1", PAIR)
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    assert read_pair(*paths) == PAIR
    (tmp_path / name).unlink()
    with pytest.raises(CertificateProblem) as caught:
        read_pair(*paths)
    assert caught.value.problem == f"{tmp_path / name}: the {what} file can't be read (No such file or directory)"
    assert "the permissions of this user" in caught.value.fix


def test_a_directory_in_place_of_a_file_is_rejected(tmp_path: Path) -> None:
    mount(tmp_path, "1", PAIR)
    with pytest.raises(CertificateProblem, match="Is a directory"):
        read_pair(tmp_path, tmp_path / "tls.key")
