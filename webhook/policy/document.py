"""Policy files and the documents in them."""

from __future__ import annotations

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

    def problem(self, path: tuple[str | int, ...], text: str) -> Problem:
        """A mistake at this field of the document."""
        line, column = self.document.position(path)
        return Problem(self.document.file, line, column, field_path(path), text)

    def spec_problem(self, error: SpecError) -> Problem:
        """A mistake that compiling the spec brought up."""
        return self.problem(("spec", *error.path), error.problem)


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
    if file.suffix not in SUFFIXES or file.name in _NO_POLICIES or not file.is_file():
        return False
    return not any(part.startswith(".") or part == "tests" for part in file.relative_to(folder).parts)
