"""Find policy files, and hold the documents in them."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents import Document, field_path
from webhook.policy.errors import PolicyErrors, Problem
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FACTS: Final = frozenset({"CapacityProvider", "WorkloadTemplates"})
"""Kinds that hold facts instead of rules."""

EXEMPTION: Final = "Exemption"
MODE: Final = "Mode"

SUFFIXES: Final = (".yaml", ".yml", ".json")
_NO_POLICIES: Final = frozenset({"kustomization.yaml", "kustomization.yml", "schema.json"})
"""Files that lie beside policies: for a ConfigMap, and for editors (``spotgate schema``)."""
_TESTS: Final = "tests"
_WALKED_AT_MOST: Final = 100_000
"""Files of one folder. That is more than a large repository has; policies are some 10."""


class PolicyDocument(msgspec.Struct, frozen=True):
    """A valid document and its place in a file, for later errors.

    Attributes:
        spec: the model of the kind.
        document: the document as it was read.
    """

    kind: str
    name: str
    spec: Any
    document: Document

    @property
    def is_policy(self) -> bool:
        """Return whether the document judges or changes objects. Facts, exemptions and the mode do not."""
        return self.kind not in FACTS | {EXEMPTION, MODE}

    @property
    def in_force(self) -> bool:
        """Return whether the document is a policy that is not switched off."""
        return self.is_policy and self.spec.enforcement is not Enforcement.OFF

    def problem(self, path: tuple[str | int, ...], text: str) -> Problem:
        """Return a problem at this field of the document."""
        return Problem(self.document.file, *self.document.position(path), field_path(path), text)


def policy_files(paths: Iterable[Path]) -> list[Path]:
    """Return every policy file below the paths in a stable order, without hidden files and ``tests`` folders.

    The ``..data`` folders of a ConfigMap volume are hidden too; its visible links are followed. A folder, a pipe or a
    broken link that is named like a policy file is returned too, so that reading it reports the missing file.
    Raise PolicyErrors if a folder holds too many files.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(islice(files_below(path), _WALKED_AT_MOST + 1))
            if len(below) > _WALKED_AT_MOST:
                text = f"holds more than {_WALKED_AT_MOST} files; name the folder that holds only the policies"
                raise PolicyErrors([Problem(str(path), 0, 0, "", text)])
            files |= dict.fromkeys(file for file in below if is_read(file.relative_to(path)))
        else:
            files[path] = None
    return list(files)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders, even while they change, and folders named like a policy file.

    Not ``Path.rglob``: it raises if a folder disappears meanwhile, as happens in a volume that the kubelet updates.
    """
    for parent, below, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
        yield from (Path(parent, name) for name in below if is_named_like_policy(Path(name)))


def is_named_like_policy(file: Path) -> bool:
    """Return whether the name is that of a policy file, wherever it lies."""
    return file.suffix.lower() in SUFFIXES and file.name not in _NO_POLICIES


def is_read(below: Path) -> bool:
    """Return whether a file at this path in a policy folder is read as policies."""
    return is_named_like_policy(below) and not any(part.startswith(".") or part == _TESTS for part in below.parts)
