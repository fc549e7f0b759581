"""Print an example policy file: ``spotgate new KIND``.

Print an example policy file, which loads next to the shipped policies.

examples:
  %(prog)s ReservedLabels
  %(prog)s PolicyTest > policies/tests/team.yaml

exit codes:
  0  printed
  2  the kind is unknown
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.base.exits import FINE, CannotJudgeError
from webhook.commands.shared.help import help_of
from webhook.engine.bundle import example_files
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    kind = parser.add_argument("kind", metavar="KIND", help=f"one of {', '.join(example_files())}")
    vars(kind)["completer"] = lambda **_: [*example_files()]


def run(namespace: Namespace) -> int:
    """Print the example."""
    kinds, kind = example_files(), str(namespace.kind)
    if kind not in kinds:
        raise CannotJudgeError(f"unknown kind {kind!r}{did_you_mean(kind, kinds)}; available: {', '.join(kinds)}")
    print(kinds[kind].read_text(encoding="utf-8"), end="")
    return FINE
