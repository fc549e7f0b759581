"""``spotgate new KIND``: a commented first draft of a policy file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from webhook.cli.exits import FINE, CannotJudgeError
from webhook.cli.policy_schema import spec_models
from webhook.cli.starter import starter
from webhook.policy.common import Metadata
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION: Final = """\
Write a commented first draft of a policy file.

What must be there has a placeholder marked EDIT, what may be left out is commented out with its
default. The draft loads as it is.
"""

EPILOG: Final = """\
examples:
  %(prog)s ReservedLabels
  %(prog)s OnDemandFallback --name gpu-fallback -o policies/gpu-fallback.yaml
  %(prog)s PolicyTest -o policies/tests/gpu-fallback.yaml

exit codes:
  0  it is written
  2  there is no such kind, the name is none, or the file is there already
"""

_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("kind", metavar="KIND", help=f"one of {', '.join(sorted(spec_models()))}")
    parser.add_argument("--name", help="the document's name; default: made of the kind, as my-reserved-labels")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="a new file; default: -, standard output")


def run(options: Namespace) -> int:
    """Write it."""
    kinds = spec_models()
    if options.kind not in kinds:
        known = ", ".join(sorted(kinds))
        raise CannotJudgeError(f"unknown kind {options.kind!r}{did_you_mean(options.kind, kinds)}; there are: {known}")
    # Those that ship are named as their kind, and the draft may lie beside them.
    name = f"my-{_WORD.sub('-', options.kind).lower()}" if options.name is None else options.name
    try:
        Metadata(name=name)
    except ValidationError:
        allowed = "lower case letters, digits, '-' and '.', at most 63, a letter or digit first and last"
        raise CannotJudgeError(f"--name {name!r} is no name: it has {allowed}") from None
    text = starter(options.kind, name)
    if options.output in {None, Path("-")}:
        print(text, end="")
        return FINE
    try:
        with options.output.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise CannotJudgeError(f"{options.output}: is there already, and is left as it is; name another file") from None
    except OSError as error:
        raise CannotJudgeError(f"{options.output}: can't be written: {error.strerror or error}") from None
    return FINE
