"""Renew a CA and its leaf, and move the clients' trust from one CA to the next without a gap.

All replicas share both pairs in a Secret. A rotation keeps no other state: each step follows from the Secret, the
caBundles, and the leaves that the replicas serve. So any replica can take the next step, even if the replica that
started the rotation is gone:

1. store a new CA and its leaf;
2. add the new CA to every caBundle (`trusting`);
3. serve the new leaf, which the caBundles verify, in every replica;
4. remove the old CA from the caBundles.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import KeyPair, create_authority, issue_leaf
from certs.verify import CertificateProblem, verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""The keys of a Secret for both pairs; a Secret of type kubernetes.io/tls has the last two."""

_CA_AGE: Final = 1 / 2
"""The share of its lifetime after which a CA is replaced. The rest is for clients that get the new CA late."""

_LEAF_AGE: Final = 2 / 3
"""The share of its lifetime after which a leaf is replaced, as for cert-manager."""

_LIFETIME: Final = timedelta(days=365)
"""The lifetime of a CA that rotates automatically. Two rotations a year prove that rotation works."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A CA and the leaf that it signed."""

    authority: KeyPair
    leaf: KeyPair

    def to_data(self) -> dict[str, bytes]:
        """Return both pairs as the data of a Secret."""
        authority, leaf = self.authority, self.leaf
        pems = (authority.certificate_pem, authority.key_pem, leaf.certificate_pem, leaf.key_pem)
        return dict(zip(_KEYS, pems, strict=True))

    @classmethod
    def from_data(cls, data: Mapping[str, bytes], *, now: datetime) -> Issued:
        """Read both pairs from the data of a Secret. `now` is timezone-aware.

        Raises:
            CertificateProblem: a part is missing or malformed, a key doesn't belong to its certificate, or the CA is
                invalid.
        """
        if missing := [key for key in _KEYS if not data.get(key)]:
            raise CertificateProblem(f"the Secret lacks {', '.join(missing)}", "delete it: spotgate creates it again")
        authority = KeyPair(data["ca.crt"], data["ca.key"])
        try:
            # Signing and verifying a certificate checks the CA's key, dates, and extensions.
            probe = issue_leaf(authority, names=("probe",), ips=(), now=now)
            verify(probe, now=now, ca_pem=authority.certificate_pem)
        except (ValueError, TypeError) as error:
            raise CertificateProblem(
                f"the Secret's CA can't sign: {error}", "delete the Secret: spotgate creates it again"
            ) from None
        return cls(authority, KeyPair(data["tls.crt"], data["tls.key"]))


def issue(names: Sequence[str], *, now: datetime) -> Issued:
    """Return a new CA and a leaf for these DNS names. `now` is timezone-aware."""
    authority = create_authority(now, _LIFETIME)
    return Issued(authority, issue_leaf(authority, names=names, ips=(), now=now))


def renew(issued: Issued, names: Sequence[str], *, now: datetime) -> Issued:
    """Return the pairs. Replace a CA past half of its lifetime, or a leaf that is past two thirds or unusable.

    A leaf is unusable if it isn't for these names, isn't signed by the CA, or can't be read. `now` is timezone-aware.
    """
    if _age(issued.authority, now) >= _CA_AGE:
        return issue(names, now=now)
    try:
        verify(issued.leaf, now=now, names=names, ca_pem=issued.authority.certificate_pem)
        if _age(issued.leaf, now) < _LEAF_AGE:
            return issued
    except CertificateProblem:
        pass
    return Issued(issued.authority, issue_leaf(issued.authority, names=names, ips=(), now=now))


def _age(pair: KeyPair, now: datetime) -> float:
    """Return the elapsed share of a certificate's lifetime."""
    certificate = _certificate(pair)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return (now - start) / (end - start)


def trusts_only(bundle: bytes, authority: KeyPair) -> bool:
    """Return whether a caBundle contains the CA and no other certificate."""
    return _certificates(bundle) == [_certificate(authority)]


def trusting(bundle: bytes, authorities: Sequence[KeyPair], *, now: datetime) -> bytes:
    """Return the caBundle if it contains these CAs; else add them, and remove expired or unreadable certificates."""
    trusted = _certificates(bundle)
    if missing := {_certificate(authority) for authority in authorities} - set(trusted):
        kept = [certificate for certificate in trusted if certificate.not_valid_after_utc > now]
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in [*kept, *missing])
    return bundle


def end_of_trust(bundle: bytes) -> datetime | None:
    """Return when the last certificate of a caBundle expires, or None if no certificate in it can be read."""
    return max((certificate.not_valid_after_utc for certificate in _certificates(bundle)), default=None)


def signer_of(leaf_pem: bytes) -> str:
    """Return the hexadecimal key identifier of a leaf's CA, or an empty string if the leaf doesn't contain it."""
    extensions = x509.load_pem_x509_certificate(leaf_pem).extensions
    try:
        identifier = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return ""
    return (identifier or b"").hex()


def identifier_of(authority: KeyPair) -> str:
    """Return the hexadecimal key identifier of a CA, which `signer_of` returns for its leaves."""
    return x509.SubjectKeyIdentifier.from_public_key(_certificate(authority).public_key()).digest.hex()


def _certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    """Return the certificates of a caBundle, or none if it can't be read: the API server can't use it either."""
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
