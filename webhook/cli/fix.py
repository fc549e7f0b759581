"""``spotgate fix``: what the webhook would inject, written into the manifests."""

from __future__ import annotations

import codecs
import sys
from collections import defaultdict
from copy import deepcopy
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND, CannotJudgeError
from webhook.cli.inputs import judge
from webhook.cli.options import add_inputs
from webhook.cli.project import take_project_file
from webhook.cli.writing import write_whole
from webhook.cluster.sources import STDIN
from webhook.documents import DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from webhook.cli.judging import Judgement
    from webhook.cluster.manifests import Manifest
    from webhook.documents import Document, JSONValue

DESCRIPTION: Final = """\
Write what the webhook would inject into the manifests, so that a repository says what will run.

Only what is added changes: comments, quotes, order, indentation and line ends stay as they are. A
file is written whole or not at all. What would need more than that is refused, with the line.
Findings are the business of `spotgate check`.
"""

EPILOG: Final = """\
what is refused:
  A change inside of what a YAML alias repeats or `<<` merges in would show in another place, or
  nowhere: write that part out first.

examples:
  %(prog)s --diff deploy/
  %(prog)s --state cluster/ deploy/ nodepools.yaml

exit codes:
  0  done; with --check and --diff: nothing to write
  1  with --check and --diff: there is something to write
  2  something can't be read or judged, and then nothing is written, for it may hold what others
     depend on; or a file can't be changed in place or written, and the others are
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--diff", action="store_true", help="show what would be written, and write nothing")
    instead.add_argument(
        "--check", action="store_true", help="write nothing; end with 1 if there is something to write"
    )
    add_inputs(parser)
    parser.set_defaults(operation="CREATE")


def run(options: Namespace) -> int:
    """Judge, and write."""
    if STDIN in options.paths:
        raise CannotJudgeError("error: fix writes files, and standard input is none; save it as a file first")
    take_project_file(options)
    judged = judge(options)
    problems = list(judged.problems)
    writes = not (options.diff or options.check or problems)
    patched: defaultdict[str, list[tuple[Manifest, Judgement]]] = defaultdict(list)
    for manifest, judgement in judged.objects:
        if judgement.patch:
            patched[manifest.file].append((manifest, judgement))
    changed = 0
    for file, objects in patched.items():
        try:
            _fix(file, objects, writes=writes, shows=options.diff)
            changed += 1
        except ProblemError as error:
            problems.append(error.problem)
    if problems:
        sys.stdout.flush()
        print("\n".join(map(str, sorted(problems))), file=sys.stderr)
        if judged.problems and not (options.diff or options.check):
            print("nothing was written: what can't be judged may decide what the others need", file=sys.stderr)
        return CANNOT_JUDGE
    return FOUND if changed and (options.diff or options.check) else FINE


def _fix(file: str, objects: list[tuple[Manifest, Judgement]], *, writes: bool, shows: bool) -> None:
    """Write one file, or say or show what would be written.

    Raises:
        ProblemError: it can't be done.
    """
    try:
        if Path(file).is_fifo():  # and empty by now
            raise ProblemError(Problem(file, 0, 0, "", "can't be written: it is a pipe; save it as a file first"))
        before = Path(file).read_bytes()
        after = _changed(before, file, objects)
        if writes:
            write_whole(Path(file), after)
    except OSError as error:
        raise ProblemError(Problem(file, 0, 0, "", f"can't be written: {error.strerror or error}")) from None
    if shows:
        print(_difference(file, before.decode(), after.decode()), end="")
    else:
        print(f"{file}: {'changed' if writes else 'would be changed'}")


class ProblemError(Exception):
    """A file that can't be changed, and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _changed(data: bytes, file: str, objects: list[tuple[Manifest, Judgement]]) -> bytes:
    """The file with the patches of its objects in it.

    Raises:
        ProblemError: it can't be done in place.
    """
    wanted = _wanted(objects)
    text = data.decode("utf-8-sig")
    ended = text if text.endswith("\n") else f"{text}\n"  # as it was read
    for document, value in reversed(wanted):
        end = document.begin + len(document.source)
        if ended[document.begin : end] != document.source:
            raise ProblemError(Problem(file, 0, 0, "", "was changed by somebody else meanwhile; try again"))
        try:
            new = edited(document.source, document.value, value)
        except EditError as error:
            problem = f"can't be changed in place: {error.problem}; {error.fix}"
            raise ProblemError(Problem(file, document.line + error.line, 1, "", problem)) from None
        ended = ended[: document.begin] + new + ended[end:]
    result = ended if text.endswith("\n") else ended.removesuffix("\n")
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    _verify(bom + result.encode(), data, file, wanted)
    return bom + result.encode()


def _wanted(objects: list[tuple[Manifest, Judgement]]) -> list[tuple[Document, JSONValue]]:
    """Each document that has a patched object, in order, and what it is to become."""
    import jsonpatch  # noqa: PLC0415 - most files need no patch

    wanted: dict[int, tuple[Document, Any]] = {}
    for manifest, judgement in objects:
        document = manifest.document
        _, value = wanted.setdefault(document.begin, (document, deepcopy(document.value)))
        jsonpatch.apply_patch(value, list(judgement.patch), in_place=True)
    return list(wanted.values())


def _verify(after: bytes, before: bytes, file: str, wanted: list[tuple[Document, JSONValue]]) -> None:
    """See that the file says what it should, and every other document what it did: nothing is written on trust.

    Raises:
        ProblemError: it does not.
    """
    becomes = {document.begin: value for document, value in wanted}
    values = [becomes.get(document.begin, document.value) for document in read_documents(before, file)]
    try:
        found = [document.value for document in read_documents(after, file)]
    except DocumentError:
        found = []
    if found != values:
        line = min(document.line for document, _ in wanted)
        raise ProblemError(
            Problem(file, line, 1, "", "can't be changed in place: change it by hand, as check shows it")
        )


def _difference(file: str, before: str, after: str) -> str:
    """A unified diff that ``git apply`` and ``patch -p1`` take."""
    lines = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{file}", f"b/{file}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
