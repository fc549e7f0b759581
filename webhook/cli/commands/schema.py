"""``spotgate schema``: print the JSON Schema of policy files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.cli.exits import FINE
from webhook.cli.export.policy_schema import editor_schema
from webhook.cli.terminal import as_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION: Final = """\
Print the JSON Schema (draft 7) of policy files, for editors: completion, explanations, and
mistakes underlined.
"""

EPILOG: Final = """\
examples:
  %(prog)s > schema.json

  With the YAML language server (VS Code, Neovim, JetBrains ...), as the first line of a policy file:
  # yaml-language-server: $schema=schema.json

exit codes:
  0  always
"""


def configure(parser: ArgumentParser) -> None:
    """Declare no flags."""
    del parser


def run(options: Namespace) -> int:
    """Print the schema."""
    del options
    print(as_json(editor_schema()))
    return FINE
