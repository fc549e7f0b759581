"""Manage the certificates of an installation: a CA and a leaf in a Secret, and the caBundles that trust them.

Every replica does this; there is no leader. A replica writes an object only if its `resourceVersion` is unchanged. If
several replicas take the same step, one succeeds, and the others then see the result. See `certs.rotation` for the
steps.
"""

from __future__ import annotations

from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from certs.rotation import (
    Issued,
    end_of_trust,
    identifier_of,
    issue,
    renew,
    signer_of,
    trusting,
    trusts_only,
)
from certs.verify import CertificateProblem
from webhook.cluster.api import Api, ApiError
from webhook.cluster.installation import (
    SERVING,
    read_ca_bundles,
    read_secret,
    write_ca_bundles,
    write_secret,
)
from webhook.rules.context import utc_now
from webhook.runtime.log import LASTING, Repeats, log
from webhook.runtime.reload import Reload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from certs.authority import KeyPair
    from webhook.cluster.installation import CaBundles, Secret
    from webhook.runtime.limits import Limits
    from webhook.server.tls.serving import ServingCertificate

_TIMEOUT: Final = 5.0
"""The timeout of an API request, in seconds."""

_TRUSTED: Final = "caBundles"
_ALL_SERVE: Final = "all replicas"
"""The keys of values that must be stable for a while, in addition to the replicas' entries in the Secret."""


