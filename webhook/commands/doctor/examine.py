"""Run all checks of an installation, in the order in which a person on call would look."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from webhook.cluster.api import ApiError
from webhook.commands.doctor.configurations import check_configurations, check_later_webhooks
from webhook.commands.doctor.control_plane import (
    check_account,
    check_clocks,
    check_failed_calls,
    check_own_permissions,
    check_versions,
)
from webhook.commands.doctor.installation import Diagnosis, read_installation
from webhook.commands.doctor.probes import check_policies
from webhook.commands.doctor.replicas import check_replicas, check_trust, check_what_they_say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from webhook.cluster.api import Api


async def examine(api: Api, namespace: str) -> list[Diagnosis]:
    """Return what every check found. Raise ApiError if the cluster can't be read."""
    installed = await read_installation(api, namespace)
    probed, placed = await check_policies(installed)
    checks: list[tuple[str, AsyncIterator[Diagnosis] | list[Diagnosis]]] = [
        ("your permissions", check_own_permissions(installed)),
        ("capacity", check_replicas(installed)),
        ("replicas", check_what_they_say(installed)),
        ("certificates", check_trust(installed)),
        ("configurations", check_configurations(installed)),
        ("policies", probed),
        ("later webhooks", check_later_webhooks(installed, placed=placed)),
        ("ServiceAccount", check_account(installed)),
        ("clocks", check_clocks(installed)),
        ("versions", check_versions(installed)),
        ("failed calls", check_failed_calls(installed)),
    ]
    found: list[Diagnosis] = []
    for name, check in checks:
        try:
            if isinstance(check, list):
                found += check
            else:
                async for each in check:
                    found.append(each)
        except ApiError as error:
            fix = (
                "allow it" if error.status == HTTPStatus.FORBIDDEN else "try again: the API server did not answer this"
            )
            found.append(Diagnosis(name, "unknown", str(error), f"{fix}; see docs/cli/doctor.md"))
    return found
