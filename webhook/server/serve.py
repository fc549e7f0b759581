"""``spotgate serve``: everything put together, in one process or several."""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from certs.files import CertificateFiles
from certs.self_signed import self_signed
from certs.verify import CertificateProblem
from webhook.bundle import SHIPPED, load_bundle
from webhook.cluster.files import FileState, StateErrors
from webhook.cluster.protocol import ClusterView, UnusableCredentialsError
from webhook.context import UNKNOWN, utc_now
from webhook.policy.errors import PolicyErrors
from webhook.server.app import Snapshot
from webhook.server.lifecycle import Stop, Worker, run
from webhook.server.limits import LIMITS, Limits
from webhook.server.log import configure_logging, log
from webhook.server.ops import OpsPort
from webhook.server.recorder import prepare_folder
from webhook.server.reload import Reloader
from webhook.server.tls import ServingCertificate
from webhook.server.workers import Supervisor, report

if TYPE_CHECKING:
    from certs.authority import KeyPair
    from webhook.server.follow import LiveCluster

_BACKLOG: Final = 1024
"""Connections that wait to be accepted; the system may allow fewer (Linux: net.core.somaxconn, 4096)."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
"""Where Linux keeps files in memory; writable also where the root file system is not."""

_NOT_READ: Final = ClusterView(why_unknown="The cluster has not been read yet.", remedy="try again in a few seconds")

_UNUSABLE: Final = 2
"""The exit code where nothing could be served."""


class Address(NamedTuple):
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, ``[::]:port`` or ``:port``.

        Raises:
            ValueError: it is none.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - of TCP
            raise ValueError(f"{text!r} is no address to listen on; write host:port, as in 0.0.0.0:8443")
        return cls(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means

    def bind(self) -> socket.socket:
        """A listening socket. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server(self, family=family, backlog=_BACKLOG)
        listener.settimeout(0)
        return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``spotgate serve`` was asked for.

    Attributes:
        listen: the TLS port.
        ops: the operators' port, plain HTTP.
        policies: folders and files; none: the shipped policies.
        tls_cert: the certificate's file, with ``tls_key``; they are looked at again and again.
        self_signed: make a certificate for trying out instead.
        workers: processes that answer reviews.
        state: folders and files with the cluster's objects; none: the cluster is unknown, if it is not a live one.
        in_cluster: the state is that of the cluster this process runs in.
        kubeconfig: the state is that of this file's cluster.
        record: a folder for what is decided; None: nothing is recorded.
        limits: bounds and durations.
    """

    listen: Address
    ops: Address
    policies: tuple[Path, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    self_signed: bool = False
    workers: int = 1
    state: tuple[Path, ...] = ()
    in_cluster: bool = False
    kubeconfig: Path | None = None
    record: Path | None = None
    limits: Limits = LIMITS

    @property
    def live(self) -> bool:
        """Is the state that of a live cluster?"""
        return self.in_cluster or self.kubeconfig is not None


def serve(options: ServeOptions) -> int:
    """Serve until a signal ends it.

    Returns:
        The exit code: 0, or 2 if policies, state, certificate or addresses can't be used; then standard error says why.
    """
    configure_logging()
    try:
        pair = _own_pair(options)
        parts = _parts(options, pair)
        run(_try_credentials(options))
        if options.record is not None:
            prepare_folder(options.record)
        listener, ops_listener = options.listen.bind(), options.ops.bind()
    except (PolicyErrors, StateErrors, CertificateProblem, UnusableCredentialsError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _UNUSABLE
    log.info(
        "listening",
        port=listener.getsockname()[1],
        ops_port=ops_listener.getsockname()[1],
        workers=options.workers,
        bundle=parts.reloader.snapshot.bundle.hash,
    )
    if options.workers == 1:
        return run(_serve_alone(options, listener, ops_listener, parts))
    return run(_supervise(options, listener, ops_listener, pair, parts.reloader))


class _Parts(NamedTuple):
    """What is loaded before a worker starts."""

    certificate: ServingCertificate
    reloader: Reloader


def _own_pair(options: ServeOptions) -> KeyPair | None:
    """A certificate made for this run, if one is wanted: made once, as all workers must serve the same."""
    if not options.self_signed:
        return None
    authority, pair = self_signed(["localhost", socket.gethostname()], ["127.0.0.1", "::1"], utc_now())
    log.info("self-signed certificate made", ca_bundle=base64.b64encode(authority).decode())
    return pair


def _parts(options: ServeOptions, pair: KeyPair | None, kept: Path | None = None) -> _Parts:
    """Load certificate and policies; those in ``kept`` if theirs are bad. Raises what `serve` reports."""
    if pair is not None:
        certificate = ServingCertificate(pair)
    elif options.tls_cert is not None and options.tls_key is not None:
        files = CertificateFiles(options.tls_cert, options.tls_key)
        certificate = ServingCertificate(files.read(), files)
    else:
        raise CertificateProblem("there is no certificate to serve", "give --tls-cert and --tls-key, or --self-signed")
    paths = (*(options.policies or (SHIPPED,)), *options.state)
    instead = partial(build_snapshot, replace(options, policies=(kept,))) if kept is not None else None
    return _Parts(certificate, Reloader(partial(build_snapshot, options), paths, instead))


def build_snapshot(options: ServeOptions) -> Snapshot:
    """Read policies and state. Raises PolicyErrors or StateErrors."""
    bundle = load_bundle(options.policies)
    state = FileState(options.state, bundle.providers) if options.state else _UnknownCluster(options)
    return Snapshot(bundle, state)


class _UnknownCluster:
    """The state of a cluster that nobody told us about; of a live one, until it has been read."""

    def __init__(self, options: ServeOptions) -> None:
        self._view = _NOT_READ if options.live else UNKNOWN

    def view(self) -> ClusterView:
        return self._view

    async def fresh(self) -> ClusterView:
        return self._view


async def _cluster(options: ServeOptions) -> LiveCluster | None:
    if not options.live:
        return None
    # 10 MB and a moment, for nothing where files are the state.
    from webhook.server.follow import LiveCluster  # noqa: PLC0415

    return await LiveCluster.connect(options.kubeconfig)


async def _try_credentials(options: ServeOptions) -> int:
    """Raises UnusableCredentialsError before anything is started."""
    cluster = await _cluster(options)
    if cluster is not None:
        await cluster.close()
    return 0


async def _serve_alone(
    options: ServeOptions, listener: socket.socket, ops_listener: socket.socket, parts: _Parts
) -> int:
    stop = Stop()
    stop.on_signals()
    cluster = await _cluster(options)
    worker = Worker(listener, parts.certificate, parts.reloader, options.limits, cluster, record=options.record)
    ops = OpsPort(lambda: [worker.status()], 1, worker.metrics.registry, stop)
    runner = await ops.start(ops_listener)
    await worker.run(stop)
    await runner.cleanup()
    return 0


async def _supervise(
    options: ServeOptions,
    listener: socket.socket,
    ops_listener: socket.socket,
    pair: KeyPair | None,
    reloader: Reloader,
) -> int:
    stop = Stop()
    stop.on_signals()
    with tempfile.TemporaryDirectory(
        prefix="spotgate-", dir=_MEMORY if _MEMORY.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        kept = Path(folder) / "policies.yaml"
        _keep(reloader.snapshot, kept)
        keeping = asyncio.create_task(reloader.watch(partial(_keep, file=kept), options.limits.policy_poll))
        target = partial(_work, options, listener, pair, kept)
        supervisor = Supervisor(target, options.workers, options.limits, folder)
        ops = OpsPort(supervisor.statuses, options.workers, supervisor.registry, stop)
        runner = await ops.start(ops_listener)
        await supervisor.run(stop)
        await runner.cleanup()
        keeping.cancel()
        await asyncio.wait([keeping])
    return 0


def _keep(snapshot: Snapshot, file: Path) -> None:
    """Write good policies down, for a worker that begins when the files they came from are bad."""
    new = file.with_suffix(".new")
    new.write_bytes(b"\n---\n".join(msgspec.json.encode(each.document.value) for each in snapshot.bundle.documents))
    new.replace(file)


def _work(
    options: ServeOptions, listener: socket.socket, pair: KeyPair | None, kept: Path, channel: socket.socket
) -> None:
    """Be one of several workers: this is where a new process begins."""
    configure_logging()
    try:
        parts = _parts(options, pair, kept)
    except (PolicyErrors, StateErrors, CertificateProblem) as error:
        sys.exit(str(error))
    sys.exit(run(_serve_as_worker(options, listener, channel, parts)))


async def _serve_as_worker(
    options: ServeOptions, listener: socket.socket, channel: socket.socket, parts: _Parts
) -> int:
    stop = Stop()
    stop.on_signals()
    listener.settimeout(0)  # it came as blocking
    cluster = await _cluster(options)
    worker = Worker(
        listener, parts.certificate, parts.reloader, options.limits, cluster, record=options.record, alone=False
    )
    await worker.run(stop, report(worker, channel, stop))
    return 0
