"""Faults of `make chaos`, and the installation on which they act."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.controlplane.harness.webhook import PROVIDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from bench.chaos.load import Load, Outcome
    from bench.chaos.service import CuttableApiServer, Service
    from tests.controlplane.harness.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Scene:
    """A running installation. `directory` contains policies, certificates, and the webhook's kubeconfig."""

    cluster: Cluster
    service: Service
    load: Load
    directory: Path
    kubeconfig: Path
    api_server: CuttableApiServer


Act: TypeAlias = "Callable[[Scene], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `make chaos`.

    Attributes:
        name: the printed name.
        act: causes the fault, and reverts it.
        may: the outcomes that may occur during the fault, in addition to `Outcome.UNKNOWN`.
        component: the certificate component in manifests/components.
    """

    name: str
    act: Act
    may: frozenset[Outcome] = frozenset()
    component: str = PROVIDED


def one_after_another(*acts: Act) -> Act:
    """Return an act that runs these acts one after another."""

    async def act(scene: Scene) -> None:
        for step in acts:
            await step(scene)

    return act


def at_once(*acts: Act) -> Act:
    """Return an act that runs these acts concurrently."""

    async def act(scene: Scene) -> None:
        await asyncio.gather(*(step(scene) for step in acts))

    return act


@contextlib.contextmanager
def restored(path: Path) -> Iterator[None]:
    """Restore a folder or file after the block, atomically like a kubelet, so that no replica loads half of it."""
    copy = path.with_name(f"{path.name}.copy")
    (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    try:
        yield
    finally:
        if path.is_dir():
            changed = path.rename(path.with_name(f"{path.name}.changed"))
            copy.rename(path)
            shutil.rmtree(changed)
        else:
            copy.replace(path)
