"""Policy files and their documents."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.field_paths import field_path
from webhook.policy.errors import PolicyErrors, Problem
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.documents import Document

FACTS: Final = frozenset({"CapacityProvider", "WorkloadTemplates"})
"""Kinds whose documents contain facts instead of rules."""

EXEMPTION: Final = "Exemption"
MODE: Final = "Mode"

SUFFIXES: Final = (".yaml", ".yml", ".json")
_NO_POLICIES: Final = frozenset({"kustomization.yaml", "kustomization.yml", "schema.json"})
"""Other files in policy folders: a kustomization for a ConfigMap, and the schema for editors (``spotgate schema``)."""
_TESTS: Final = "tests"
_WALKED_AT_MOST: Final = 100_000
"""The maximum number of files in a folder: more than a large repository has. A typical policy folder has about 10."""


class PolicyDocument(msgspec.Struct, frozen=True):
    """A valid document, and its position in a file for later errors.

    Attributes:
        spec: the model of the kind.
        document: the parsed YAML.
    """

    kind: str
    name: str
    spec: Any
    document: Document

    @property
    def is_policy(self) -> bool:
        """Return whether the document evaluates or changes objects. Facts, exemptions, and the mode don't."""
        return self.kind not in FACTS | {EXEMPTION, MODE}

    @property
    def in_force(self) -> bool:
        """Return whether the document is a policy whose enforcement isn't off."""
        return self.is_policy and self.spec.enforcement is not Enforcement.OFF

    def problem(self, path: tuple[str | int, ...], text: str, *, warning: bool = False) -> Problem:
        """Return a problem at this field of the document."""
        return Problem(self.document.file, *self.document.position(path), field_path(path), text, warning)


def policy_files(paths: Iterable[Path]) -> list[Path]:
    """Return all policy files below the paths in a stable order, except hidden files and ``tests`` folders.

    In a ConfigMap volume, this skips the hidden ``..data`` folders, and follows the visible links. It includes folders,
    pipes, and broken links with the name of a policy file, so that reading them reports the missing file.
    Raise PolicyErrors if a folder contains too many files.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(islice(files_below(path), _WALKED_AT_MOST + 1))
            if len(below) > _WALKED_AT_MOST:
                text = f"contains more than {_WALKED_AT_MOST} files; name a folder that contains only policies"
                raise PolicyErrors([Problem(str(path), 0, 0, "", text)])
            files |= dict.fromkeys(file for file in below if is_read(file.relative_to(path)))
        else:
            files[path] = None
    return list(files)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders, and the folders with the name of a policy file.

    ``Path.rglob`` raises if a folder disappears during the walk, such as in a volume that the kubelet updates.
    """
    for parent, below, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)
        yield from (Path(parent, name) for name in below if is_named_like_policy(Path(name)))


def is_named_like_policy(file: Path) -> bool:
    """Return whether the file has the name of a policy file, in any folder."""
    return file.suffix.lower() in SUFFIXES and file.name not in _NO_POLICIES


def is_read(below: Path) -> bool:
    """Return whether a file at this path in a policy folder is a policy file."""
    return is_named_like_policy(below) and not any(part.startswith(".") or part == _TESTS for part in below.parts)
