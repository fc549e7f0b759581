"""Write the patches of objects to their files. Keep comments, quotes, order, and line ends."""

from __future__ import annotations

import codecs
import re
from copy import deepcopy
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.base.reading import read_file
from webhook.base.terminal import plain
from webhook.base.writing import write_whole
from webhook.documents import Document, DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.model.patch import apply_json
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from webhook.inputs.objects import Manifest
    from webhook.judging.judge import Judgement

_MISREAD: Final = (
    "can't be changed in place: YAML would read the changed text in another way; make the change by hand, as check "
    "shows it"
)


class ProblemError(Exception):
    """A file that fix can't change, and the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def patch_file(file: str, objects: list[tuple[Manifest, Judgement]], *, writes: bool, shows: bool) -> None:
    """Write the patches of a file's objects to it (``writes``), or print the outcome, as a diff with ``shows``.

    Raise ProblemError if the file can't be read, changed in place, or written.
    """
    try:
        before = read_file(file)
        after = _patched(before, file, objects)
        if writes:
            write_whole(Path(file), after, expected=before)
    except OSError as error:
        raise ProblemError(Problem(file, 0, 0, "", f"can't be written: {error.strerror or error}")) from None
    if shows:
        print(unified(file, before.decode(), after.decode()), end="")
    else:
        print(plain([[(f"{file}: {'changed' if writes else 'would be changed'}", "")]]))


def _patched(data: bytes, file: str, objects: list[tuple[Manifest, Judgement]]) -> bytes:
    """Return the file's content with the patches applied. Raise ProblemError if it can't be changed in place."""
    wanted: dict[int, tuple[Document, Any]] = {}
    for manifest, judgement in objects:
        document = manifest.document
        _, value = wanted.setdefault(document.begin, (document, deepcopy(document.value)))
        apply_json(judgement.patch, value)
    changed_since = ProblemError(Problem(file, 0, 0, "", "was changed by another process; try again"))
    try:
        values = [wanted.get(document.begin, (document, document.value))[1] for document in read_documents(data, file)]
    except DocumentError:
        raise changed_since from None
    text = data.decode("utf-8-sig")
    ended = text if text.endswith("\n") else f"{text}\n"  # read_documents reads it with this line end
    for document, value in reversed(wanted.values()):
        end = document.begin + len(document.source)
        if ended[document.begin : end] != document.source:
            raise changed_since
        try:
            new = edited(document.source, document.value, value)
        except EditError as error:
            problem = f"can't be changed in place: {error.problem}; {error.fix}"
            raise ProblemError(Problem(file, document.line + error.line, 1, "", problem)) from None
        ended = ended[: document.begin] + new + ended[end:]
    result = ended if text.endswith("\n") else ended.removesuffix("\n")
    after = (codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b"") + result.encode()
    try:
        written = [document.value for document in read_documents(after, file)]
    except DocumentError:
        written = []
    if written != values:
        wrong = [document for document, value in wanted.values() if value not in written]
        raise ProblemError(Problem(file, wrong[0].line if wrong else 0, 1, "", _MISREAD))
    return after


_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as Git splits them: `str.splitlines` also splits at other characters."""


def unified(file: str, before: str, after: str) -> str:
    """Return the diff between two contents of a file."""
    lines = unified_diff(_LINE.findall(before), _LINE.findall(after), f"a/{file}", f"b/{file}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
