"""``make chaos``: send 20 writes a second to a real API server during faults, and count the wrong verdicts.

docs/reliability.md has the figures of one run. Linux only. The exit code is 1 if a forbidden outcome occurs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import resource
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import uvloop
from rich.console import Console

from bench.chaos.cert_manager import cert_manager, mounted_certificate
from bench.chaos.faults import FAULTS, SHORT
from bench.chaos.load import MEANINGS, Load, Outcome, Tally
from bench.chaos.scene import Fault, Scene
from bench.chaos.service import REPLICAS, CuttableApiServer, Service
from bench.figures import Section, percentile
from bench.run import conditions, show
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.harness.kubectl import KubectlError
from tests.controlplane.harness.populate import CRDS, POOLS, wait_for_crds
from tests.controlplane.harness.webhook import WebhookError, apply_base, apply_configurations
from tests.programs import VERSION
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from pathlib import Path

_RATE: Final = 20
_SHORT_RATE: Final = 10
"""Writes per second. A short run shares the machine with other tests."""

_SETTLE: Final = 3.0
_SHORT_SETTLE: Final = 1.0
"""Seconds after a fault that still count for it, to include its late effects."""

_SHORT_TIMEOUT: Final = 10
"""Seconds that the API server waits for an answer in a short run."""

_BEGINS: Final = 60.0
"""Seconds to wait until the API server calls spotgate."""

_OPEN: Final = re.compile(r"Failed calling webhook, failing open \S+: .*timeout=\d+s\\?\": (.*?)\"?$", re.MULTILINE)
"""The API server's log line for a write that it admits without an answer."""


async def measure(
    cluster: Cluster, directory: Path, flags: list[str], faults: list[Fault], component: str, *, short: bool
) -> dict[str, Tally]:
    """Run the faults one after another, under load. Return the outcomes of the writes during each fault."""
    service, load = Service(directory, flags, hasty=short), Load(cluster, _SHORT_RATE if short else _RATE)
    kubeconfig = directory / next(flag for flag in flags if flag.startswith("--kubeconfig=")).partition("=")[2]
    api_server = CuttableApiServer(int(cluster.credentials.url.rpartition(":")[2]))
    scene = Scene(cluster, service, load, directory, kubeconfig, api_server)
    tallies: dict[str, Tally] = {}
    log = cluster.processes["kube-apiserver"].log
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(api_server.running())
        kubeconfig.write_text(
            kubeconfig.read_text().replace(cluster.credentials.url, f"https://127.0.0.1:{api_server.port}")
        )
        await stack.enter_async_context(service.running())
        timeout = _SHORT_TIMEOUT if short else None
        apply = partial(apply_configurations, component=component, timeout_seconds=timeout)
        await asyncio.to_thread(apply, cluster, directory, service.port)
        writing = asyncio.create_task(load.run())
        try:
            await wait_until_right(load)
            for fault in faults:
                report(fault.name)
                tallies[fault.name] = load.tally = tally = Tally()
                await load.answered()  # this fault must not break a write that counts for the previous one
                seen = log.stat().st_size
                await fault.act(scene)
                await asyncio.sleep(_SHORT_SETTLE if short else _SETTLE)
                await load.answered()
                tally.unanswered.update(_OPEN.findall(log.read_text()[seen:]))
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    return tallies


async def wait_until_right(load: Load) -> None:
    """Wait for a second without wrong outcomes, because the API server loads configurations with a delay."""
    for _ in range(int(_BEGINS)):
        load.tally = Tally()
        await asyncio.sleep(1)
        await load.answered()
        if not load.tally.outcomes.keys() - {Outcome.RIGHT}:
            return
    raise WebhookError(f"wrong outcomes after {_BEGINS:.0f} s: {load.tally.examples}")


def table(tallies: dict[str, Tally], *, rate: int) -> Section:
    """Return the table of wrong verdicts."""
    others = [outcome for outcome in Outcome if outcome is not Outcome.RIGHT]
    return Section(
        title=f"{rate} writes a second, {REPLICAS} replicas",
        columns=("fault", "writes", *others, "median ms", "p99 ms"),
        rows=[
            (
                name,
                tally.outcomes.total(),
                *(tally.outcomes[outcome] for outcome in others),
                percentile(tally.latencies, 0.5) * 1000,
                percentile(tally.latencies, 0.99) * 1000,
            )
            for name, tally in tallies.items()
        ],
        note="\n".join(f"{outcome}: {meaning}" for outcome, meaning in MEANINGS.items()),
    )


def broken_promises(faults: list[Fault], tallies: dict[str, Tally]) -> list[str]:
    """Return the forbidden outcomes that occurred."""
    return [
        f"{fault.name}: {outcome}: {write}"
        for fault in faults
        for write, outcome in tallies[fault.name].examples
        if outcome not in fault.may | {Outcome.UNKNOWN}
    ]


def run(faults: list[Fault], component: str, *, short: bool) -> dict[str, Tally]:
    """Measure an installation with this component of the manifests, on a separate control plane."""
    with contextlib.ExitStack() as stack:
        programs = find_or_build(("etcd", "kube-apiserver", "kubectl"))
        cluster = stack.enter_context(start_cluster(programs, controllers=False))
        cluster.kubectl("apply", f"--filename={CRDS / 'coreweave.yaml'}")
        wait_for_crds(cluster.kubectl)
        cluster.kubectl("apply", f"--filename={POOLS}")
        everything = ("platform", "--clusterrole=cluster-admin", "--group=platform")
        cluster.kubectl("create", "clusterrolebinding", *everything)
        directory = cluster.directory / "webhook"
        if component == "cert-manager":
            stack.enter_context(cert_manager(cluster))
        flags = stack.enter_context(apply_base(cluster, directory, component=component))
        if component == "cert-manager":
            stack.enter_context(mounted_certificate(cluster, directory))
        return uvloop.run(measure(cluster, directory, flags, faults, component, short=short))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="the start of a fault's name; default: all faults")
    parser.add_argument("--short", choices=SHORT, help="run for a minute, with these certificates")
    options = parser.parse_args()
    faults = [
        fault
        for fault in SHORT.get(options.short, FAULTS)
        if not options.faults or fault.name.startswith(tuple(options.faults))
    ]
    if not faults:
        sys.exit(f"no such fault; the faults are: {', '.join(fault.name for fault in FAULTS)}")
    console = Console(width=160, highlight=False)
    # Each hostile connection needs a file descriptor.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = os.getloadavg()[0]
    tallies: dict[str, Tally] = {}
    try:
        for component in dict.fromkeys(fault.component for fault in faults):
            chosen = [fault for fault in faults if fault.component == component]
            tallies |= run(chosen, component, short=bool(options.short))
    except (BinariesError, ControlPlaneError, KubectlError, WebhookError) as error:
        sys.exit(f"spotgate: {error}")
    console.print(conditions(before, VERSION))
    show(console, table(tallies, rate=_SHORT_RATE if options.short else _RATE))
    for name, tally in tallies.items():
        for (write, outcome), message in tally.examples.items():
            console.print(f"- {name}: {write}: {outcome}: {message[:300]}")
        for why, times in tally.unanswered.items():
            console.print(f"- {name}: admitted without an answer: {times}: {why}")
    if broken := broken_promises(faults, tallies):
        sys.exit("spotgate: forbidden outcomes:\n" + "\n".join(broken))


if __name__ == "__main__":
    main()
