"""The certificate that is served, taken over from its files while serving. A bad pair never replaces a good one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from certs.context import server_context
from certs.verify import CertificateProblem, verify
from webhook.context import utc_now
from webhook.server.log import log
from webhook.server.status import Reload

if TYPE_CHECKING:
    import ssl
    from datetime import datetime

    from certs.authority import KeyPair
    from certs.files import CertificateFiles


class ServingCertificate:
    """The TLS context for new connections; those that are open keep theirs.

    Attributes:
        context: never changed, only exchanged.
        expiry: of the certificate in it, UTC.
        last_reload: how the last attempt ended.
    """

    context: ssl.SSLContext
    expiry: datetime
    last_reload: Reload

    def __init__(self, pair: KeyPair, files: CertificateFiles | None = None) -> None:
        """Serve ``pair``, and whatever ``files`` hold later on.

        Raises:
            CertificateProblem: the pair can't be served.
        """
        self._files = files
        self._last_problem = ""
        self._use(pair)

    def _use(self, pair: KeyPair) -> None:
        verified = verify(pair, now=utc_now())
        self.context = server_context(verified)
        self.expiry = verified.not_valid_after
        self.last_reload = Reload.now(success=True)

    async def watch(self, seconds: float) -> None:
        """Look at the files every so often, until cancelled."""
        while self._files is not None:
            await asyncio.sleep(seconds)
            if not self.last_reload.success or await asyncio.to_thread(self._files.changed):
                self._reload(self._files)

    def _reload(self, files: CertificateFiles) -> None:
        try:
            self._use(files.read())
        except CertificateProblem as problem:
            self._failed(str(problem), problem.fix)
        except OSError as error:  # OpenSSL gets the pair as a file, and there may be none left
            self._failed(str(error), str(error))
        else:
            self._last_problem = ""
            log.info("certificate taken over", expiry=self.expiry)

    def _failed(self, problem: str, same_as: str) -> None:
        self.last_reload = Reload.now(success=False)
        # It is tried again and again, but one line is enough. The text may tell the time.
        if same_as != self._last_problem:
            log.error("certificate not taken over", problem=problem)
        self._last_problem = same_as
