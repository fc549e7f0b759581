"""Render manifests with kustomize and Helm. Findings name the files that were rendered, as far as they are known."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.documents import Document, DocumentError, read_documents
from webhook.manifests.files import KUSTOMIZATIONS, ManifestFile
from webhook.policy.errors import Problem, escaped_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

_SECONDS: Final = 120
"""Limit for one folder or chart, whose parts may have to be fetched from the network."""

_SWITCHES: Final = {
    "external plugins disabled": "--enable-alpha-plugins --enable-exec",
    "must specify --enable-helm": "--enable-helm",
}
"""Part of kustomize's error where it would run other programs -> the flags that permit it: the user decides."""

_ORIGIN: Final = "config.kubernetes.io/origin"
_TEMPLATE: Final = re.compile(r"^# Source: [^/\n]+/(.+?)\r?$", re.MULTILINE)


def rendered(options: Namespace, problems: list[Problem]) -> Iterator[ManifestFile]:
    """Yield each rendered document as a source. Failures are added to the problems."""
    version = "{}.{}.0".format(*options.kubernetes_version)
    values = [f"--values={file}" for file in options.helm_values]
    for folder in options.kustomize:
        yield from _rendered(folder, [*_kustomize(), folder], problems)
    for chart in options.helm:
        command = ["helm", "template", "--include-crds", f"--kube-version={version}", *values, chart]
        yield from _rendered(chart, command, problems)


def _kustomize() -> list[str]:
    """Return the command: kustomize, or kubectl if only that is installed."""
    alone = shutil.which("kustomize") or not shutil.which("kubectl")
    return ["kustomize", "build"] if alone else ["kubectl", "kustomize"]


def _rendered(thing: str, command: list[str], problems: list[Problem]) -> Iterator[ManifestFile]:
    shown = escaped_name(thing)
    try:
        data = _run(command)
        documents = read_documents(data, shown)
    except _FailureError as error:
        problems.append(Problem(shown, 0, 0, "", str(error)))
        return
    except DocumentError as error:
        text = f"line {error.line} of what `{' '.join(command[:2])}` prints: {error.problem}; {error.fix}"
        problems.append(Problem(shown, 0, 0, "", text))
        return
    text, end, template = data.decode("utf-8-sig"), 0, ""
    for each in documents:
        for found in _TEMPLATE.finditer(text, end, each.begin):
            template = found[1]
        end = each.begin + len(each.source)
        file = escaped_name(_file(thing, template, each))
        document = Document(file, 1, each.value)
        yield ManifestFile(file, size=len(each.source), data=b"", documents=(document,))


def _file(thing: str, template: str, document: Document) -> str:
    """Return the file that a document comes from, if the program says; else the kustomization or the chart."""
    files = [template, _origin(document), *KUSTOMIZATIONS]
    paths = (os.path.normpath(Path(thing, file)) for file in files if file)
    return next((path for path in paths if Path(path).is_file()), thing)


def _origin(document: Document) -> str:
    """Return the path in kustomize's origin annotation; empty without one, or if the file is from elsewhere."""
    value = document.value
    for key in ("metadata", "annotations", _ORIGIN):
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, str):
        return ""
    try:
        (origin,) = (each.value for each in read_documents(value.encode(), ""))
    except (DocumentError, ValueError):
        return ""
    path = origin.get("path") if isinstance(origin, dict) and "repo" not in origin else None
    return path if isinstance(path, str) else ""


class _FailureError(Exception):
    """Report a program that rendered no manifests, and why."""


def _run(command: list[str]) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS
        )
    except FileNotFoundError:
        text = f"`{command[0]}` is not installed, or not in PATH; install it, or pass what it renders as a file or `-`"
        raise _FailureError(text) from None
    except subprocess.TimeoutExpired:
        raise _FailureError(f"`{' '.join(command)}` has not ended after {_SECONDS} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="backslashreplace").strip()
        flags = next((flags for words, flags in _SWITCHES.items() if words in said), "")
        piped = f"`kustomize build {flags} {shlex.quote(command[-1])} | spotgate check -`"
        hint = f"; if it may run other programs: {piped}" if flags else ""
        raise _FailureError(f"`{' '.join(command)}` ended with {done.returncode}: {said}{hint}")
    return done.stdout
