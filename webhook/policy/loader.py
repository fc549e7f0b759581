"""Load policy files, and report each mistake with its file, line, field, and fix."""

from __future__ import annotations

from stat import S_ISREG
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from webhook.base.reading import read_file
from webhook.documents import Document, DocumentError, read_documents
from webhook.policy.common import Metadata  # noqa: TC001 - msgspec reads the annotations
from webhook.policy.document import PolicyDocument, is_named_like_policy
from webhook.policy.errors import Problem, escaped_name, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from webhook.policy.common import Model

Kinds: TypeAlias = "Mapping[str, type[Model]]"
"""The model of ``spec`` by kind."""


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
        load = _built if trusted else _validated
        validated = (load(document, kinds, problems) for document in documents)
        loaded.extend(policy for policy in validated if policy is not None)
    problems.extend(duplicates(loaded))
    return loaded


def _validated(document: Document, kinds: Kinds, problems: list[Problem]) -> PolicyDocument | None:
    from webhook.policy.mistakes import validate_document

    return validate_document(document, kinds, problems)


def _built(document: Document, kinds: Kinds, problems: list[Problem]) -> PolicyDocument | None:
    """Return a document without checking more than its types. If they are wrong, return as `validate_document`."""
    try:
        written = msgspec.convert(document.value, _Written)
        spec = msgspec.convert(written.spec, kinds[written.kind], dec_hook=lambda kind, value: kind(value))
    except (msgspec.ValidationError, KeyError):
        return _validated(document, kinds, problems)
    return PolicyDocument(written.kind, written.metadata.name, spec, document)


class _Written(msgspec.Struct):
    """A document of a policy file."""

    kind: str
    metadata: Metadata
    spec: Any = {}


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
