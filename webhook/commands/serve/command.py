"""Run the webhook: ``spotgate serve``.

Run the admission webhook.

Answers AdmissionReviews over TLS: POST /mutate and POST /validate. A second port, plain HTTP, has
/healthz, /readyz, /metrics, /version, and a page at /. spotgate loads changed policies, state, and
certificates. If they are invalid, it keeps the last valid ones.

examples:
  %(prog)s --tls-cert tls.crt --tls-key tls.key --policies policies/
  %(prog)s --self-signed --listen 127.0.0.1:8443 --ops 127.0.0.1:8080 --state cluster/

exit codes:
  0  stopped by a signal, after all requests were answered
  2  policies, state, certificate, or addresses are invalid
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.exits import FINE, CannotJudgeError
from webhook.commands.shared.flags import (
    add_address,
    add_cluster,
    add_list,
    add_namespace,
    add_policies,
    object_name,
    options_of,
)
from webhook.commands.shared.help import help_of
from webhook.server.serve import ServeOptions, serve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    certificate = parser.add_argument_group("certificate (files, a Secret or --self-signed)")
    chain = "the certificate with its intermediates, PEM"
    certificate.add_argument("--tls-cert", metavar="FILE", type=Path, help=chain)
    certificate.add_argument("--tls-key", metavar="FILE", type=Path, help="its private key, PEM")
    certificate.add_argument(
        "--tls-secret",
        metavar="NAMESPACE/NAME",
        type=object_name,
        help="manage a CA and the certificate in this Secret, and the caBundles",
    )
    trial = "create a temporary certificate, and log its CA"
    certificate.add_argument("--self-signed", action="store_true", help=trial)
    must = "a DNS name or IP address of the certificate, such as spotgate.spotgate-system.svc"
    add_list(certificate, "--tls-name", "NAME", f"{must}; repeatable")
    callers = parser.add_argument_group("clients (default: all that reach the port)")
    known = "serve only clients with a certificate of these CAs, PEM"
    callers.add_argument("--client-ca", metavar="FILE", type=Path, help=known)
    only = "serve only clients whose certificate has this common name or DNS name; repeatable"
    add_list(callers, "--client-name", "NAME", only)
    addresses = parser.add_argument_group("addresses")
    add_address(addresses, "--listen", "TLS", 8443)
    add_address(addresses, "--ops", "operators'", 8080)
    add_policies(parser)
    state = parser.add_argument_group("the cluster's state (at most one of these; default: it is unknown)")
    state.add_argument("--in-cluster", action="store_true", help="read the cluster as the Pod's ServiceAccount")
    state.add_argument("--kubeconfig", metavar="FILE", type=Path, help="read the cluster of this file")
    shown = "manifests of node pools, Namespaces, Nodes, and PodDisruptionBudgets; files or folders"
    state.add_argument("--state", metavar="PATH", type=Path, nargs="+", action="extend", default=[], help=shown)
    add_namespace(state, "where `spotgate controller` runs, whose Lease is watched")
    add_cluster(state)
    parser.add_argument(
        "--record",
        metavar="DIR",
        type=Path,
        help="record decisions in this folder, for `spotgate replay`, without Secrets, ConfigMaps, tokens, and "
        "values of environment variables",
    )
    parser.add_argument(
        "--rehearsal",
        metavar="FILE",
        type=Path,
        help="the results of `spotgate rehearse --publish`, for metrics and the operators' page; optional",
    )


def run(namespace: Namespace) -> int:
    """Serve until a signal arrives."""
    options = options_of(ServeOptions, namespace)
    files = [options.tls_cert is not None, options.tls_key is not None]
    problem = ""
    if [any(files), options.tls_secret is not None, options.self_signed].count(True) != 1 or any(files) != all(files):
        problem = (
            "give either --tls-cert and --tls-key, or --tls-secret, or --self-signed; in a cluster, a component of "
            "the manifests does (docs/certificates.md)"
        )
    elif options.tls_secret is not None and not (options.tls_name and (options.in_cluster or options.kubeconfig)):
        problem = (
            "--tls-secret needs --tls-name, such as spotgate.spotgate-system.svc, and --in-cluster or --kubeconfig"
        )
    elif sum(map(bool, (options.in_cluster, options.kubeconfig, options.state))) > 1:
        problem = "give at most one of --in-cluster, --kubeconfig and --state"
    elif options.client_name and options.client_ca is None:
        problem = "--client-name needs --client-ca"
    if problem:
        raise CannotJudgeError(f"spotgate serve: error: {problem}")
    # As process 1 of a container, a program without a handler ignores SIGTERM. The server replaces this handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FINE))
    return serve(options)