class SelfManaged:
    """The certificates of an installation, which every replica renews, rotates, and repairs.

    Attributes:
        last_look: the result of the last check.
        authority_expiry: when the CA expires, UTC; None if unknown.

    Args:
        api: the cluster.
        secret: the namespace and name of the Secret with the CA and the leaf, which is created if it doesn't exist.
        names: the DNS names of the Service that the API server uses.
        certificate: the served certificate; an untrusted placeholder until the Secret is read.
        replica: the unique name of this replica: its host and port.
        limits: ``certificate_settle`` and ``ca_retention``. A replica that doesn't update its entry for the retention
            time counts as gone.
    """

    def __init__(
        self,
        api: Api,
        secret: tuple[str, str],
        names: Sequence[str],
        *,
        certificate: ServingCertificate,
        replica: str,
        limits: Limits,
    ) -> None:
        self.last_look = Reload()
        self.authority_expiry: datetime | None = None
        self._api = api
        self._secret = secret
        self._title = "/".join(secret)
        self._names = names
        self._certificate = certificate
        self._placeholder = certificate.served
        self._entry = SERVING + replica
        self._limits = limits
        self._issued: Issued | None = None
        self._serves: KeyPair | None = None
        self._in_force: dict[str, bytes] = {}
        self._since: dict[str, tuple[object, float]] = {}
        self._repeats = Repeats(LASTING)

    @property
    def waits_for(self) -> str:
        """Return what is missing to serve the certificate of this installation, or an empty string."""
        return f"the certificate in Secret {self._title}" if self._certificate.served == self._placeholder else ""

    async def look(self) -> dict[str, bytes]:
        """Take the steps that are due. Return the resulting caBundles, by webhook."""
        try:
            self._in_force = await self._look()
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # another replica was faster; the next check finds its result
                self.last_look = self.last_look.updated(success=False)
                problem = str(error)
                self._repeats.log(log.error, "certificates not managed", problem, problem=problem, secret=self._title)
        else:
            self.last_look = self.last_look.updated(success=True)
        return self._in_force

    async def _look(self) -> dict[str, bytes]:
        # Read the caBundles before the Secret, because a replica writes the Secret first. If the caBundles are
        # unchanged when this replica writes them, the Secret is at least as new as they are.
        bundles = await read_ca_bundles(self._api, _TIMEOUT)
        secret = await read_secret(self._api, *self._secret, _TIMEOUT)
        issued = self._issued = await self._renewed(secret)
        self.authority_expiry = end_of_trust(issued.authority.certificate_pem)
        authority, now = issued.authority, utc_now()
        authorities = (authority, self._serves or authority)
        bundles = [
            await self._written(
                config, {name: trusting(bundle, authorities, now=now) for name, bundle in config.by_webhook.items()}
            )
            for config in bundles
        ]
        trusted = {name: bundle for config in bundles for name, bundle in config.by_webhook.items()}
        rotating = not all(trusts_only(bundle, authority) for bundle in trusted.values())
        entries = {key: value for key, value in secret.data.items() if key.startswith(SERVING)}
        identifier = identifier_of(authority).encode()
        all_serve = self._entry in entries and all(value.partition(b" ")[0] == identifier for value in entries.values())
        signs = {key: (rotating, value) for key, value in entries.items()}
        lasted = self._lasted({_TRUSTED: trusted, _ALL_SERVE: rotating and all_serve, **signs})
        # Every API server must trust a CA before a leaf of this CA replaces the current one.
        if self.waits_for or lasted[_TRUSTED] >= self._limits.certificate_settle:
            self._certificate.offer(issued.leaf)
            self._serves = authority
        await self._report(secret, rotating=rotating)
        retention = self._limits.ca_retention
        if rotating and (expired := [key for key in entries if lasted[key] >= retention]):
            await write_secret(self._api, *self._secret, dict.fromkeys(expired), _TIMEOUT)
        elif rotating and all_serve and lasted[_ALL_SERVE] >= retention:
            for config in bundles:
                await self._written(config, dict.fromkeys(config.by_webhook, authority.certificate_pem))
        return trusted

    def _lasted(self, values: Mapping[str, object]) -> dict[str, float]:
        """Return the seconds for which each value has been unchanged at every check."""
        now = monotonic()
        self._since = {
            key: before if (before := self._since.get(key)) is not None and before[0] == value else (value, now)
            for key, value in values.items()
        }
        return {key: now - since for key, (_, since) in self._since.items()}

    async def _renewed(self, secret: Secret) -> Issued:
        """Return the contents of the Secret, after renewing the parts that are due."""
        now = utc_now()
        stored = None
        try:
            stored = Issued.from_data(secret.data, now=now)
            wanted = renew(stored, self._names, now=now)
            why = "renewed"
        except CertificateProblem as problem:
            # Keep the CA that the caBundles trust and the replicas serve. Create a CA only if none is known.
            wanted = renew(self._issued, self._names, now=now) if self._issued else issue(self._names, now=now)
            why = str(problem)
        if wanted != stored:
            await write_secret(self._api, *self._secret, wanted.to_data(), _TIMEOUT, secret.resource_version)
            log.info("certificates stored", secret=self._title, why=why)
        return wanted

    async def _written(self, bundles: CaBundles, wanted: Mapping[str, bytes]) -> CaBundles:
        """Write these caBundles into the configuration unless it contains them already. Return its caBundles."""
        if wanted == bundles.by_webhook:
            return bundles
        written = replace(bundles, by_webhook=wanted)
        await write_ca_bundles(self._api, written, _TIMEOUT)
        log.info("caBundle written", configuration=bundles.kind)
        return written

    async def _report(self, secret: Secret, *, rotating: bool) -> None:
        """Update this replica's entry in the Secret if it is outdated, and as a heartbeat during a CA rotation."""
        if self.waits_for:
            return
        signer, _, count = secret.data.get(self._entry, b"").decode(errors="replace").partition(" ")
        serving = signer_of(self._certificate.served)
        if serving == signer and not rotating:
            return
        value = f"{serving} {int(count) + 1 if count.isdecimal() else 0}"
        await write_secret(self._api, *self._secret, {self._entry: value.encode()}, _TIMEOUT)

    async def leave(self) -> None:
        """Remove this replica's entry. If this fails, other replicas remove the entry later."""
        try:
            await write_secret(self._api, *self._secret, {self._entry: None}, _TIMEOUT)
        except ApiError as error:
            log.info("entry not removed from the Secret", problem=str(error))
