"""Issue certificates: a CA that is valid for years, and leaves that are valid for weeks (all P-256)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

# Clients need a new CA in their bundles before a server uses it, so CAs seldom change.
AUTHORITY_LIFETIME = timedelta(days=3650)
# Short enough to limit the damage of a leaked key, long enough to outlast a holiday with broken renewal.
LEAF_LIFETIME = timedelta(days=30)
# A client's clock may be behind ours. It would reject a new certificate as not yet valid.
BACKDATE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, PEM. Intermediates may follow the certificate."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


def create_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> KeyPair:
    """Return a new self-signed CA, which can sign leaves but no other CA."""
    return _issue("spotgate CA", now=now, not_after=now + lifetime)


def issue_leaf(authority: KeyPair, *, names: Sequence[str], ips: Sequence[str], now: datetime) -> KeyPair:
    """Return a server certificate for DNS `names` and `ips`, signed by `authority`. It never outlives the authority.

    Raises ValueError if there is neither a name nor an address, if one of them is malformed,
    if the authority has expired, or if `create_authority` didn't create it.
    """
    if not names and not ips:
        raise ValueError("a server certificate needs at least one DNS name or IP address")
    ca = x509.load_pem_x509_certificate(authority.certificate_pem)
    if ca.not_valid_after_utc <= now:
        raise ValueError(f"the CA expired at {ca.not_valid_after_utc.isoformat()}: create a new one")
    ca_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA's key isn't an elliptic curve key: create a new CA")  # noqa: TRY004 - a file's value
    alternatives = [
        *(x509.DNSName(name) for name in names),
        *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips),
    ]
    return _issue(
        "spotgate webhook",
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(alternatives),
        issuer=(ca.subject, ca_key),
        now=now,
        not_after=min(now + LEAF_LIFETIME, ca.not_valid_after_utc),
    )


def self_signed(names: Sequence[str], ips: Sequence[str], now: datetime) -> tuple[bytes, KeyPair]:
    """Return the certificate of a new CA, and a leaf that it signed, for tests and trials. Discard the CA's key.

    Raises ValueError like `issue_leaf`.
    """
    authority = create_authority(now)
    return authority.certificate_pem, issue_leaf(authority, names=names, ips=ips, now=now)


def _issue(
    common_name: str,
    *extensions: x509.ExtensionType,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    now: datetime,
    not_after: datetime,
) -> KeyPair:
    """Create a key and its certificate. Without an issuer, the certificate is a self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer_name, issuer_key = issuer or (name, key)
    ca = issuer is None
    key_usage = x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder(issuer_name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(key_usage, critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(issuer_identifier, critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    pem = serialization.Encoding.PEM
    return KeyPair(
        certificate_pem=builder.sign(issuer_key, hashes.SHA256()).public_bytes(pem),
        key_pem=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
