"""Read Kubernetes objects from files and folders, for the paths and for ``--state``."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.field_paths import FieldPath, field_path, parse_field_path
from webhook.base.globs import Globs
from webhook.base.placeholders import filling_in
from webhook.capacity.providers.nodes import Node
from webhook.documents import Document, DocumentError, read_documents
from webhook.documents.model import entries
from webhook.inputs.broken import kinds_in, names_object
from webhook.inputs.files import STDIN, Ignored, ManifestFile, find_manifest_files
from webhook.kube.defaults import drop_nulls
from webhook.model.review import MalformedObjectError, converted
from webhook.policy.errors import Problem, escaped_name, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


PROBLEMS_AT_MOST: Final = 100
"""The maximum number of reported problems of a file: more than a user fixes before the next run. A file of 64 MiB can
have about 10 million."""

OBJECTS_AT_MOST: Final = 250_000
"""The maximum number of objects and other documents that a process reads: ten times as many as in 94 public
repositories (24,786). An object of 555 bytes takes 4.6 KB and 0.1 ms, so this many take 1.2 GB and half a minute."""


Identity = tuple[str, str, str, str]
"""The API group, kind, namespace, and name of an object."""

DEFAULT_NAMESPACE: Final = "default"
"""The namespace of an object without one."""


class Manifest(msgspec.Struct, frozen=True):
    """One Kubernetes object of a file.

    Attributes:
        document: the document that the object is in.
        path: the position in the document: empty, or ``("items", 3)`` in a List.
        api_version, kind: the object's, or inherited from its list.
    """

    document: Document
    path: FieldPath
    api_version: str
    kind: str
    value: dict[str, Any]

    @property
    def file(self) -> str:
        """Return the file as given."""
        return self.document.file

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Return the API version without its group."""
        return self.api_version.rpartition("/")[2]

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the ``metadata``; empty if there is none."""
        metadata = self.value.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def name(self) -> str:
        """Return the name; empty if the API server generates it."""
        return self.metadata.get("name") or ""

    @property
    def namespace(self) -> str:
        """Return the written namespace, if any."""
        return self.metadata.get("namespace") or ""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels. As in the API server, null becomes an empty string."""
        return {key: text or "" for key, text in (self.metadata.get("labels") or {}).items()}

    @property
    def shown_name(self) -> str:
        """Return the name to show: ``generateName`` if the API server generates the name."""
        return self.name or self.metadata.get("generateName") or ""

    @property
    def line(self) -> int:
        """Return the first line of the object, from 1."""
        return self.document.position(self.path)[0] if self.path else self.document.line

    @property
    def named(self) -> Manifest:
        """Return the object reduced to its position, kind, and name."""
        metadata = {key: self.metadata[key] for key in ("name", "namespace", "generateName") if key in self.metadata}
        document = Document(self.file, self.line, None)
        return Manifest(document, (), self.api_version, self.kind, {"metadata": metadata})

    def position_of(self, path: FieldPath) -> tuple[int, int]:
        """Return the line and column, from 1, of a field or its deepest existing ancestor."""
        return self.document.position((*self.path, *path))

    def problem(self, path: FieldPath, text: str) -> Problem:
        """Return a problem in a field of the object."""
        return Problem(self.file, *self.document.position((*self.path, *path)), field_path(path), text)

    def malformed(self, error: MalformedObjectError) -> Problem:
        """Return the problem of a field with the wrong type. For a placeholder, suggest how to fill it in."""
        path = parse_field_path(error.field)
        value: Any = self.value
        for step in path:
            value = entries(value).get(step)
        return replace(self.problem(path, f"{error.problem}; {filling_in(value) or error.fix}"), field=error.field)


class Unread(msgspec.Struct, frozen=True):
    """A file or object that can't be read.

    Attributes:
        kinds: the kinds of objects that it may contain; None means any.
    """

    file: str
    kinds: frozenset[str] | None = None

    def may_hold(self, kinds: Iterable[str]) -> bool:
        """Return whether it may contain an object of one of these kinds."""
        return self.kinds is None or not self.kinds.isdisjoint(kinds)


def identity_of(manifest: Manifest, namespace: str) -> Identity:
    """Return the identity of an object, which doesn't depend on its file."""
    return (manifest.group, manifest.kind, namespace, manifest.name)


def written_identity(manifest: Manifest) -> Identity:
    """Return the identity of a manifest as written, to compare it with other manifests."""
    return identity_of(manifest, manifest.namespace or DEFAULT_NAMESPACE)


class Manifests(msgspec.Struct):
    """The objects in files and folders.

    Attributes:
        objects: the objects, in the order of the paths, by file name below a folder, and in file order.
        skipped: the number of documents in folders that aren't Kubernetes objects, and of Helm templates.
        problems: the inputs that can't be read. All other inputs are read.
        unread: the kinds of objects that the unreadable inputs may contain.
        count: the number of objects and documents read.
        lost: the number of problems in the current file.
    """

    objects: list[Manifest] = []
    skipped: int = 0
    problems: list[Problem] = []
    unread: list[Unread] = []
    count: int = 0
    lost: int = 0

    def add_one(self) -> None:
        """Count an object or other document. Raise TooManyError if the limit is exceeded."""
        self.count += 1
        if self.count > OBJECTS_AT_MOST:
            text = (
                f"the files hold more than {OBJECTS_AT_MOST} objects; evaluate one folder at a time, or --ignore some"
            )
            raise TooManyError(text)

    def lose(self, problem: Problem, kinds: frozenset[str] | None) -> None:
        """Add a problem that may hide objects of these kinds, or of any kind for None.

        Raise TooManyError if the file has too many problems.
        """
        if self.lost >= PROBLEMS_AT_MOST:
            raise TooManyError(f"more than {PROBLEMS_AT_MOST} problems; correct these, or pass another file")
        self.lost += 1
        self.problems.append(problem)
        self.unread.append(Unread(problem.file, kinds))


