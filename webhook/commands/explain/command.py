"""Explain what each policy does to an object, or explain a finding: ``spotgate explain``.

Explain what each policy does to an object and why, what a reclaim does to its Pods, and how
spotgate reads a node pool. Name an object of a live cluster as deployment/web, with --kubeconfig.
Name a finding, a policy, or a policy kind to explain its findings.

examples:
  %(prog)s reserved-labels/reserved
  %(prog)s --state cluster/ deploy/trainer.yaml
  %(prog)s --state cluster/ -o html deploy/trainer.yaml > trainer.html
  %(prog)s deployment/web -n shop --kubeconfig ~/.kube/config

exit codes:
  0  explained, with any verdict
  2  an input can't be read or evaluated, or -o svg has no timeline to draw
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, CannotJudgeError
from webhook.base.terminal import Line, exit_code, show
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.commands.shared.flags import add_format, add_inputs, add_operation, add_rendered
from webhook.commands.shared.help import help_of
from webhook.commands.shared.options import judging_options
from webhook.engine.bundle import policy_kinds
from webhook.engine.findings import exemption_from, finding_texts, page_of
from webhook.inputs.files import STDIN
from webhook.inputs.policies import read_policies
from webhook.judging.session import judge
from webhook.policy.errors import did_you_mean
from webhook.reclaim.timeline import ReclaimTimeline
from webhook.report.explanation import explanations

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from webhook.inputs.options import JudgingOptions

DESCRIPTION, EPILOG = help_of(__doc__)

FORMATS: Final = ("text", "svg", "html")


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    formats = "text, svg (the timelines as a drawing), or html (a page with both); default: %(default)s"
    add_format(parser, FORMATS, formats)
    add_operation(parser)
    vars(add_inputs(parser))["completer"] = _completions
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="of KIND/NAME; default: the kubeconfig's")
    add_rendered(parser)


def run(namespace: Namespace) -> int:
    """Explain the objects, or the finding, policy, or policy kind that the argument names."""
    if named := _named(namespace.paths, namespace.policies):
        show(named)
        return FINE
    output: str = namespace.output
    judged = judge(_read_live(judging_options(namespace), namespace.namespace), trace=True)
    explained = list(explanations(judged))
    drawn = any(isinstance(line, ReclaimTimeline) for explanation in explained for line in explanation.timelines)
    if drawn or output != "svg":
        import_module(f"webhook.commands.explain.{output}").show(explained)
    elif not judged.problems:
        raise CannotJudgeError("error: no Pod here runs on spot, so there is no timeline to draw; -o text says why")
    return exit_code(map(str, sorted(judged.problems)), failed=False)


def _completions(*, prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """Return the files, finding ids, policy kinds, and policies for shell completion, which selects by the prefix."""
    from argcomplete.completers import FilesCompleter

    policies = (policy.name for policy in read_policies(parsed_args.policies).policies)
    return [*FilesCompleter()(prefix), *finding_texts(), *policy_kinds(), *policies]


def _named(paths: Sequence[str], policies: Sequence[Path]) -> list[Line]:
    """Return the text of the named finding, or the findings of the named policy or kind. Return none for a path.

    Raise CannotJudgeError if the argument looks like a finding id but is unknown.
    """
    word, *others = paths or [""]
    if others or Path(word).exists():
        return []
    texts = finding_texts()
    if word in texts:
        return list(_finding(word))
    if "/" in word:
        alike = [finding_id for finding_id in texts if finding_id.startswith(f"{word.partition('/')[0]}/")]
        begun = [finding_id for finding_id in alike if finding_id.startswith(word)]
        hint = did_you_mean(begun[0] if len(begun) == 1 else word, texts, cutoff=0.75)
        if not hint and not alike:
            return []
        listed = "\n  ".join(alike or texts)
        raise CannotJudgeError(f"error: there is no file and no finding {word}{hint}\nthe findings are:\n  {listed}")
    if not word.replace("-", "").isalnum():
        return []
    slugs = {kind.slug for kind in policy_kinds().values() if word in {kind.name, kind.slug}}
    if not slugs:
        slugs = {policy.kind.slug for policy in read_policies(policies).policies if policy.name == word}
    return [
        [(finding_id, "bold"), (f"  {text.means}", "")]
        for finding_id, text in texts.items()
        if finding_id.partition("/")[0] in slugs
    ]


def _read_live(options: JudgingOptions, namespace: str) -> JudgingOptions:
    """Read the object KIND/NAME from the cluster, and replace standard input with it."""
    if options.kubeconfig is None or len(options.paths) != 1 or Path(options.paths[0]).exists():
        return options
    kind, slash, name = options.paths[0].partition("/")
    if not (slash and kind and name) or "/" in name:
        return options
    from webhook.commands.explain.live import read_object

    connection = Connection(kubeconfig=options.kubeconfig, context=options.context)
    content = run_on_cluster("explain", connection, lambda api: read_object(api, kind, name, namespace))
    sys.stdin = io.TextIOWrapper(io.BytesIO(content))
    # Treat it as a CREATE: as an UPDATE, nothing in it would be new.
    return replace(options, paths=[STDIN], operation=options.operation or "CREATE")


def _finding(finding_id: str) -> Iterator[Line]:
    """Yield the text of the finding."""
    text = finding_texts()[finding_id]
    parts = [
        ("Why it matters", text.matters),
        *((title, f"# spotgate check {flags}\n{shown}" if flags else shown) for title, flags, shown in text.examples),
        ("Exemptions", exemption_from(finding_id)),
        ("Page", page_of(finding_id)),
    ]
    yield [(finding_id, "bold")]
    yield [(text.means, "")]
    for title, body in parts:
        if body:
            yield []
            yield [(title, "bold")]
            yield from ([(f"  {line}", "")] for line in body.rstrip("\n").split("\n"))
