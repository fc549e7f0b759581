"""Run ``spotgate serve``: load policies, state, and certificate, and serve until a signal arrives."""

from __future__ import annotations

import base64
import socket
import sys
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Final

import uvloop

from certs.authority import KeyPair, self_signed
from certs.files import read_pair
from certs.verify import CertificateProblem
from webhook import __version__
from webhook.base.exits import CANNOT_JUDGE
from webhook.capacity.view import ClusterView, FixedState, UnusableCredentialsError
from webhook.cluster.api import Api
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.inputs.state import FileState, StateErrors
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import NOTHING_KNOWN, utc_now
from webhook.runtime.limits import LIMITS, Limits
from webhook.runtime.log import configure_logging, flush_log, log
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot
from webhook.server.follow import LiveCluster
from webhook.server.http.recorder import prepare_folder
from webhook.server.lifecycle import Replica, Stop
from webhook.server.ops.port import OpsPort
from webhook.server.tls.self_managed import SelfManaged
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from webhook.runtime.address import Address

_NOT_READ: Final = ClusterView(why_unknown="The cluster hasn't been read yet.", remedy="try again in a few seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The flags of ``spotgate serve`` (see ``--help``), and the limits."""

    listen: Address
    ops: Address
    policies: Sequence[Path] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_secret: tuple[str, str] | None = None
    self_signed: bool = False
    tls_name: Sequence[str] = ()
    client_ca: Path | None = None
    client_name: Sequence[str] = ()
    state: Sequence[Path] = ()
    in_cluster: bool = False
    kubeconfig: Path | None = None
    namespace: str = "spotgate-system"
    cluster: str = ""
    record: Path | None = None
    rehearsal: Path | None = None
    limits: Limits = LIMITS

    @property
    def live(self) -> bool:
        """Return whether the state comes from a live cluster."""
        return self.in_cluster or self.kubeconfig is not None

    def in_effect(self) -> dict[str, object]:
        """Return the value of every flag by field, for the log. It contains file names, but no file contents."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "limits"}
        secret = "/".join(self.tls_secret) if self.tls_secret is not None else None
        return values | {"policies": self.policies or ("shipped",), "tls_secret": secret}


def serve(options: ServeOptions) -> int:
    """Serve until a signal arrives.

    Returns:
        The exit code: 0, or 2 if policies, state, certificate, or addresses are invalid. The reason is on stderr.
    """
    configure_logging()
    try:
        certificate = _certificate(options)
        paths = (*(options.policies or (SHIPPED,)), *options.state)
        reloader = Reloader(partial(build_snapshot, options), paths)
        if options.record is not None:
            prepare_folder(options.record)
        return uvloop.run(_serve(options, certificate, reloader))
    except (PolicyErrors, StateErrors, CertificateProblem, UnusableCredentialsError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return CANNOT_JUDGE
    finally:
        flush_log()


def _certificate(options: ServeOptions) -> ServingCertificate:
    """Load the certificate, or create one for this run. Raise CertificateProblem if there is no valid certificate."""
    source: Callable[[], KeyPair] | KeyPair
    if options.tls_cert is not None and options.tls_key is not None:
        source = partial(read_pair, options.tls_cert, options.tls_key)
    elif options.tls_secret is not None:
        _, source = self_signed(options.tls_name, [], utc_now())
    elif options.self_signed:
        names = ["localhost", socket.gethostname(), *options.tls_name]
        authority, source = self_signed(names, ["127.0.0.1", "::1"], utc_now())
        log.info("self-signed certificate created", ca_bundle=base64.b64encode(authority).decode())
    else:
        raise CertificateProblem(
            "there is no certificate to serve", "pass --tls-cert and --tls-key, --tls-secret, or --self-signed"
        )
    return ServingCertificate(source, names=options.tls_name, client_ca=options.client_ca)


def build_snapshot(options: ServeOptions) -> Snapshot:
    """Read policies and state. Raise PolicyErrors or StateErrors if they are invalid."""
    bundle = load_bundle(options.policies, cluster=options.cluster)
    if options.state:
        return Snapshot(bundle, FileState(options.state, bundle.providers))
    return Snapshot(bundle, FixedState(_NOT_READ if options.live else NOTHING_KNOWN))


async def _serve(options: ServeOptions, certificate: ServingCertificate, reloader: Reloader) -> int:
    stop = Stop()
    stop.on_signals()
    listener, ops_listener = options.listen.bind(), options.ops.bind()
    cluster = LiveCluster(await Api.connect(options.kubeconfig), options.namespace) if options.live else None
    port, limits = listener.getsockname()[1], options.limits
    log.info(
        "listening",
        port=port,
        ops_port=ops_listener.getsockname()[1],
        version=__version__,
        bundle=reloader.snapshot.bundle.hash,
        flags=options.in_effect(),
    )
    managed = None
    if options.tls_secret is not None and cluster is not None:
        managed = SelfManaged(
            cluster.api,
            options.tls_secret,
            options.tls_name,
            certificate=certificate,
            replica=f"{socket.gethostname()}.{port}",
            limits=limits,
        )
    callers = frozenset(options.client_name)
    record = options.record
    replica = Replica(listener, certificate, reloader, limits, cluster, record=record, callers=callers, managed=managed)
    runner = await OpsPort(replica, options.rehearsal).start(ops_listener)
    await replica.run(stop)
    await runner.cleanup()
    return 0
