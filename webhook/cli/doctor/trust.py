"""Check that the caBundles verify what each replica serves, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509

from certs.rotation import end_of_trust
from certs.verify import CertificateProblem, verify_chain
from webhook.cli.certificates import judge, read_certificates
from webhook.cli.doctor.diagnosis import Diagnosis
from webhook.cli.doctor.installation import SECONDS
from webhook.cluster.installation import read_ca_bundles
from webhook.context import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from datetime import datetime

    from webhook.cli.doctor.installation import Installed

_SOON: Final = timedelta(days=7)
"""Self-managed certificates and cert-manager's are renewed with at least ten days left."""

_RENEW: Final = "renew it now (docs/certificates.md); the log of replicas with --tls-secret says why they have not"


async def check_trust(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Verify each replica's certificate, or where none can be read of a replica, the Secret's."""
    now = utc_now()
    read = await read_ca_bundles(installed.api, SECONDS, newest=False)
    bundles = {name: bundle for each in read for name, bundle in each.by_webhook.items()}
    served = {each.name: each.version.certificate for each in installed.replicas if each.version is not None}
    for name, pem in served.items():
        for found in _of_replica(name, pem, bundles, now):
            yield found
    silent = [each for each in installed.replicas if each.version is None]
    if silent or not served:
        for found in await _of_secret(installed, silent[0].problem if silent else "there are no replicas"):
            yield found


def _of_replica(name: str, pem: str, bundles: Mapping[str, bytes], now: datetime) -> Iterator[Diagnosis]:
    what = f"certificate of {name}"
    try:
        leaf = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        yield Diagnosis(what, "unknown", "/version holds no certificate that can be read", "look into its log")
        return
    good = True
    for webhook, bundle in bundles.items():
        try:
            verify_chain(pem.encode(), bundle, now=now)
        except CertificateProblem as problem:
            good = False
            yield Diagnosis(what, "fail", f"{problem.problem} of {webhook}", problem.fix)
    if good and bundles:
        trust = min(end for end in map(end_of_trust, bundles.values()) if end is not None)
        until = f"every caBundle verifies it; it expires {leaf.not_valid_after_utc:%Y-%m-%d}, the CA {trust:%Y-%m-%d}"
        soon = min(leaf.not_valid_after_utc, trust) - now < _SOON
        yield Diagnosis(what, "warn" if soon else "ok", until, _RENEW if soon else "")


async def _of_secret(installed: Installed, why: str) -> list[Diagnosis]:
    what, note = "certificate in the Secret", f"what replicas serve can't be read: {why}"
    namespace, name = installed.secret()
    if not name:
        return [Diagnosis(what, "unknown", f"the Deployment names no Secret; {note}", "see docs/certificates.md")]
    now = utc_now()
    items = list(judge(await read_certificates(installed.api, namespace, name, now=now), now=now))
    if problems := [each for each in items if each.problem]:
        return [Diagnosis(what, "fail", f"{each.what}: {each.problem}; {note}", each.fix) for each in problems]
    end = min(each.expires for each in items if each.expires is not None)
    soon = end - now < _SOON
    return [Diagnosis(what, "warn" if soon else "ok", f"trusted until {end:%Y-%m-%d}; {note}", _RENEW if soon else "")]
