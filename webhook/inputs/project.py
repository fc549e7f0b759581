"""Complete the flags from the project file ``.spotgate.yaml``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from webhook.base.exits import CannotJudgeError
from webhook.base.field_paths import FieldPath, field_path
from webhook.documents import Document, DocumentError, read_documents
from webhook.inputs.files import STDIN, ManifestFile, within_repository
from webhook.inputs.policies import SHIPPED_WORD
from webhook.policy.common import Flag, Glob, KubernetesVersion, Model, NonEmpty
from webhook.policy.document import files_below, is_named_like_policy
from webhook.policy.errors import Problem
from webhook.rules.context import ASSUMED_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.inputs.options import JudgingOptions

FILE: Final = ".spotgate.yaml"
_MISNAMED: Final = ".spotgate.yml"


def folder_of(options: JudgingOptions) -> Path:
    """Return the folder of the first path."""
    named = [path for path in (*options.paths, *options.kustomize, *options.helm) if path != STDIN]
    first = Path(os.path.abspath(named[0] if named else "."))  # noqa: PTH100 - removes `..`
    return next(parent for parent in (first, *first.parents) if parent.is_dir())


def find_project_file(folder: Path) -> Path | None:
    """Return the project file in the folder or its closest parent, up to the root of the Git repository.

    Raise CannotJudgeError for a file with the name ``.spotgate.yml``, whose settings would silently not apply.
    """
    for parent in within_repository(folder):
        if os.path.lexists(parent / FILE):
            return parent / FILE
        if os.path.lexists(misnamed := parent / _MISNAMED):
            raise CannotJudgeError(
                f"{os.path.relpath(misnamed)}: the project file has another name; rename it to {FILE}"
            )
    return None


def repository_of(folder: Path) -> str:
    """Return the real path of the folder's repository, or of the folder without Git."""
    top = list(within_repository(folder))[-1]
    return os.path.realpath(top if (top / ".git").exists() else folder)


def _leads_out(path: Path, root: str) -> bool:
    """Return whether a path, with links resolved, is outside the repository."""
    return not Path(os.path.realpath(path)).is_relative_to(root)


def _problem_with(path: str, folder: Path, root: str) -> str:
    """Return why a path of the project file can't be read; empty if it can. A pull request can name any path."""
    file = folder / path
    try:
        if Path(path).is_absolute() or _leads_out(file, root):
            return f"{path!r} is outside of this repository; name a file or folder in it, or pass the path as a flag"
        is_there = file.exists()
    except (OSError, ValueError):  # too long, or contains a null byte
        is_there = False
    if not is_there:
        return f"there is no {path!r} next to this file; paths are relative to it"
    if not (file.is_file() or file.is_dir()):
        return f"{path!r} is neither a regular file nor a folder; name one"
    links = (entry for entry in files_below(file) if is_named_like_policy(entry) and entry.is_symlink())
    if link := next((link for link in links if _leads_out(link, root)), None):
        return f"{path!r} holds {link.relative_to(file)}, a link out of this repository; remove it"
    return ""


class ProjectFile(Model):
    """Settings for check, fix, fn, and explain. Flags override settings."""

    policies: tuple[NonEmpty, ...] = ()
    """Policy files and folders, relative to this file. `shipped`, the default, names spotgate's policies."""
    state: tuple[NonEmpty, ...] = ()
    """Manifests of objects in the cluster: files and folders, relative to this file."""
    cluster: str = ""
    """Name of the cluster that the objects are meant for, as in its node pools."""
    partial: Flag = False
    """The cluster has more node pools than the files show."""
    ignore: tuple[Glob, ...] = ()
    """Files and folders to ignore: globs of names, or of paths relative to this file."""
    chart_values: dict[NonEmpty, tuple[NonEmpty, ...]] = {}
    """Values files by chart folder, relative to this file."""
    fail_on: Literal["deny", "warn", "indeterminate"] = "deny"
    """Lowest outcome for which check exits with 1."""
    kubernetes_version: KubernetesVersion = ASSUMED_VERSION
    """Version of the API server and the kubelets, in quotes."""


def read_project_file(file: Path) -> ProjectFile:
    """Read the project file. Raise CannotJudgeError with all mistakes if it is invalid."""
    shown = os.path.relpath(file)
    try:
        if _leads_out(file, repository_of(file.parent)):
            raise CannotJudgeError(f"{shown}: is a link out of this repository; put the file itself here")
        if not file.is_file():
            raise CannotJudgeError(f"{shown}: is not a readable file; correct it, or remove it")
        documents = read_documents(ManifestFile(str(file)).read(), shown)
    except OSError as error:
        raise CannotJudgeError(f"{shown}: can't be read: {error.strerror or error}; correct it, or remove it") from None
    except DocumentError as error:
        raise CannotJudgeError(str(error)) from None
    if not documents:
        return ProjectFile()
    problems: list[Problem] = []
    project = _project(documents, file, problems)
    if project is None or problems:
        raise CannotJudgeError("\n".join(map(str, sorted(problems))))
    return project


def _project(documents: Sequence[Document], file: Path, problems: list[Problem]) -> ProjectFile | None:
    from webhook.policy.checking import MISTAKES_AT_MOST, validate_model

    document = documents[0]

    def problem(path: FieldPath, text: str, where: Document = document) -> None:
        problems.append(Problem(where.file, *where.position(path), field_path(path), text))

    if len(documents) > 1:
        problem((), "is a second document; the file takes one", documents[1])
    if not isinstance(document.value, dict):
        problem((), "isn't a map; write `policies: [...]`, for example")
        return None
    project = validate_model(ProjectFile, document.value, (), problem)
    root = repository_of(file.parent)
    if project is not None:
        for field, path in _paths_of(project):
            if len(problems) > MISTAKES_AT_MOST:
                break
            if (field[0], path) != ("policies", SHIPPED_WORD) and (text := _problem_with(path, file.parent, root)):
                problem(field, text)
    return project


def _paths_of(project: ProjectFile) -> Iterator[tuple[FieldPath, str]]:
    """Yield each path in the file, with its field."""
    lists: dict[FieldPath, tuple[str, ...]] = {("policies",): project.policies, ("state",): project.state}
    for chart, values in project.chart_values.items():
        yield ("chartValues", chart), chart
        lists["chartValues", chart] = values
    for field, paths in lists.items():
        yield from (((*field, number), path) for number, path in enumerate(paths))
