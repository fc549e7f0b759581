"""Print the webhook configurations for the API server: ``spotgate webhook-config``.

Print the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration as YAML.

They select only requests that a policy can match: render them again when policies or provider facts
change. Pods and workloads have failurePolicy Ignore, node pools Fail.

examples:
  %(prog)s --ca-file ca.crt --ca-only | kubectl apply --server-side --field-manager=spotgate-ca -f -
  %(prog)s --policies policies/ | kubectl apply --server-side -f -
  %(prog)s --ignore-differences >> application.yaml

exit codes:
  0  printed
  2  a policy is invalid or matches every resource, or the CA file is invalid
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook import __version__
from webhook.base.exits import FINE, CannotJudgeError
from webhook.base.text import LONG_LINE
from webhook.commands.shared.flags import add_namespace, add_policies, resource_name
from webhook.commands.shared.help import help_of
from webhook.documents.yaml_writer import dump, dump_documents
from webhook.engine.bundle import SHIPPED
from webhook.engine.lint import too_wide
from webhook.inputs.policies import read_policies
from webhook.policy.document import policy_files
from webhook.registration.configurations import configurations, ignore_differences, unconditional_resources

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

DESCRIPTION, EPILOG = help_of(__doc__)

VERSION: Final = "spotgate.dev/version"
OWN_POLICIES: Final = "spotgate.dev/own-policies"
"""The annotations by which the chart detects that its value `webhooks` doesn't match its value `policies`."""

_REQUIRED: Final = ("name", "clientConfig", "sideEffects", "admissionReviewVersions")
"""The required fields of a webhook. `rules` is optional: without rules, the API server never calls the webhook."""


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    add_policies(parser)
    parser.add_argument(
        "--service-name",
        metavar="NAME",
        type=resource_name,
        default="spotgate",
        help="the Service's name; default: %(default)s",
    )
    add_namespace(parser, "the Service's namespace")
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        type=Path,
        help="CA certificates of the webhook, PEM; default: no caBundle",
    )
    parser.add_argument(
        "--ca-only",
        action="store_true",
        help="print only the caBundle, without rules; without --ca-file, the configurations that replicas with "
        "--tls-secret complete",
    )
    parser.add_argument(
        "--ignore-differences",
        action="store_true",
        help="print the injected fields as ignoreDifferences of an Argo CD Application",
    )


def run(options: Namespace) -> int:
    """Print the configurations."""
    bundle = read_policies(options.policies, own_namespace=options.namespace)
    if options.ignore_differences:
        ignored = {"ignoreDifferences": ignore_differences(bundle)}
        print(dump(ignored, width=LONG_LINE))
        return FINE
    if problems := list(too_wide(bundle)):
        raise CannotJudgeError("\n".join(map(str, problems)))
    client: dict[str, Any] = {"service": {"name": options.service_name, "namespace": options.namespace, "port": 443}}
    if options.ca_file is not None:
        client["caBundle"] = _ca_bundle(options.ca_file)
    print(f"# Rendered by `spotgate webhook-config` from policies {bundle.hash}.")
    for policy, resources in unconditional_resources(bundle).items():
        print(f"# No match conditions for policy {policy}: it receives all {', '.join(resources)} that it matches.")
    rendered = configurations(bundle, client)
    for configuration in rendered:
        if options.ca_only:
            webhooks = configuration["webhooks"]
            configuration["webhooks"] = [{key: webhook[key] for key in _REQUIRED} for webhook in webhooks]
        else:  # the CA has another field manager, which must not own annotations that change
            configuration["metadata"]["annotations"] = {VERSION: __version__, OWN_POLICIES: _digest(options.policies)}
    print(dump_documents(rendered, width=LONG_LINE, short_in_brackets=True), end="")
    return FINE


def _digest(paths: Sequence[Path]) -> str:
    """Return a SHA-256 of all policy files except the shipped ones, as the chart computes it from `policies`.

    It is the hash of the files' sorted hashes: names and folders don't count.
    """
    own = policy_files([path for path in paths if path != SHIPPED])
    sums = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in own)
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def _ca_bundle(file: Path) -> str:
    """Return the certificates of a PEM file, without its other contents."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise CannotJudgeError(f"{file}: can't be read: {error.strerror or error}") from None
    except ValueError:
        raise CannotJudgeError(f"{file}: contains no valid certificate; pass the CA's certificate as PEM") from None
    return base64.b64encode(b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)).decode()
