"""Check a live installation as an on-call engineer would: ``spotgate doctor``.

Check a live installation, and report how to fix problems.

Checks replicas, certificates, webhook configurations, permissions, clocks, versions, and failed
calls. Tries every policy kind with dryRun=All, which writes nothing.

examples:
  %(prog)s
  %(prog)s -o json

exit codes:
  0  no check failed; warnings and unknowns are printed
  1  a check failed
  2  the cluster can't be read
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, FOUND
from webhook.base.terminal import Line, as_json, counted, show
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.commands.shared.flags import add_connection, add_format, add_namespace, options_of
from webhook.commands.shared.help import help_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.commands.doctor.installation import Diagnosis, State

DESCRIPTION, EPILOG = help_of(__doc__)

_STYLES: Final[Mapping[State, str]] = {"ok": "green", "warn": "yellow", "fail": "red", "unknown": "cyan"}


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    add_connection(parser)
    add_namespace(parser, "where spotgate runs")
    add_format(parser)


def run(namespace: Namespace) -> int:
    """Run all checks and print the results."""
    from webhook.commands.doctor.examine import examine

    connection = options_of(Connection, namespace)
    diagnoses = run_on_cluster("doctor", connection, lambda api: examine(api, namespace.namespace))
    states = Counter(diagnosis.state for diagnosis in diagnoses)
    if namespace.output == "json":
        print(as_json({"checks": diagnoses, "summary": {state: states[state] for state in _STYLES}}))
    else:
        show(_lines(diagnoses, states))
    return FOUND if states["fail"] else FINE


def _lines(diagnoses: Sequence[Diagnosis], states: Counter[State]) -> Iterator[Line]:
    width = max(len(diagnosis.name) for diagnosis in diagnoses)
    for diagnosis in diagnoses:
        state, name = f"{diagnosis.state:7} ", f"{diagnosis.name:{width}}  "
        yield [(state, _STYLES[diagnosis.state]), (name, "bold"), (diagnosis.what, "")]
        if diagnosis.fix:
            yield [(f"{'':8}fix: ", "green"), (diagnosis.fix, "")]
    summary = ", ".join(f"{states[state]} {state}" for state in _STYLES if states[state])
    yield [(f"{counted(len(diagnoses), 'check')}: {summary}", "bold")]
