"""Print an example of a policy file: ``spotgate new KIND``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, CannotJudgeError
from webhook.engine.bundle import example_files
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION: Final = """\
Print an example of a policy file, which loads next to the shipped policies.
"""

EPILOG: Final = """\
examples:
  %(prog)s ReservedLabels
  %(prog)s PolicyTest > policies/tests/team.yaml

exit codes:
  0  printed
  2  there is no such kind
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("kind", metavar="KIND", help=f"one of {', '.join(example_files())}")


def run(options: Namespace) -> int:
    """Print the example."""
    kinds = example_files()
    if options.kind not in kinds:
        names = ", ".join(kinds)
        raise CannotJudgeError(f"unknown kind {options.kind!r}{did_you_mean(options.kind, kinds)}; there are: {names}")
    print(kinds[options.kind].read_text(encoding="utf-8"), end="")
    return FINE
