"""Add the webhook's changes to manifests: ``spotgate fix``.

Write the webhook's changes to the manifests, so that a repository shows what will run.

fix only adds lines: comments, quotes, order, indentation, and line ends stay. It refuses any other
change, with the line. For findings, use `spotgate check`.

kustomizations and charts:
  fix changes their files without rendering them, and names their folders in a warning.

refused changes:
  A change in a part that a YAML alias or `<<` repeats: write that part out first.

examples:
  %(prog)s --diff deploy/
  %(prog)s --state cluster/ deploy/ nodepools.yaml

exit codes:
  0  done; with --check and --diff: nothing to write
  1  with --check and --diff: there is something to write
  2  a file or object can't be read, evaluated, or changed (the others are changed), or there is no object
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.exits import CannotJudgeError
from webhook.base.field_paths import parse_field_path
from webhook.base.terminal import complain, exit_code
from webhook.commands.fix.edits import ProblemError, patch_file
from webhook.commands.shared.flags import add_inputs
from webhook.commands.shared.help import help_of
from webhook.commands.shared.options import judging_options
from webhook.inputs.files import STDIN
from webhook.judging.session import Judgements, judge
from webhook.model.decision import ENGINE, Outcome
from webhook.policy.errors import problem_lines
from webhook.report.report import alike

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator


DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--diff", action="store_true", help="show the changes, and write nothing")
    instead.add_argument("--check", action="store_true", help="exit with 1 if there are changes, and write nothing")
    add_inputs(parser)
    parser.set_defaults(operation="CREATE")


def run(namespace: Namespace) -> int:
    """Evaluate the manifests and write the patches to their files."""
    if STDIN in namespace.paths:
        raise CannotJudgeError("error: fix writes files, and standard input is none; save it as a file first")
    options = judging_options(namespace)
    judged = judge(options)
    problems = list(judged.problems)
    dry = namespace.diff or namespace.check
    tops = [Path(path).resolve() for path in options.paths]
    patched = (pair for pair in judged.objects if pair[1].patch and pair[1].problem is None)
    changed = 0
    for file, objects in alike(patched, lambda pair: pair[0].file).items():
        real = Path(file).resolve()
        if Path(file).is_symlink() and not any(map(real.is_relative_to, tops)):
            fix = f"to change that file, pass {real} too"
            complain(f"{file}: warning: is a link to a file elsewhere, and is not changed; {fix}")
            continue
        try:
            patch_file(file, objects, writes=not dry, shows=namespace.diff)
            changed += 1
        except ProblemError as error:
            problems.append(error.problem)
    sys.stdout.flush()
    for text in _indeterminate(judged):
        complain(text)
    return exit_code(problem_lines(problems), failed=bool(changed and dry))


def _indeterminate(judged: Judgements) -> Iterator[str]:
    """Yield each reason why an injection is unknown: without it, an unchanged file looks complete."""
    injecting = {ENGINE, *(policy.name for policy in judged.bundle.index.policies if policy.mutator is not None)}
    unknown = [
        (finding.reason, finding.fix, f"{manifest.file}:{manifest.position_of(parse_field_path(finding.field))[0]}")
        for manifest, judgement in judged.objects
        for finding in (judgement.findings if judgement.problem is None else ())
        if finding.outcome == Outcome.INDETERMINATE and finding.policy in injecting
    ]
    for (reason, fix), places in alike(unknown, lambda finding: finding[:2]).items():
        more = f" (and at {len(places) - 1} more places)" if len(places) > 1 else ""
        yield f"{places[0][2]}: indeterminate: {reason}; {fix}{more}"
