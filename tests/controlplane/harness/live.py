"""A `LiveState` that follows a control plane, for a test."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import yaml

from tests.specs import spec_of
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.cluster.api import Api
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Pace
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.runtime.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from webhook.capacity.view import ClusterView

PROVIDERS = {"cks": load_bundle().providers["cks"]}
PATIENCE = 30.0
"""Seconds that a test waits for an expected change."""

HASTE = Pace(first=0.05, most=0.3, steady=1)


@asynccontextmanager
async def following(
    kubeconfig: Path | None, providers: Mapping[str, Provider] = PROVIDERS, *, synced: bool = True
) -> AsyncIterator[LiveState]:
    configure_logging(io.BytesIO())
    api = await Api.connect(kubeconfig)
    state = LiveState(api, providers, HASTE)
    run = asyncio.create_task(state.run())
    try:
        if synced:
            async with asyncio.timeout(PATIENCE):
                await state.synced()
        yield state
    finally:
        await stop(api, run)


async def stop(api: Api, run: asyncio.Task[None]) -> None:
    """Close the connection, and then end the task that follows it. Wait for all sockets."""
    await api.close()  # first: otherwise, a canceled watch closes its connection later, and nothing waits for it
    run.cancel()
    await asyncio.wait([run])
    await asyncio.sleep(0.1)  # aiohttp closes a connection that was being established, and waits for the server


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the change happens elsewhere
            await asyncio.sleep(0.02)


def admin(cluster: Cluster) -> Path:
    return cluster.credentials.kubeconfig("admin")


def names(view: ClusterView) -> list[str]:
    assert view.pools is not None, view.why_unknown
    return [pool.name for pool in view.pools]


def elsewhere(**changes: Any) -> dict[str, Provider]:
    """Return a provider whose pools are a different resource than those of CKS."""
    spec = yaml.safe_load((SHIPPED / "providers" / "cks.yaml").read_text())["spec"]
    spec["nodePools"][0] |= changes
    return {"cks": Provider.of("cks", spec_of(CapacityProviderSpec, spec))}
