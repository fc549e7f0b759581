"""Render kustomizations and charts with kustomize, kubectl, and Helm. Findings name the objects' source files."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.reading import read_file
from webhook.documents import Document, DocumentError, JSONValue, read_documents
from webhook.inputs.confined import OUTPUT_AT_MOST, SECONDS, FailureError, environment, run_limited
from webhook.inputs.files import ManifestFile
from webhook.inputs.kustomizations import KUSTOMIZATIONS, Rendered, Root
from webhook.kube.filling import mapping
from webhook.policy.errors import Problem, escaped_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.inputs.options import JudgingOptions

SECONDS_IF_TRUSTED: Final = 120
"""The time limit for a folder or chart that the user names, which may use the network."""

SECONDS_IN_ALL: Final = 300
"""The time limit for all rendering of a run. One root takes 0.1 to 0.5 s."""

_AT_ONCE: Final = 4

_SWITCHES: Final = {
    "plugins are disabled": "--enable-alpha-plugins --enable-exec",
    "external plugins disabled": "--enable-alpha-plugins --enable-exec",
    "must specify --enable-helm": "--enable-helm",
}
"""A part of kustomize's error when it would run other programs -> the flags that allow it. The user decides."""

_WRAPPED: Final = r"(?:accumulating resources: .*? path '[^']*': )?"
"""The prefix of kustomize's errors, because a kustomization in a temporary folder has the folder as a resource."""

_ERROR: Final = re.compile(
    rf'^(?:[Ee]rror: {_WRAPPED}(.+)|E\d{{4}} [^\n]* err="{_WRAPPED}(.+)")\Z', re.DOTALL | re.MULTILINE
)
"""The error of kustomize, Helm, or kubectl, which follows warnings, such as one about a deprecated field."""

_ORIGIN: Final = "config.kubernetes.io/origin"
_TEMPLATE: Final = re.compile(r"^# Source: [^/\n]+/(.+?)\r?$", re.MULTILINE)


