"""Check a live installation as a person on call would: ``spotgate doctor``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, FOUND
from webhook.base.terminal import as_json, counted, show
from webhook.cluster.connection import add_connection, run_on_cluster
from webhook.offline.options import add_namespace, add_table_or_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from webhook.base.terminal import Line
    from webhook.commands.doctor.installation import Diagnosis, State

DESCRIPTION: Final = """\
Check a live installation, and report how to fix problems.

Looks at replicas, certificates, webhook configurations, permissions, clocks, versions, and the
API server's own counts of failed calls, and tries every kind of policy with objects that are
created with dryRun=All: nothing is written.
"""

EPILOG: Final = """\
examples:
  %(prog)s
  %(prog)s --context prod --namespace spotgate-system
  %(prog)s -o json

exit codes:
  0  nothing failed; what is worth a look, or could not be found out, is printed
  1  something failed
  2  the cluster can't be read
"""

_STYLES: Final[Mapping[State, str]] = {"ok": "green", "warn": "yellow", "fail": "red", "unknown": "cyan"}


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    add_connection(parser)
    add_namespace(parser, "where spotgate runs")
    add_table_or_json(parser)


def run(options: Namespace) -> int:
    """Print what each check found."""
    from webhook.commands.doctor import examine  # noqa: PLC0415 - as in `run_on_cluster`

    found = run_on_cluster("doctor", options, lambda api: examine.examine(api, options.namespace))
    states = Counter(each.state for each in found)
    if options.output == "json":
        print(as_json({"checks": found, "summary": {state: states[state] for state in _STYLES}}))
    else:
        show(_lines(found))
    return FOUND if states["fail"] else FINE


def _lines(found: Sequence[Diagnosis]) -> list[Line]:
    width = max(len(each.name) for each in found)
    lines: list[Line] = []
    for each in found:
        lines.append([(f"{each.state:7} ", _STYLES[each.state]), (f"{each.name:{width}}  ", "bold"), (each.what, "")])
        if each.fix:
            lines.append([(f"{'':8}fix: ", "green"), (each.fix, "")])
    states = Counter(each.state for each in found)
    summary = ", ".join(f"{states[state]} {state}" for state in _STYLES if states[state])
    lines.append([(f"{counted(len(found), 'check')}: {summary}", "bold")])
    return lines
