"""Check that the caBundles verify what each replica serves, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from certs.rotation import end_of_trust
from webhook.cli.certificates import Item, judge, judge_trust, read_certificates
from webhook.cli.doctor.diagnosis import Diagnosis
from webhook.cli.doctor.installation import SECONDS
from webhook.cluster.installation import read_ca_bundles
from webhook.context import utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from datetime import datetime

    from webhook.cli.doctor.installation import Installed

_SOON: Final = timedelta(days=7)
"""Self-managed certificates and cert-manager's are renewed with at least ten days left."""

_RENEW: Final = "renew it now (docs/certificates.md); the log of replicas with --tls-secret says why they have not"


async def check_trust(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Verify each replica's certificate, or where none can be read of a replica, the Secret's."""
    now = utc_now()
    bundles = await read_ca_bundles(installed.api, SECONDS, newest=False)
    served = {each.name: each.version.certificate.encode() for each in installed.replicas if each.version is not None}
    for name, leaf in served.items() if bundles else ():
        items = [Item("it", end_of_trust(leaf)), *judge_trust(leaf, bundles, now=now)]
        for found in _diagnosed(f"certificate of {name}", items, now):
            yield found
    silent = [each for each in installed.replicas if each.version is None]
    if silent or not served:
        why = silent[0].problem if silent else "there are no replicas"
        what, note = "certificate in the Secret", f"; what replicas serve can't be read: {why}"
        namespace, name = installed.secret()
        if not name:
            yield Diagnosis(what, "unknown", f"the Deployment names no Secret{note}", "see docs/certificates.md")
            return
        items = list(judge(await read_certificates(installed.api, namespace, name, now=now), now=now))
        for found in _diagnosed(what, items, now, note):
            yield found


def _diagnosed(what: str, items: Iterable[Item], now: datetime, note: str = "") -> Iterator[Diagnosis]:
    """Yield each problem of certificate and caBundles, or until when they are trusted."""
    problems: dict[tuple[str, str], list[str]] = {}  # often all caBundles have the same
    for each in items:
        if each.problem:
            problems.setdefault((each.problem, each.fix), []).append(each.what)
    for (problem, fix), where in problems.items():
        yield Diagnosis(what, "fail", f"{', '.join(where)}: {problem}{note}", fix)
    if problems:
        return
    end = min((each.expires for each in items if each.expires is not None), default=now)
    soon = end - now < _SOON
    yield Diagnosis(what, "warn" if soon else "ok", f"trusted until {end:%Y-%m-%d}{note}", _RENEW if soon else "")
