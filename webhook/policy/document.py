"""Policy files and the documents in them."""

from __future__ import annotations

import re
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents import Document, field_path
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from webhook.policy.errors import SpecError

FACTS: Final = frozenset({"CapacityProvider", "WorkloadTemplates"})
"""Kinds that say how things are."""

EXEMPTION: Final = "Exemption"

SUFFIXES: Final = (".yaml", ".yml", ".json")
_NO_POLICIES: Final = frozenset({"kustomization.yaml", "kustomization.yml", "schema.json"})
"""They lie beside policies: to put them into a ConfigMap, and for editors (``spotgate schema``)."""


_HEADER: Final = re.compile(r"[\"']?\s*:[^\S\n]*(?:[|>][^\n]*\n)?")
"""Behind a key, before a text."""
_BETWEEN: Final = frozenset(" \t\r\n\\\"'")
_SPACES: Final = frozenset(("\\n", "\\r", "\\t"))
"""What YAML and JSON may have between the characters of a text that are no space."""


class PolicyDocument(msgspec.Struct, frozen=True):
    """A validated document, and where it stands for later errors.

    Where it has mistakes, all of them are problems of the set, which can't be used; it is there to find more.

    Attributes:
        kind: as it is written.
        name: empty where it is no name.
        spec: the model of the kind, without faulty fields; None where it can't be without them.
        document: as it was read.
        faulty: fields of spec that are left out of it, as they have mistakes.
    """

    kind: str
    name: str
    spec: Any
    document: Document
    faulty: frozenset[str | int] = frozenset()

    @property
    def is_policy(self) -> bool:
        """Does it judge or change objects? Facts and exemptions do not."""
        return self.kind not in FACTS and self.kind != EXEMPTION

    def problem(self, path: tuple[str | int, ...], text: str, offset: int | None = None) -> Problem:
        """A mistake at this field of the document, and this character of the text there."""
        line, column = self.document.position(path)
        if offset is not None:
            line, column = _inside(self.document, path, offset) or (line, column)
        return Problem(self.document.file, line, column, field_path(path), text)

    def spec_problem(self, error: SpecError) -> Problem:
        """A mistake that compiling the spec brought up."""
        return self.problem(("spec", *error.path), error.problem, error.offset)


def _inside(document: Document, path: tuple[str | int, ...], offset: int) -> tuple[int, int] | None:
    """Line and column of a character of the text at ``path``; None where it is written in another way.

    However a text is quoted, folded and indented, its characters are there in their order.
    """
    text: Any = reduce(getitem, path, document.value)  # type: ignore[arg-type]
    line, column = document.position(path)
    lines = document.source.split("\n")[line - document.line :]
    key = column - 1 - (document.offset if line == document.line else 0)
    source = "\n".join([" " * (column - 1) + lines[0][key:], *lines[1:]])
    header = _HEADER.match(source, column - 1 + len(str(path[-1])) + (source[column - 1] in _BETWEEN))
    at = header.end() if header is not None else len(source)
    for character in "".join(text[: offset + 1].split()):
        while at < len(source) and source[at] != character and source[at] in _BETWEEN:
            at += 2 if source[at : at + 2] in _SPACES else 1
        if source[at : at + 1] != character:
            return None
        at += 1
    before = source[: at - 1]
    return line + before.count("\n"), len(before) - before.rfind("\n")


def policy_files(paths: Iterable[Path]) -> list[Path]:
    """Every policy file below the paths, in a stable order, without hidden files, ``tests`` and what only lies there.

    A ConfigMap volume's ``..data`` folders are hidden too; its visible links are followed.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files |= dict.fromkeys(file for file in sorted(path.rglob("*")) if _is_policy_file(file, path))
        else:
            files[path] = None
    return list(files)


def _is_policy_file(file: Path, folder: Path) -> bool:
    if file.suffix.lower() not in SUFFIXES or file.name in _NO_POLICIES or not file.is_file():
        return False
    return not any(part.startswith(".") or part == "tests" for part in file.relative_to(folder).parts)
