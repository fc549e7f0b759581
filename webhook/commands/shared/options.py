"""Complete the flags from the project file ``.spotgate.yaml``."""

from __future__ import annotations

import os
from dataclasses import replace
from posixpath import normpath
from typing import TYPE_CHECKING

import msgspec

from webhook.commands.shared.flags import options_of
from webhook.inputs.options import JudgingOptions
from webhook.inputs.policies import SHIPPED_WORD, policies_path
from webhook.inputs.project import ProjectFile, find_project_file, folder_of, read_project_file

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path


def judging_options(namespace: Namespace) -> JudgingOptions:
    """Complete the flags from the project file, then with their defaults, and return the options.

    Raise CannotJudgeError with all mistakes if the file is invalid.
    """
    options = options_of(JudgingOptions, namespace)
    file = find_project_file(folder_of(options))
    project = ProjectFile()
    if file is not None:
        written = read_project_file(file)
        paths = {
            "policies": [
                policies_path(path if path == SHIPPED_WORD else _from_here(file, path)) for path in written.policies
            ],
            "state": [_from_here(file, path) for path in written.state],
            "ignore": [normpath(glob) for glob in written.ignore],
        }
        project = msgspec.structs.replace(written, **paths)
    completed = {field: getattr(options, field) or getattr(project, field) for field in ProjectFile.__struct_fields__}
    return replace(options, project=str(file.parent) if file is not None else "", **completed)


def _from_here(file: Path, path: str) -> str:
    """Convert a path from relative to the file to relative to the working directory."""
    return os.path.relpath(file.parent / path)