class TooManyError(Exception):
    """Too many objects or problems. The text has the fix."""


def read_manifests(paths: Iterable[str | Path]) -> Manifests:
    """Read every Kubernetes object in these files and folders. The result contains the mistakes; nothing is raised.

    A path is a file, a folder (every ``*.yaml``, ``*.yml``, and ``*.json`` below), or ``-`` for standard input.
    """
    sources = find_manifest_files(paths, Ignored(Globs()))
    manifests = Manifests(skipped=len(sources.left_to_others))
    for problem in (*sources.problems, *sources.dangling):
        manifests.lose(problem, None)
    read_manifest_files(sources.files, manifests)
    return manifests


def read_manifest_files(sources: Iterable[ManifestFile], manifests: Manifests) -> None:
    """Add the objects of these files."""
    for source in sources:
        manifests.lost = 0
        try:
            _read(source, manifests)
        except TooManyError as error:
            manifests.lost = 0
            manifests.lose(Problem(escaped_name(source.file), 0, 0, "", str(error)), None)
            if manifests.count > OBJECTS_AT_MOST:
                return


def _read(source: ManifestFile, manifests: Manifests) -> None:
    shown = escaped_name(source.file)
    try:
        data = b"" if source.documents else source.read()
        if source.file == STDIN and isinstance(data, bytes) and not data.strip():
            text = "standard input is empty; the program before the pipe may have failed: see its errors"
            manifests.lose(Problem(shown, 0, 0, "", text), None)
            return
        documents = source.documents or read_documents(
            data, shown, limits=source.limits, line=source.line, begin=source.begin
        )
    except OSError as error:
        manifests.lose(unreadable(source.file, error), None)
        return
    except DocumentError as error:
        if source.in_folder and not names_object(bytes(data)):
            manifests.skipped += 1
            return
        problem = Problem(shown, error.line, error.column, "", f"{error.problem}; {error.fix}")
        manifests.lose(problem, kinds_in(bytes(data)))
        return
    for document in documents:
        manifests.add_one()
        if _is_object(document.value):
            _add(document, (), document.value, "", manifests)
        elif source.in_folder and not _is_misspelt_object(document.value):
            manifests.skipped += 1
        else:
            text = (
                "not a Kubernetes object, which has `apiVersion` and `kind`; remove the document or pass another file"
            )
            manifests.lose(Problem(shown, *document.position(()), "", text), _kinds_of(document.value))


def _kinds_of(value: Any) -> frozenset[str] | None:
    """Return the kind of a value that isn't an object, or None if it may be any."""
    if not isinstance(value, dict):
        return frozenset()
    kind = value.get("kind")
    if isinstance(kind, str) and kind:
        return frozenset({kind})
    return None if "kind" in value or "apiVersion" in value or "metadata" in value else frozenset()


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) and value[key] for key in _TYPE)


def _is_misspelt_object(value: Any) -> bool:
    """Return whether a value has ``apiVersion`` and ``kind`` in another letter case or not as text."""
    return isinstance(value, dict) and "metadata" in value and {*map(str.casefold, value)} >= _FOLDED


def _add(document: Document, path: FieldPath, value: Any, inherited: str, manifests: Manifests) -> None:
    """Add an object, or the items of a list.

    ``inherited`` is the type that a ``PodList`` gives its items, such as ``v1 Pod``.
    """
    if inherited and isinstance(value, dict):
        api_version, _, kind = inherited.partition(" ")
        value = {"apiVersion": api_version, "kind": kind} | value
    if not _is_object(value):
        text = "not a Kubernetes object, which has `apiVersion` and `kind`; add them or remove the item"
        manifests.lose(Problem(document.file, *document.position(path), field_path(path), text), _kinds_of(value))
        return
    manifest = Manifest(document, path, value["apiVersion"], value["kind"], value)
    items = value.get("items")
    if manifest.kind == "List" and not isinstance(items, list | None):
        problem = manifest.problem(("items",), "is not a list; write each object as an item with `- `")
        manifests.lose(problem, None)
        return
    if manifest.kind.endswith("List") and isinstance(items, list | None) and "items" in value:
        kind = manifest.kind.removesuffix("List")
        for index, item in enumerate(items or ()):
            manifests.add_one()
            _add(document, (*path, "items", index), item, f"{manifest.api_version} {kind}" if kind else "", manifests)
        return
    if defect := problem_with(manifest):
        manifests.lose(defect, frozenset({manifest.kind}))
    else:
        manifests.objects.append(manifest)


class _Metadata(msgspec.Struct):
    """The metadata fields whose types the API server checks before it calls webhooks."""

    name: str | None = None
    generateName: str | None = None
    namespace: str | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None


def problem_with(manifest: Manifest) -> Problem | None:
    """Return the problem with an object's metadata, or with a Node. An object with a problem must not be read further.

    A Node without its taints would seem to admit every Pod.
    """
    try:
        converted(manifest.value, _Object)
        if (manifest.api_version, manifest.kind) == ("v1", "Node"):
            node_of(manifest)
    except MalformedObjectError as error:
        return manifest.malformed(error)
    return None


def node_of(manifest: Manifest) -> Node:
    """Return the spec and status of a Node.

    Raise MalformedObjectError if the types are wrong.
    """
    value = deepcopy({key: manifest.value[key] for key in ("spec", "status") if key in manifest.value})
    drop_nulls(value)
    return converted(value, Node)


_TYPE: Final = ("apiVersion", "kind")
_FOLDED: Final = {*map(str.casefold, _TYPE)}
