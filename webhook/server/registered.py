"""Compare the webhook configurations of a live cluster with those that the active policies need."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from webhook.cluster.api import Api, ApiError
from webhook.cluster.installation import CONFIGURATIONS, read_webhooks
from webhook.runtime.log import log, log_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.engine.bundle import Bundle

_TIMEOUT: Final = 5.0
"""The timeout of an API request, in seconds."""


class Registered:
    """The webhook configurations of the cluster, compared periodically, outside of requests.

    Attributes:
        outdated: the number of webhooks that are missing, or whose rules or conditions differ; None if unknown.
    """

    def __init__(self, api: Api) -> None:
        self.outdated: int | None = None
        self._api = api
        self._last_logged: list[str] = []

    async def watch(self, bundle: Callable[[], Bundle], seconds: float) -> None:
        """Compare at this interval, until cancelled."""
        # This import takes 70 ms, and only servers with a live cluster need it.
        from webhook.registration.configurations import configurations  # noqa: PLC0415

        compared: Bundle | None = None
        while True:
            try:
                if (current := bundle()) is not compared:
                    rendered = await asyncio.to_thread(configurations, current, {"service": {}})
                    wanted = {configuration["kind"]: configuration["webhooks"] for configuration in rendered}
                    compared = current
                self._note(wanted, await read_webhooks(self._api, _TIMEOUT))
            except ApiError:
                self.outdated = None
            except Exception as error:  # noqa: BLE001 - a failed comparison must not stop the server
                self.outdated = None
                log_failure("webhook configurations not compared", error)
            await asyncio.sleep(seconds)

    def _note(self, wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        from webhook.registration.differences import CONDITIONS, RULES, differences  # noqa: PLC0415 - as in `watch`

        outdated = [
            difference
            for kind in CONFIGURATIONS
            for difference in differences(wanted.get(kind, ()), stored.get(kind, ()))
            if difference.field in {"", RULES, CONDITIONS}
        ]
        self.outdated = len({difference.webhook for difference in outdated})
        problems = [f"{difference.webhook}: {difference.field} {difference.what}" for difference in outdated]
        if problems != self._last_logged:
            if problems:
                log.warning("webhook configurations outdated", outdated=problems)
            else:
                log.info("webhook configurations up to date")
        self._last_logged = problems
