"""``spotgate fix``: what the webhook would inject, written into the manifests."""

from __future__ import annotations

import codecs
import re
import sys
from collections import defaultdict
from copy import deepcopy
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND, CannotJudgeError
from webhook.cli.judging.inputs import judge
from webhook.cli.judging.judge import path_of
from webhook.cli.judging.project import take_project_file
from webhook.cli.options import add_inputs
from webhook.cli.output.writing import write_whole
from webhook.cli.terminal import complain, plain
from webhook.decision import ENGINE, Outcome
from webhook.documents import DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.manifests.files import STDIN
from webhook.patch import apply_json
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from webhook.cli.judging.inputs import Judged
    from webhook.cli.judging.judge import Judgement
    from webhook.documents import Document, JSONValue
    from webhook.manifests.objects import Manifest

DESCRIPTION: Final = """\
Write what the webhook would inject into the manifests, so that a repository says what will run.

Only what is added changes: comments, quotes, order, indentation and line ends stay as they are. A
file is written whole or not at all. What would need more than that is refused, with the line.
Findings are the business of `spotgate check`.
"""

EPILOG: Final = """\
what is refused:
  A change inside of what a YAML alias repeats or `<<` merges in would show in another place, or
  nowhere: write that part out first. A file with several names (hard links) is not written.

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
    sys.stdout.flush()
    untold = [] if judged.problems else _untold(judged)
    for text in [*untold, *map(str, sorted(problems))]:
        complain(text)
    if problems:
        if judged.problems and not (options.diff or options.check):
            print("nothing was written: what can't be judged may decide what the others need", file=sys.stderr)
        return CANNOT_JUDGE
    return FOUND if changed and (options.diff or options.check) else FINE


def _untold(judged: Judged) -> Iterator[str]:
    """What can't be told of what would be injected, once for each reason: that nothing is written is no answer then."""
    injecting = {ENGINE, *(policy.name for policy in judged.bundle.index.policies if policy.mutator is not None)}
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for manifest, judgement in judged.objects:
        for finding in judgement.findings:
            if finding.outcome == Outcome.INDETERMINATE and finding.policy in injecting:
                line, _ = manifest.position_of(path_of(finding.field))
                places[finding.reason, finding.fix].append(f"{manifest.file}:{line}")
    for (reason, fix), (first, *others) in places.items():
        more = f" (and at {len(others)} more places)" if others else ""
        yield f"{first}: indeterminate: {reason}; {fix}{more}"


def _fix(file: str, objects: list[tuple[Manifest, Judgement]], *, writes: bool, shows: bool) -> None:
    """Write one file, or say or show what would be written.

    Raises:
        ProblemError: it can't be done.
    """
    try:
        if Path(file).is_fifo():  # and empty by now
            raise ProblemError(Problem(file, 0, 0, "", "can't be written: it is a pipe; save it as a file first"))
        if writes and (names := Path(file).stat().st_nlink) > 1:
            text = f"can't be written: it has {names} names (hard links), and the others may not be meant; {_UNLINK}"
            raise ProblemError(Problem(file, 0, 0, "", text))
        before = Path(file).read_bytes()
        after = _changed(before, file, objects)
        if writes:
            write_whole(Path(file), after)
    except OSError as error:
        raise ProblemError(Problem(file, 0, 0, "", f"can't be written: {error.strerror or error}")) from None
    if shows:
        print(_difference(file, before.decode(), after.decode()), end="")
    else:
        print(plain([[(f"{file}: {'changed' if writes else 'would be changed'}", "")]]))


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
    try:
        documents = read_documents(data, file)
    except DocumentError:
        raise ProblemError(Problem(file, 0, 0, "", _MEANWHILE)) from None
    text = data.decode("utf-8-sig")
    ended = text if text.endswith("\n") else f"{text}\n"  # as it was read
    for document, value in reversed(wanted):
        end = document.begin + len(document.source)
        if ended[document.begin : end] != document.source:
            raise ProblemError(Problem(file, 0, 0, "", _MEANWHILE))
        try:
            new = edited(document.source, document.value, value)
        except EditError as error:
            problem = f"can't be changed in place: {error.problem}; {error.fix}"
            raise ProblemError(Problem(file, document.line + error.line, 1, "", problem)) from None
        ended = ended[: document.begin] + new + ended[end:]
    result = ended if text.endswith("\n") else ended.removesuffix("\n")
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    after = bom + result.encode()
    _verify(after, documents, file, wanted)
    return after


def _wanted(objects: list[tuple[Manifest, Judgement]]) -> list[tuple[Document, JSONValue]]:
    """Each document that has a patched object, in order, and what it is to become."""
    wanted: dict[int, tuple[Document, Any]] = {}
    for manifest, judgement in objects:
        document = manifest.document
        _, value = wanted.setdefault(document.begin, (document, deepcopy(document.value)))
        apply_json(judgement.patch, value)
    return list(wanted.values())


def _verify(after: bytes, before: list[Document], file: str, wanted: list[tuple[Document, JSONValue]]) -> None:
    """See that the file says what it should, and every other document what it did: nothing is written on trust.

    Raises:
        ProblemError: it does not.
    """
    becomes = {document.begin: value for document, value in wanted}
    values = [becomes.get(document.begin, document.value) for document in before]
    try:
        found = [document.value for document in read_documents(after, file)]
    except DocumentError:
        found = []
    if found != values:
        # Those that come out right are not the reason.
        wrong = [document for document, value in wanted if value not in found] or [document for document, _ in wanted]
        raise ProblemError(Problem(file, wrong[0].line, 1, "", _MISREAD))


def _difference(file: str, before: str, after: str) -> str:
    """A unified diff that ``git apply`` and ``patch -p1`` take."""
    lines = unified_diff(_lines(before), _lines(after), _quoted(f"a/{file}"), _quoted(f"b/{file}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """As Git counts them: `str.splitlines` knows other line ends too."""
    return _LINE.findall(text)


def _quoted(name: str) -> str:
    """As Git writes names that hold quotes, backslashes or control characters."""
    if name.isprintable() and '"' not in name and "\\" not in name:
        return name
    octal = {each: "".join(f"\\{byte:03o}" for byte in each.encode()) for each in name}
    return '"' + "".join(each if each.isprintable() and each not in '"\\' else octal[each] for each in name) + '"'


_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_MEANWHILE: Final = "was changed by somebody else meanwhile; try again"
_MISREAD: Final = (
    "can't be changed in place: with what would be added, the text would be read in another way; change it by hand, "
    "as check shows it"
)
_UNLINK: Final = "make it a file of its own: copy it, and move the copy over it"
