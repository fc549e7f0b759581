"""Evaluate recorded reviews with other policies, before you roll those out: ``spotgate replay``.

Evaluate recorded reviews with other policies, and list changed verdicts and patches.

Reads the files of `spotgate serve --record`, and AdmissionReviews. A recorded review is evaluated
with the cluster, the Kubernetes versions, and the time of its recording.

examples:
  %(prog)s recordings/ --policies policies/ --against ../main/policies/ -o json
  %(prog)s review.json --policies policies/ --against ../main/policies/ --state cluster/

exit codes:
  0  no changes
  1  changes
  2  some reviews can't be evaluated (the others are), or policies or state are invalid
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.terminal import as_json, exit_code, show
from webhook.commands.replay.output import change_lines, changes_json
from webhook.commands.replay.replay import AnswerChange, Policies, changes_of, read_reviews
from webhook.commands.shared.flags import (
    add_format,
    add_kubernetes_version,
    add_list,
    add_policies,
    options_of,
    path,
)
from webhook.commands.shared.help import help_of
from webhook.inputs.policies import policies_path, read_policies, read_state
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence


DESCRIPTION, EPILOG = help_of(__doc__)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The parsed flags."""

    files: list[str]
    policies: list[Path]
    against: list[Path]
    state: list[Path]
    kubernetes_version: tuple[int, int]
    output: str

    def read(self, paths: Sequence[Path]) -> Policies:
        """Read policies, and the cluster's state, if any."""
        bundle = read_policies(paths)
        return Policies(bundle, read_state(self.state, bundle) if self.state else None, self.kubernetes_version)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument("files", metavar="FILE", nargs="+", type=path, help="files and folders; - reads standard input")
    add_policies(parser)
    compared = "compare with the answers of these policies; `shipped` names spotgate's own; repeatable"
    add_list(parser, "--against", "PATH", f"{compared}; default: the recorded answers", policies_path)
    default = "default: the recorded cluster; unknown for other reviews"
    add_list(parser, "--state", "PATH", f"manifests of the cluster; files or folders; repeatable; {default}", Path)
    add_kubernetes_version(parser)
    add_format(parser)


def run(namespace: Namespace) -> int:
    """Evaluate the reviews again and print the changes."""
    options = options_of(ReplayOptions, namespace)
    new = options.read(options.policies)
    old = options.read(options.against) if options.against else None
    changes: list[AnswerChange] = []
    problems: list[Problem] = []
    reviews = 0
    for review in read_reviews(options.files):
        if isinstance(review, Problem):
            problems.append(review)
        elif review.recorded is None and old is None:
            text = "has no recorded answer; pass the policies to compare with: --against"
            problems.append(Problem(review.file, review.line, 1, "", text))
        else:
            changes += changes_of(review, new, old)
            reviews += 1
    problems += sorted(new.problems | (old.problems if old else set()))
    if options.output == "json":
        print(as_json(changes_json(changes, reviews, problems)))
    else:
        show(change_lines(changes, reviews))
    return exit_code(map(str, problems), failed=bool(changes))
