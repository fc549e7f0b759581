"""Load policy files, and report each mistake with its file, line, field, and fix."""

from __future__ import annotations

from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from webhook.base.field_paths import FieldPath, field_path
from webhook.base.reading import read_file
from webhook.documents import Document, DocumentError, read_documents
from webhook.policy.common import Metadata, built
from webhook.policy.document import PolicyDocument, is_named_like_policy
from webhook.policy.errors import Problem, did_you_mean, escaped_name, quoted_value, unreadable
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic import BaseModel

    from webhook.policy.common import Model

Kinds: TypeAlias = "Mapping[str, type[Model | BaseModel]]"
"""The model of ``spec`` by kind."""

_KEYS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
_TESTS: Final = "PolicyTest"
"""A kind that policy folders can contain, but that isn't a policy."""


def load_documents(
    files: Sequence[Path], kinds: Kinds, problems: list[Problem], *, trusted: bool = False
) -> list[PolicyDocument]:
    """Read and validate the files. Add mistakes to ``problems``. Shipped files can be trusted: tests validate them."""
    loaded: list[PolicyDocument] = []
    for file in files:
        try:
            if is_named_like_policy(file) and not S_ISREG(file.stat().st_mode):
                text = "has the name of a policy file, but isn't a regular file; restore the file, or remove this one"
                problems.append(Problem(escaped_name(str(file)), 0, 0, "", text))
                continue
            documents = read_documents(read_file(file), str(file))
        except OSError as error:
            problems.append(unreadable(str(file), error))
            continue
        except DocumentError as error:
            problems.append(Problem(error.file, error.line, error.column, "", f"{error.problem}; {error.fix}"))
            continue
        if not documents:  # a file that was emptied by mistake must not switch its policies off
            problems.append(Problem(str(file), 0, 0, "", "contains no policy; if that is intended, remove the file"))
        load = _built if trusted else validate_document
        validated = (load(document, kinds, problems) for document in documents)
        loaded.extend(policy for policy in validated if policy is not None)
    problems.extend(duplicates(loaded))
    return loaded


def _built(document: Document, kinds: Kinds, problems: list[Problem]) -> PolicyDocument | None:
    """Return a document without checking more than its types. If they are wrong, return as `validate_document`."""
    value: Any = document.value
    try:
        if value["apiVersion"] != API_VERSION or not value.keys() <= _KEYS:
            return validate_document(document, kinds, problems)
        spec = built(value.get("spec", {}), kinds[value["kind"]])
        return PolicyDocument(value["kind"], value["metadata"]["name"], spec, document)
    except (msgspec.ValidationError, LookupError, TypeError):
        return validate_document(document, kinds, problems)


def validate_document(document: Document, kinds: Kinds, problems: list[Problem]) -> PolicyDocument | None:
    """Return the validated document, or None if it has mistakes, or is a PolicyTest and ``kinds`` doesn't include it.

    Add mistakes to ``problems``.
    """
    value, before = document.value, len(problems)

    def problem(path: FieldPath, text: str) -> None:
        problems.append(Problem(document.file, *document.position(path), field_path(path), text))

    if not isinstance(value, dict):
        problem((), "a policy document is a map with apiVersion, kind, metadata and spec")
        return None
    kind = value.get("kind")
    if value.get("apiVersion") != API_VERSION:
        problem(("apiVersion",), f"expected {API_VERSION}, got {quoted_value(value.get('apiVersion'))}")
        return None
    if kind == _TESTS and kind not in kinds:
        return None
    from webhook.policy.checking import fields_at, validate_model

    for key in value.keys() - _KEYS:
        below = isinstance(kind, str) and kind in kinds and key in fields_at(kinds[kind], ())
        hint = "; write it under `spec`" if below else did_you_mean(key, ("metadata", "spec"))
        problem((key,), f"unknown field `{key}`{hint}")
    metadata = validate_model(Metadata, value.get("metadata", {}), ("metadata",), problem)
    spec: Model | BaseModel | None = None
    if isinstance(kind, str) and kind in kinds:
        spec = validate_model(kinds[kind], {} if value.get("spec") is None else value["spec"], ("spec",), problem)
    else:
        names = ", ".join(sorted(kinds))
        unknown = "is missing" if kind is None else f"unknown kind {quoted_value(kind)}{did_you_mean(str(kind), kinds)}"
        problem(("kind",), f"{unknown}; available: {names}")
    if metadata is None or spec is None or len(problems) > before:
        return None
    return PolicyDocument(str(kind), metadata.name, spec, document)


def duplicates(loaded: Sequence[PolicyDocument]) -> Iterator[Problem]:
    """Yield a problem for each document with the name of an earlier document."""
    first: dict[str, PolicyDocument] = {}
    for policy in loaded:
        other = first.setdefault(policy.name, policy)
        if other is not policy:
            line, _ = other.document.position(("metadata", "name"))
            where = f"{other.kind} at {other.document.file}:{line}"
            text = f"{policy.name!r} is also the name of {where}; rename one, or remove it"
            yield policy.problem(("metadata", "name"), text)
