"""Verify a certificate and its key before spotgate serves them: an invalid pair never replaces a valid one.

These checks reject only certificates that a TLS client such as the API server rejects. They don't require extensions
that hand-made certificates often lack (key identifiers, key usage).
"""

from __future__ import annotations

import ipaddress
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from certs.authority import KeyPair

_NAMED = 3
"""The maximum number of certificates that a message lists. A system's CA bundle has hundreds."""

_SERVER_USAGES = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


class CertificateProblem(Exception):  # noqa: N818 - a problem of a certificate isn't a failed call
    """A certificate or key that can't be used, with the `problem` and its `fix`."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}: {fix}")
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True, slots=True)
class VerifiedKeyPair:
    """A pair that `verify` accepted, and when its certificate expires (UTC)."""

    pair: KeyPair
    not_valid_after: datetime


def verify(pair: KeyPair, *, now: datetime, names: Sequence[str] = (), ca_pem: bytes | None = None) -> VerifiedKeyPair:
    """Return the verified pair, or raise CertificateProblem with its first problem.

    `now` is timezone-aware. `names` are the DNS names and IP addresses that clients use.
    `ca_pem` is the bundle of the clients (a webhook's caBundle). Without it, the chain isn't checked.
    """
    leaf = _certificates(pair.certificate_pem, "the certificate file")[0]
    with _readable("the certificate is malformed", "issue another one"):
        _check_key(leaf, pair.key_pem)
        _check_dates(leaf, now)
        _check_usage(leaf)
        _check_names(leaf, names)
    if ca_pem is not None:
        verify_chain(pair.certificate_pem, ca_pem, now=now)
    return VerifiedKeyPair(pair, leaf.not_valid_after_utc)


def verify_chain(certificate_pem: bytes, ca_pem: bytes, *, now: datetime, names: Sequence[str] = ()) -> None:
    """Raise CertificateProblem if clients that trust only `ca_pem` don't trust the certificate for these names.

    `certificate_pem` is the certificate with its intermediates. `now` is timezone-aware.
    """
    leaf, *intermediates = _certificates(certificate_pem, "the certificate file")
    with _readable("the CA bundle is malformed", "replace it with the CA's certificate"):
        _check_names(leaf, names)
        # The library's default policies are for the public web. Private CAs needn't meet them, so require the minimum.
        anything = verification.ExtensionPolicy.permit_all()
        agnostic = verification.Criticality.AGNOSTIC
        # The verifier also requires a subject. Names are checked above, so any name in the certificate works.
        subject = _alternatives(leaf)[0]
        if isinstance(subject, x509.DNSName):
            subject = x509.DNSName(subject.value.replace("*", "any", 1))
        verifier = (
            verification.PolicyBuilder()
            .store(verification.Store(_certificates(ca_pem, "the CA bundle")))
            .time(now)
            .extension_policies(
                ca_policy=anything.require_present(x509.BasicConstraints, agnostic, None),
                ee_policy=anything.require_present(x509.SubjectAlternativeName, agnostic, None),
            )
            .build_server_verifier(subject)
        )
        try:
            verifier.verify(leaf, intermediates)
        except verification.VerificationError as error:
            raise CertificateProblem(
                f"the certificate does not chain to the CA bundle ({error})",
                "add the CA that signed it to the bundle, and intermediates after it to the certificate file",
            ) from error


def client_authorities(pem: bytes, *, now: datetime) -> bytes:
    """Return the CA certificates, as DER, that `server_context` uses to verify clients.

    Raise CertificateProblem if no CA can verify clients, because this would lock out every caller.
    One valid CA is enough, so that the file can contain an old and a new CA. `now` is timezone-aware.
    """
    certificates = {
        certificate.public_bytes(Encoding.DER): certificate for certificate in _certificates(pem, "the client CA file")
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _readable("the client CA file is malformed", "replace it with the CA's certificate"):
        context.load_verify_locations(cadata=b"".join(certificates))
        authorities = context.get_ca_certs(binary_form=True)  # only those that OpenSSL accepts as CAs
        unusable = [
            f"{certificate.subject.rfc4514_string()} {why}"
            for der, certificate in certificates.items()
            if (why := _why_no_client_ca(certificate, now) if der in authorities else "is not a CA certificate")
        ]
    if len(unusable) == len(certificates):
        raise CertificateProblem(
            f"the client CA file would lock out every client ({'; '.join(unusable[:_NAMED])})",
            "replace it with the valid certificate of the CA that issues the clients' certificates",
        )
    return b"".join(authorities)


def _why_no_client_ca(authority: x509.Certificate, now: datetime) -> str:
    """Return why OpenSSL can't verify clients with this CA, or an empty string if it can."""
    usages = _usages(authority)
    serves = usages is None or ExtendedKeyUsageOID.CLIENT_AUTH in usages
    return _outside_dates(authority, now) or ("" if serves else "has an extended key usage without clientAuth")


def _usages(certificate: x509.Certificate) -> x509.ExtendedKeyUsage | None:
    values = (extension.value for extension in certificate.extensions)
    return next((value for value in values if isinstance(value, x509.ExtendedKeyUsage)), None)


@contextmanager
def _readable(problem: str, fix: str) -> Iterator[None]:
    """Convert errors of the libraries for malformed certificates, which they decode lazily, to a CertificateProblem."""
    try:
        yield
    except (ssl.SSLError, ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise CertificateProblem(f"{problem} ({error})", fix) from error


def _certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateProblem(
            f"{what} contains no readable PEM certificate", "add one or more CERTIFICATE blocks"
        ) from error


def _check_key(leaf: x509.Certificate, key_pem: bytes) -> None:
    try:
        key = load_pem_private_key(key_pem, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise CertificateProblem(
            "the key file contains no readable PEM private key", "add one PRIVATE KEY block that isn't encrypted"
        ) from error
    if key.public_key() != leaf.public_key():
        raise CertificateProblem(
            "the private key does not belong to the certificate",
            "store the certificate with its own key, and any intermediates after the certificate",
        )


def _check_dates(leaf: x509.Certificate, now: datetime) -> None:
    if state := _outside_dates(leaf, now):
        raise CertificateProblem(f"the certificate {state}; it is {now.isoformat()}", "renew it, or correct the clock")


def _outside_dates(certificate: x509.Certificate, now: datetime) -> str:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    state = "is not yet valid" if now < start else "has expired" if now > end else ""
    return state and f"{state} (from {start.isoformat()} to {end.isoformat()})"


def _check_usage(leaf: x509.Certificate) -> None:
    usages = _usages(leaf)
    if usages is not None and _SERVER_USAGES.isdisjoint(usages):
        raise CertificateProblem(
            "the certificate's extended key usage doesn't include serverAuth",
            "issue it with extendedKeyUsage serverAuth",
        )


def _check_names(leaf: x509.Certificate, names: Sequence[str]) -> None:
    present = {
        f"DNS:{entry.value.lower()}" if isinstance(entry, x509.DNSName) else f"IP:{entry.value}"
        for entry in _alternatives(leaf)
    }
    missing = [name for name in names if present.isdisjoint(_spellings(name))]
    if missing:
        raise CertificateProblem(
            f"the certificate is not for {', '.join(missing)} (it is for {', '.join(sorted(present))})",
            "add the missing names to its subjectAltNames",
        )


def _alternatives(leaf: x509.Certificate) -> list[x509.DNSName | x509.IPAddress]:
    """Return the names that TLS clients check. Raise CertificateProblem if there are none."""
    values = (extension.value for extension in leaf.extensions)
    alternatives = next((value for value in values if isinstance(value, x509.SubjectAlternativeName)), ())
    names = [entry for entry in alternatives if isinstance(entry, x509.DNSName | x509.IPAddress)]
    if not names:
        raise CertificateProblem(
            "the certificate has no DNS name or IP address in its subjectAltNames (its CN doesn't count)",
            "issue it with <service>.<namespace>.svc as a subjectAltName",
        )
    return names


def _spellings(name: str) -> set[str]:
    """Return the spellings of a name in certificates: the name, or with a wildcard as its first label."""
    try:
        return {f"IP:{ipaddress.ip_address(name)}"}
    except ValueError:
        parent = name.lower().partition(".")[2]
        return {f"DNS:{name.lower()}", f"DNS:*.{parent}"}
