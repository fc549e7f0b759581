"""Answer one AdmissionReview with the server's exact bytes: ``spotgate review``.

Answer one AdmissionReview as the webhook does.

Reads the JSON of the API server, and writes the exact body of the HTTP response. The exit code
doesn't depend on the verdict.

examples:
  %(prog)s --phase mutate review.json
  %(prog)s --state cluster/ - < review.json

exit codes:
  0  answered
  2  FILE isn't an AdmissionReview, or policies or state are invalid
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.exits import FINE, CannotJudgeError
from webhook.base.reading import read_file
from webhook.commands.shared.flags import add_cluster, add_kubernetes_version, add_list, add_policies, options_of
from webhook.commands.shared.help import help_of
from webhook.engine.call import decide_call, respond_to_call
from webhook.inputs.policies import read_policies, read_state
from webhook.inputs.review_errors import position_of
from webhook.model.review import BadReviewError, decode_review
from webhook.rules.context import Context, Phase, utc_now

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument("file", metavar="FILE", help="the AdmissionReview, JSON; - is standard input")
    parser.add_argument(
        "--phase",
        choices=[str(phase) for phase in Phase],
        default=str(Phase.VALIDATE),
        help="mutate returns patches, validate (the default) returns findings",
    )
    add_policies(parser)
    has = "node pools, Namespaces, Nodes, PodDisruptionBudgets; files or folders; repeatable"
    unknown = "default: the cluster is unknown, as to a webhook that can't reach it"
    add_list(parser, "--state", "PATH", f"manifests of the cluster: {has}; {unknown}", Path)
    add_cluster(parser)
    add_kubernetes_version(parser)


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """The parsed flags."""

    file: str
    phase: str
    policies: list[Path]
    state: list[Path]
    cluster: str
    kubernetes_version: tuple[int, int]


def run(namespace: Namespace) -> int:
    """Answer the review."""
    options = options_of(ReviewOptions, namespace)
    data = _read(options.file)
    try:
        request = decode_review(data)
    except BadReviewError as error:
        line, column = position_of(data, str(error))
        raise CannotJudgeError(f"{options.file}:{line}:{column}: {error}") from None
    bundle = read_policies(options.policies, cluster=options.cluster)
    view = read_state(options.state, bundle)
    phase = Phase(options.phase)
    context = Context(phase=phase, now=utc_now()).seeing(view, options.kubernetes_version)
    sys.stdout.buffer.write(respond_to_call(decide_call(request, bundle, context)))
    return FINE


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else read_file(file, pipes=True)
    except OSError as error:
        raise CannotJudgeError(f"{file}: can't be read: {error.strerror or error}") from None
