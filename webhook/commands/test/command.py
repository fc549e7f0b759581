"""Run PolicyTests on the webhook's engine: ``spotgate test``.

Run policy tests: documents of kind PolicyTest in files and folders.

Each case is a request with the expected answer of the policies. It is defaulted, mutated, and
validated as in a cluster.

policies under test:
  Those of --policies. Without it: the shipped ones and those among the paths. A case that names no
  policies uses those among the paths, if any. Folders called `tests` contain no policies.

examples:
  %(prog)s policies/
  %(prog)s --coverage policies/
  %(prog)s --policies policies/ -o junit team-a/tests/

exit codes:
  0  every case passed
  1  a case failed
  2  a test or a policy is invalid, a file can't be read, or there is no test
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import complain, exit_code, show
from webhook.commands.shared.flags import add_format, add_policies, options_of
from webhook.commands.shared.help import help_of
from webhook.commands.test.coverage import coverage
from webhook.commands.test.output import FORMATS, PolicyTestReport, lines_of
from webhook.commands.test.run import Runner, read_tests
from webhook.engine.bundle import OWN_NAMESPACE, SHIPPED
from webhook.inputs.policies import read_policies
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument("paths", metavar="DIR", nargs="+", type=Path, help="files and folders with PolicyTests")
    default = "repeatable; default: `shipped`, and those in DIR"
    add_policies(parser, default)
    add_format(parser, ("table", *FORMATS))
    parser.add_argument("--coverage", action="store_true", help="list the parts of each policy that no case reaches")
    parser.add_argument("--update", action="store_true", help="write golden files")


@dataclass(frozen=True, slots=True)
class TestOptions:
    """The parsed flags."""

    paths: list[Path]
    policies: list[Path]
    output: str
    coverage: bool
    update: bool


def run(namespace: Namespace) -> int:
    """Run the tests."""
    options = options_of(TestOptions, namespace)
    tests, problems, brings_policies = read_tests(options.paths)
    problems.sort()
    paths = options.policies or (options.paths if brings_policies else [])
    own = brings_policies and not options.policies
    bundle = read_policies([SHIPPED, *paths] if own else paths, own_namespace=OWN_NAMESPACE)
    names = {policy.name for policy in bundle.own if policy.is_policy} if own else set()
    tested = tuple(policy.name for policy in bundle.policies if not names or policy.name in names)
    where = ", ".join(map(str, options.paths))
    if not tests and not problems:
        raise CannotJudgeError(f"{where}: contains no PolicyTest; see spotgate test --help")
    if tests and not paths:
        text = "contains no policies, so those that ship with spotgate are tested; name others with --policies"
        complain(f"{where}: warning: {text}")
    runner = Runner(bundle, tested, now=utc_now(), update=options.update)
    results = [result for test in tests for result in runner.run(test)]
    covered = coverage(bundle, [result.reached for result in results], tested) if options.coverage else None
    against = ", ".join(map(str, paths)) or "the policies that ship with spotgate"
    report = PolicyTestReport(against, results, problems, covered)
    if options.output == "table":
        show(lines_of(report))
    else:
        print(FORMATS[options.output](report))
    problems += [problem for result in results for problem in result.problems]
    warned = [warning for result in results for warning in result.warnings]
    if warned:
        sys.stdout.flush()
        complain(*map(str, warned))
    return exit_code(map(str, dict.fromkeys(problems)), failed=not all(result.passed for result in results))
