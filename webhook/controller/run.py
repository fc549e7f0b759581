"""Run ``spotgate controller``: its duties, and its metrics."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvloop
from prometheus_client import CollectorRegistry

from webhook.capacity.view import FixedState, UnusableCredentialsError
from webhook.cluster.api import Api
from webhook.controller.floor import keep_floors
from webhook.controller.notice.duty import tell_of_reclaims
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import NOTHING_KNOWN
from webhook.runtime.limits import LIMITS
from webhook.runtime.log import configure_logging, flush_log, log
from webhook.runtime.ops import serve_registry
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from webhook.runtime.address import Address

DUTIES: Final = {"floor": keep_floors, "notice": tell_of_reclaims}
"""The duties by name. Each has its own Lease, so that it doesn't depend on the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The flags of ``spotgate controller`` (see ``--help``)."""

    policies: Sequence[Path] = ()
    in_cluster: bool = False
    kubeconfig: Path | None = None
    cluster: str = ""
    namespace: str
    duties: Sequence[str]
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


async def _run(options: ControllerOptions, policies: Reloader, listener: socket.socket) -> None:
    bundle, registry = policies.snapshot.bundle, CollectorRegistry()
    api = await Api.connect(options.kubeconfig)
    duties = [DUTIES[name](api, bundle, registry, options.namespace) for name in options.duties]
    runner = await serve_registry(listener, registry)
    log.info("candidate", ops_port=listener.getsockname()[1], namespace=options.namespace, bundle=bundle.hash)

    def end(_: Snapshot | None = None) -> None:
        for task in tasks:
            task.cancel()

    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in (*duties, policies.watch(end, LIMITS.policy_poll))]
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
    await runner.cleanup()
    await api.close()
