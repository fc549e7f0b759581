"""What the faults of `make chaos` act on, and what a fault is."""

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
    """What is running. Policies, certificates and the webhook's kubeconfig are in `directory`."""

    cluster: Cluster
    service: Service
    load: Load
    directory: Path
    kubeconfig: Path
    api_server: CuttableApiServer


Act: TypeAlias = "Callable[[Scene], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: what is printed.
        act: does it, and puts back what it has changed.
        may: outcomes that are not promised to be absent while it lasts, beside denials as unknown.
        component: of manifests/components for the certificates.
    """

    name: str
    act: Act
    may: frozenset[Outcome] = frozenset()
    component: str = PROVIDED


def one_after_another(*acts: Act) -> Act:
    """Return what does these in turn."""

    async def act(scene: Scene) -> None:
        for each in acts:
            await each(scene)

    return act


def at_once(*acts: Act) -> Act:
    """Return what does these at the same time."""

    async def act(scene: Scene) -> None:
        await asyncio.gather(*(each(scene) for each in acts))

    return act


@contextlib.contextmanager
def kept(path: Path) -> Iterator[None]:
    """Put back a folder or a file, at once, as a kubelet does: a replica must not load half of the policies."""
    copy = path.with_name(f"{path.name}.kept")
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
