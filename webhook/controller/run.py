"""Run ``spotgate controller``: watch Pods, Nodes, and node pools, and take part in the leader election."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvloop

from webhook.capacity.placement.floor import on_demand_only
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.capacity.view import FixedState, UnusableCredentialsError
from webhook.cluster.api import Api
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Mirror, Pace
from webhook.controller.election import elect
from webhook.controller.leader import Leader
from webhook.controller.ledger import Ledger
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pods import all_pods, node_labels
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.kube.selectors import holds
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import NOTHING_KNOWN
from webhook.runtime.limits import LIMITS
from webhook.runtime.log import configure_logging, flush_log, log
from webhook.runtime.ops import serve_registry
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from webhook.capacity.view import ClusterView
    from webhook.controller.election import Lock
    from webhook.engine.bundle import Bundle
    from webhook.kube.pod import Requirement
    from webhook.runtime.address import Address

_PACE: Final = Pace(most=4, answer=15, watch=4, steady=3, silence=6)
"""Gated Pods wait while the leader can't watch, so it retries sooner than the webhook. The API server ends each watch
after 4 or 5 s. So a connection without data for 6 s hangs, and the leader no longer sees the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The flags of ``spotgate controller`` (see ``--help``)."""

    policies: Sequence[Path] = ()
    in_cluster: bool = False
    kubeconfig: Path | None = None
    cluster: str = ""
    namespace: str
    ops: Address


def run(options: ControllerOptions) -> int:
    """Run until a signal arrives or policies change.

    Return the exit code: 0, or 2 if policies, credentials, or address are invalid.
    """
    configure_logging()

    def read() -> Snapshot:
        return Snapshot(load_bundle(options.policies, cluster=options.cluster), FixedState(NOTHING_KNOWN))

    try:
        policies = Reloader(read, options.policies or (SHIPPED,))
        listener = options.ops.bind()
        uvloop.run(_run(options, policies, listener))
    except (PolicyErrors, UnusableCredentialsError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    finally:
        flush_log()
    return 0


class Cluster:
    """The controller's knowledge of the cluster."""

    def __init__(self, api: Api, bundle: Bundle, changed: Callable[[], None]) -> None:
        self._bundle = bundle
        self._seen: ClusterView | None = None
        self._on_demand: tuple[Requirement, ...] = ()
        self.state = LiveState(api, bundle.providers)
        self.nodes: Mirror[Mapping[str, str]] = Mirror(api, node_labels(), _PACE, changed)

    def is_on_demand(self, name: str) -> bool:
        """Return whether the Node is known to be on demand: an on-demand Pod can be scheduled there."""
        labels, view = self.nodes.items.get(("", name)), self.state.view()
        if labels is None or view.pools is None:
            return False
        if view is not self._seen:
            providers = self._bundle.providers
            here = [providers[name] for name in in_play(view, providers)]
            self._seen, self._on_demand = view, on_demand_only(supply_of(view, providers), here)
        return all(holds(need.operator, labels.get(need.key), need.values or ()) for need in self._on_demand)


async def _run(options: ControllerOptions, policies: Reloader, listener: socket.socket) -> None:
    bundle = policies.snapshot.bundle
    api = await Api.connect(options.kubeconfig)
    known = asyncio.Event()

    def changed() -> None:
        if pods.known and cluster.nodes.known:
            known.set()

    cluster = Cluster(api, bundle, changed)
    ledger = Ledger(cluster.is_on_demand)
    lock: list[Lock] = []
    metrics = ControllerMetrics(ledger, lambda: bool(lock) and lock[0].leads and sees())
    leader = Leader(api, bundle.index, cluster.state.view, ledger, metrics)
    pods = Mirror(api, all_pods(), _PACE, changed, leader.take)
    runner = await serve_registry(listener, metrics.registry)
    log.info("candidate", ops_port=listener.getsockname()[1], namespace=options.namespace, bundle=bundle.hash)

    def sees() -> bool:
        """Return whether the counts are current. Without a watch, deleted Pods would still count."""
        return pods.live and cluster.nodes.live

    async def lead(held: Lock) -> None:
        lock[:] = [held]
        await leader.lead(lambda: held.leads and sees())

    async def be_candidate() -> None:
        await cluster.state.synced()
        await known.wait()
        await elect(options.namespace, lambda: api.client, lead, sees)

    def end(_: Snapshot | None = None) -> None:
        for task in tasks:
            task.cancel()

    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work)
                for work in (
                    cluster.state.run(),
                    cluster.nodes.run(),
                    pods.run(),
                    be_candidate(),
                    policies.watch(end, LIMITS.policy_poll),
                )
            ]
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
    await runner.cleanup()
    await api.close()
