"""Serve a certificate, and reload it when its files change. An invalid certificate never replaces a valid one."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from certs.context import server_context
from certs.files import read_file
from certs.rotation import end_of_trust
from certs.verify import CertificateProblem, client_authorities, verify, verify_chain
from webhook.cluster.api import ApiError
from webhook.rules.context import utc_now
from webhook.runtime.log import LASTING, Repeats, log, log_failure
from webhook.runtime.reload import Reload

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from certs.authority import KeyPair

    CaBundles: TypeAlias = Callable[[], Awaitable[Mapping[str, bytes]]]
    """A function that returns the active caBundles by webhook. It raises ApiError if they can't be read."""


class ServingCertificate:
    """The serving certificate and its TLS context for new connections. Open connections keep their context.

    Attributes:
        context: the current context; replaced, never modified.
        served: the served certificate with its intermediates, PEM.
        expiry: when the served certificate expires, UTC.
        last_reload: the result of the last attempt.
        trusted: whether the active caBundles verify the certificate; None if the caBundles are unknown.
        trust_expiry: when the first of the caBundles has no valid certificate left, UTC; None if unknown.
        waits_for: why a replica with this certificate isn't ready; empty if caBundles verify it or are unknown.
    """

    context: ssl.SSLContext
    served: bytes
    expiry: datetime

    def __init__(
        self, source: Callable[[], KeyPair] | KeyPair, *, names: Sequence[str] = (), client_ca: Path | None = None
    ) -> None:
        """Serve the certificate from a source.

        Args:
            source: the certificate and its key, or a function that reads them and may raise CertificateProblem.
            names: the names that the certificate must have.
            client_ca: a file of CAs; only clients with a certificate of these CAs can connect. None allows any client.

        Raises:
            CertificateProblem: the certificate is invalid.
        """
        self.trusted: bool | None = None
        self.trust_expiry: datetime | None = None
        self.waits_for = ""
        self._source: Callable[[], KeyPair] = source if callable(source) else lambda: source
        self._names = names
        self._client_ca = client_ca
        self._bundles: Mapping[str, bytes] = {}
        self._not_trusted = Repeats(LASTING)
        self._not_loaded = Repeats(LASTING)
        self.last_reload = Reload()
        self._use()

    def offer(self, pair: KeyPair) -> None:
        """Replace the source with this pair. The next check uses the pair if it is valid."""
        self._source = lambda: pair

    def _use(self) -> None:
        now = utc_now()
        pair, client_ca = self._last_read = self._read()
        authorities = client_authorities(client_ca, now=now) if client_ca is not None else None
        verified = verify(pair, now=now, names=self._names)
        self._check_against_bundles(pair.certificate_pem, now)
        self.context = server_context(verified, authorities)
        self._authorities = authorities
        self.expiry = verified.not_valid_after
        self.last_reload = self.last_reload.updated(success=True)
        self.served = pair.certificate_pem

    def _read(self) -> tuple[KeyPair, bytes | None]:
        return self._source(), None if self._client_ca is None else read_file(self._client_ca, "client CA")

    def _check_against_bundles(self, certificate_pem: bytes, now: datetime) -> None:
        for webhook, bundle in self._bundles.items():
            try:
                verify_chain(certificate_pem, bundle, now=now)
            except CertificateProblem as problem:
                raise CertificateProblem(f"{problem.problem} of {webhook}", problem.fix) from None

    async def watch(
        self,
        seconds: float,
        bundles: CaBundles | None = None,
        on_new_client_ca: Callable[[], None] = lambda: None,
    ) -> None:
        """Check the files and the active caBundles at an interval, until cancelled.

        Args:
            seconds: the interval between checks.
            bundles: reads the caBundles; None disables the check.
            on_new_client_ca: called when the client CAs change: open connections were verified with the old ones.
        """
        if bundles is not None:
            self.waits_for = "the active caBundles haven't been read yet"
        while True:
            known = bundles is not None and await self._read_bundles(bundles)
            if not self.last_reload.success or await asyncio.to_thread(self._changed):
                before = self._authorities
                self._reload()
                if self._authorities != before:
                    on_new_client_ca()
            if known:
                self._check_trust()
            await asyncio.sleep(seconds)

    async def _read_bundles(self, bundles: CaBundles) -> bool:
        """Read the active caBundles. Return whether they are known."""
        try:
            self._bundles = await bundles()
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # after other errors, keep the last known caBundles
                self._bundles, self.waits_for, self.trusted, self.trust_expiry = {}, "", None, None
                self._not_trusted.log(log.info, "caBundles not read", str(error), problem=str(error))
            return False
        except Exception as error:  # noqa: BLE001 - a failed check must not stop the server
            log_failure("caBundles not read", error)
            return False
        ends = map(end_of_trust, self._bundles.values())
        self.trust_expiry = min((end for end in ends if end is not None), default=None)
        return True

    def _check_trust(self) -> None:
        """Check whether the caBundles verify the served certificate. Otherwise, the API server doesn't trust it."""
        try:
            self._check_against_bundles(self.served, utc_now())
        except CertificateProblem as problem:
            self.trusted = False
            self.waits_for = str(problem)  # not ready, so that calls go to other replicas instead of failing here
            self._not_trusted.log(log.error, "certificate not trusted", problem.fix, problem=str(problem))
        else:
            self.trusted = True if self._bundles else None
            self.waits_for = ""
            self._not_trusted = Repeats(LASTING)

    def _changed(self) -> bool:
        try:
            return self._read() != self._last_read
        except CertificateProblem:
            return True

    def _reload(self) -> None:
        try:
            self._use()
        except (CertificateProblem, OSError) as error:  # OSError: for example, too many open files
            self.last_reload = self.last_reload.updated(success=False)
            key = getattr(error, "fix", str(error))  # the text may contain the time
            self._not_loaded.log(log.error, "certificate not loaded", key, problem=str(error))
        else:
            self._not_loaded = Repeats(LASTING)
            log.info("certificate loaded", expiry=self.expiry)