class Rendering:
    """The output of kustomize, kubectl, and Helm for kustomizations and charts.

    Attributes:
        sources: the documents. Identical documents of several roots appear once.
        rendered: the rendered roots.
        problems: why the other roots can't be rendered.
    """

    def __init__(self, roots: Sequence[Root], options: JudgingOptions) -> None:
        self.sources: list[ManifestFile] = []
        self.rendered: list[Root] = []
        self.problems: list[Problem] = []
        self._options = options
        self._until = time.monotonic() + SECONDS_IN_ALL
        self._bytes = 2 * OUTPUT_AT_MOST
        self._files: dict[str, list[Document]] = {}
        seen: set[tuple[str, bytes]] = set()
        pool = ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1))
        try:
            for root, printed in zip(roots, pool.map(self._printed, roots), strict=True):
                if isinstance(printed, str):
                    self._fail(root, printed)
                    continue
                self.rendered.append(root)
                for document in printed:
                    identity = (document.file, msgspec.json.encode(document.value))
                    if identity not in seen:
                        size = len(identity[1])
                        self.sources.append(ManifestFile(document.file, size=size, data=b"", documents=(document,)))
                    seen.add(identity)
        finally:
            pool.shutdown(cancel_futures=True)

    def _fail(self, root: Root, why: str) -> None:
        flags = next((flags for words, flags in _SWITCHES.items() if words in why), "")
        command = root.command.replace("build", f"build {flags}", 1) if flags else root.command
        text = f"can't be rendered: {why}; to evaluate it: `{command} | spotgate check -`"
        self.problems.append(Problem(escaped_name(root.place), 0, 0, "", text))

    def _printed(self, root: Root) -> list[Rendered] | str:
        """Return the documents of a root's output, or the reason why there are none."""
        try:
            with tempfile.TemporaryDirectory(prefix="spotgate-") as home:
                data = self._run(root, os.path.realpath(home))
            self._bytes -= len(data)
            if self._bytes < 0:
                return "all folders together print too much; evaluate one at a time"
            documents = read_documents(data, root.place)
        except FailureError as error:
            return str(error)
        except (OSError, UnicodeError) as error:  # a name that isn't UTF-8
            return escaped_name(str(error))
        except DocumentError as error:
            return f"line {error.line} of its output: {error.problem}; {error.fix}"
        placed, text, end, template = [], data.decode("utf-8-sig"), 0, ""
        for document in documents:
            for match in _TEMPLATE.finditer(text, end, document.begin):
                template = match[1]
            end = document.begin + len(document.source)
            origin = template if root.is_chart else _take_origin(document)
            file = os.path.normpath(Path(root.folder if root.is_chart else os.path.realpath(home), origin))
            placed.append(self._placed(root, document, file))
        return placed

    def _run(self, root: Root, home: str) -> bytes:
        """Return a root's output. Raise FailureError if it must not or can't be rendered."""
        if root.refused:
            raise FailureError(escaped_name(root.refused))
        program = shutil.which("helm") if root.is_chart else shutil.which("kustomize") or shutil.which("kubectl")
        if program is None:
            names = "`helm` is not" if root.is_chart else "neither `kustomize` nor `kubectl` is"
            raise FailureError(f"{names} installed")
        seconds = min(SECONDS_IF_TRUSTED if root.trusted else SECONDS, self._until - time.monotonic())
        if seconds <= 0:
            raise FailureError(f"all folders together take more than {SECONDS_IN_ALL} s; evaluate one at a time")
        command = [str(Path(program).absolute())]
        if root.is_chart:
            version = "{}.{}.0".format(*self._options.kubernetes_version)
            # The schema of a chart's values can load other schemas from the network.
            command += ["template", "--include-crds", *(() if root.trusted else ("--skip-schema-validation",))]
            command += [f"--kube-version={version}", *(f"--values={file}" for file in self._values(root, home)), "."]
            folder = root.folder
        else:
            # kustomize adds each object's origin, a path relative to the built kustomization.
            resource = os.path.relpath(os.path.realpath(root.folder), home)
            lines = {"resources": [resource], "buildMetadata": ["originAnnotations"]}
            Path(home, KUSTOMIZATIONS[0]).write_bytes(msgspec.json.encode(lines))
            command += ["kustomize" if Path(program).name == "kubectl" else "build", "."]
            folder = home
        try:
            return run_limited(
                command, folder=folder, home=home, seconds=seconds, env=None if root.trusted else environment(home)
            )
        except FailureError as error:
            own = _ERROR.search(str(error))
            raise FailureError(own[1] or own[2] if own else str(error)) from None

    def _values(self, root: Root, home: str) -> Iterator[str]:
        """Yield a chart's values files, from the project file and the flags.

        Link those of the project file to safe names, because Helm splits names at commas.
        """
        project = self._options.project or "."
        for folder, files in self._options.chart_values.items():
            if os.path.realpath(Path(project, folder)) == os.path.realpath(root.folder):
                for number, file in enumerate(files):
                    link = Path(home, f"values-{number}.yaml")
                    link.symlink_to(os.path.realpath(Path(project, file)))
                    yield str(link)
        if root.trusted:
            yield from map(os.path.realpath, self._options.helm_values)

    def _placed(self, root: Root, printed: Document, file: str) -> Rendered:
        """Return a document with its position in its source file, if known."""
        # Untrusted files can claim any origin.
        if not Path(file).is_file() or not (root.trusted or os.path.realpath(file) in root.reads):
            file, source = root.place, None
        else:
            file = file if Path(root.folder).is_absolute() else os.path.relpath(file)
            source = None if root.is_chart else self._source(file, printed.value)
        line, text, offset = (1, "", 0) if source is None else (source.line, source.source, source.offset)
        return Rendered(escaped_name(file), line, printed.value, text, offset, command=root.command)

    def _source(self, file: str, value: JSONValue) -> Document | None:
        """Return the source document of an object: same kind, and its name is a part of the object's name."""
        if file not in self._files:
            self._files[file] = []
            with suppress(OSError, DocumentError):
                self._files[file] = read_documents(read_file(file), file)
        kind, name = _kind_and_name(value)
        alike = ((document, *_kind_and_name(document.value)) for document in self._files[file])
        named = [(len(base), document) for document, of_kind, base in alike if of_kind == kind and base in name]
        return max(named, key=itemgetter(0), default=(0, None))[1]


def _kind_and_name(value: JSONValue) -> tuple[str, str]:
    return str(mapping(value).get("kind")), str(mapping(value, "metadata").get("name") or "")


def _take_origin(document: Document) -> str:
    """Remove kustomize's origin annotation and return its path; empty if the file is remote."""
    text = mapping(document.value, "metadata", "annotations").pop(_ORIGIN, None)
    try:
        origin = mapping(read_documents(str(text).encode(), "")[0].value)
    except (DocumentError, IndexError):
        return ""
    path = origin.get("path") or origin.get("configuredIn")
    return path if isinstance(path, str) else ""
