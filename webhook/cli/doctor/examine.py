"""Run all checks of an installation, in the order in which a person on call would look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cli.doctor.configurations import check_configurations, check_later_webhooks
from webhook.cli.doctor.control_plane import (
    check_account,
    check_clocks,
    check_failed_calls,
    check_own_permissions,
    check_versions,
)
from webhook.cli.doctor.installation import read_installation, unread
from webhook.cli.doctor.probes import check_policies
from webhook.cli.doctor.replicas import check_replicas, check_trust, check_what_they_say
from webhook.cluster.api import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from webhook.cli.doctor.installation import Diagnosis
    from webhook.cluster.api import Api


async def examine(api: Api, namespace: str) -> list[Diagnosis]:
    """Return what every check found. Raise ApiError if the cluster can't be read."""
    installed = await read_installation(api, namespace)
    probed, placed = await check_policies(installed)
    found: list[Diagnosis] = []

    async def add(name: str, check: AsyncIterator[Diagnosis]) -> None:
        """Add what a check finds, or that what it needs can't be read."""
        try:
            async for each in check:
                found.append(each)  # noqa: PERF401 - what was found before an error counts
        except ApiError as error:
            found.append(unread(name, error))

    await add("your permissions", check_own_permissions(installed))
    await add("capacity", check_replicas(installed))
    await add("replicas", check_what_they_say(installed))
    await add("certificates", check_trust(installed))
    await add("configurations", check_configurations(installed))
    found.extend(probed)
    await add("later webhooks", check_later_webhooks(installed, placed=placed))
    await add("ServiceAccount", check_account(installed))
    await add("clocks", check_clocks(installed))
    await add("versions", check_versions(installed))
    await add("failed calls", check_failed_calls(installed))
    return found
