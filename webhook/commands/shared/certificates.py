"""Check the certificates of an installation: in its Secret and its webhook configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509

from certs.authority import KeyPair
from certs.rotation import Issued, end_of_trust, identifier_of
from certs.verify import CertificateProblem, verify, verify_chain
from webhook.base.terminal import counted
from webhook.cluster.installation import SERVING, CaBundles, Secret, read_ca_bundles, read_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from webhook.cluster.api import Api

READ_SECONDS: Final = 10.0
"""The timeout of each response of the API server, in seconds."""

_NO_CA: Final = (
    "let replicas or cert-manager put the CA there (their logs say why not), or do it yourself: docs/certificates.md"
)


@dataclass(frozen=True, slots=True)
class Item:
    """A certificate or a caBundle, with its problem, if any, and the fix.

    Attributes:
        expires: when the certificate, or the last certificate of the caBundle, expires, in UTC; None if unreadable.
    """

    what: str
    expires: datetime | None = None
    detail: str = ""
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of an installation.

    Attributes:
        secret: the Secret with the certificate that replicas serve; ``names`` are its DNS names.
        self_managed: whether spotgate signs and renews the certificates.
        replicas: for each replica, whether it serves a certificate of the Secret's CA. Only replicas that manage
            certificates report this.
    """

    secret: Secret
    bundles: Sequence[CaBundles]
    self_managed: bool
    names: tuple[str, ...]
    replicas: Mapping[str, bool]


async def read_certificates(api: Api, namespace: str, name: str, *, now: datetime) -> Certificates:
    """Read the certificates. Raise ApiError if the API server refuses."""
    secret = await read_secret(api, namespace, name, READ_SECONDS)
    bundles = await read_ca_bundles(api, READ_SECONDS)
    try:
        signer = identifier_of(Issued.from_data(secret.data, now=now).authority)
    except CertificateProblem:
        signer = ""
    replicas = {
        key.removeprefix(SERVING): value.decode(errors="replace").partition(" ")[0] == signer
        for key, value in sorted(secret.data.items())
        if key.startswith(SERVING)
    }
    return Certificates(secret, bundles, "ca.key" in secret.data, _names(secret.data.get("tls.crt", b"")), replicas)


def _names(leaf: bytes) -> tuple[str, ...]:
    try:
        extensions = x509.load_pem_x509_certificate(leaf).extensions
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(alternatives.get_values_for_type(x509.DNSName))


def judge(certificates: Certificates, *, now: datetime) -> Iterator[Item]:
    """Yield each certificate, replica, and caBundle, with its problem. `now` is timezone-aware."""
    data = certificates.secret.data
    if not certificates.secret.resource_version:
        fix = "replicas with --tls-secret create it: see their log; for another Secret, use `spotgate certs --secret`"
        yield Item("Secret", problem="it does not exist", fix=fix)
    elif "tls.crt" not in data:
        yield Item("Secret", problem="it has no tls.crt", fix="for another Secret, use `spotgate certs --secret`")
    if certificates.self_managed:
        try:
            Issued.from_data(data, now=now)
            yield Item("CA", end_of_trust(data["ca.crt"]))
        except CertificateProblem as invalid:
            yield Item("CA", problem=invalid.problem, fix=invalid.fix)
    leaf = data.get("tls.crt", b"")
    if leaf:
        detail = f"for {', '.join(certificates.names)}"
        try:
            end = verify(KeyPair(leaf, data.get("tls.key", b"")), now=now).not_valid_after
            yield Item("certificate", end, detail)
        except CertificateProblem as invalid:
            yield Item("certificate", end_of_trust(leaf), detail, invalid.problem, invalid.fix)
    for replica, current in certificates.replicas.items():
        problem = "" if current else "it does not serve a certificate of the Secret's CA yet"
        yield Item(f"replica {replica}", problem=problem, fix="" if current else "if this persists, see its log")
    if not certificates.bundles:
        fix = "apply what `spotgate webhook-config` prints: until then nothing is enforced"
        yield Item("webhook configurations", problem="none is named spotgate", fix=fix)
    yield from judge_trust(leaf, certificates.bundles, now=now)


def judge_trust(leaf: bytes, configurations: Sequence[CaBundles], *, now: datetime) -> Iterator[Item]:
    """Yield each caBundle, and why it doesn't verify the served certificate. Without a certificate, `leaf` is empty."""
    for configuration in configurations:
        for webhook, bundle in configuration.by_webhook.items():
            what, end = f"caBundle of {webhook}", end_of_trust(bundle)
            if end is None:
                yield Item(what, problem="it has no certificate, so every call fails", fix=_NO_CA)
                continue
            detail = counted(len(x509.load_pem_x509_certificates(bundle)), "CA")
            try:
                if leaf:
                    verify_chain(leaf, bundle, now=now, names=sorted(configuration.hosts))
                yield Item(what, end, detail)
            except CertificateProblem as invalid:
                yield Item(what, end, detail, invalid.problem, invalid.fix)
