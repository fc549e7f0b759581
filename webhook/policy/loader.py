"""Load and validate policy files, and report each mistake with its file, line, field, and fix."""

from __future__ import annotations

from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from webhook.base.field_paths import FieldPath, field_path
from webhook.base.reading import read_file
from webhook.documents import Document, DocumentError, read_documents
from webhook.policy.common import Metadata
from webhook.policy.document import PolicyDocument, is_named_like_policy
from webhook.policy.errors import Problem, did_you_mean, escaped_name, quoted_value, unreadable
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails


M = TypeVar("M", bound=BaseModel)

_LONGEST: Final = 300
"""The maximum length of a mistake's text, which may quote a long value."""

MISTAKES_AT_MOST: Final = 100
"""The maximum number of mistakes reported for a document. To find each line, the document is parsed up to it."""

_TESTS: Final = "PolicyTest"
"""A kind that policy folders can contain, but that isn't a policy."""


def load_documents(
    files: Sequence[Path], kinds: Mapping[str, type[BaseModel]], problems: list[Problem]
) -> list[PolicyDocument]:
    """Read and validate the files. Add mistakes to ``problems``."""
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
        validated = (validate_document(document, kinds, problems) for document in documents)
        loaded.extend(policy for policy in validated if policy is not None)
    problems.extend(duplicates(loaded))
    return loaded


def validate_document(
    document: Document, kinds: Mapping[str, type[BaseModel]], problems: list[Problem]
) -> PolicyDocument | None:
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
    for key in value.keys() - {"apiVersion", "kind", "metadata", "spec"}:
        below = isinstance(kind, str) and kind in kinds and key in _fields_at(kinds[kind], ())
        hint = "; write it under `spec`" if below else did_you_mean(key, ("metadata", "spec"))
        problem((key,), f"unknown field `{key}`{hint}")
    metadata = validate_model(Metadata, value.get("metadata", {}), ("metadata",), problem)
    spec: BaseModel | None = None
    if isinstance(kind, str) and kind in kinds:
        spec = validate_model(kinds[kind], {} if value.get("spec") is None else value["spec"], ("spec",), problem)
    else:
        names = ", ".join(sorted(kinds))
        unknown = "is missing" if kind is None else f"unknown kind {quoted_value(kind)}{did_you_mean(str(kind), kinds)}"
        problem(("kind",), f"{unknown}; available: {names}")
    if metadata is None or spec is None or len(problems) > before:
        return None
    return PolicyDocument(str(kind), metadata.name, spec, document)


def validate_model(
    model: type[M], value: object, prefix: tuple[str, ...], problem: Callable[[FieldPath, str], None]
) -> M | None:
    """Return the validated model, or None if it has mistakes.

    Call ``problem`` with the path of each mistake, which starts with ``prefix``, and its text.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    if rest := len(mistakes[MISTAKES_AT_MOST:]):
        problem(prefix, f"{rest} more mistakes are not shown")
    for item in mistakes[:MISTAKES_AT_MOST]:
        if item["type"] == "too_short" and item["input"]:
            continue  # the list isn't empty: each item has a mistake, which is reported
        path = (*prefix, *(part for part in item["loc"] if part != "[key]"))
        problem(path, _text(item, model)[:_LONGEST])
    return None


_TYPES: Final = {
    "bool_type": "true or false",
    "dict_type": "a map (key: value)",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "model_type": "a map (key: value)",
    "string_type": "text",
    "tuple_type": "a list",
}
"""Expected types in YAML terms, by pydantic's type of error."""


def _text(item: ErrorDetails, model: type[BaseModel]) -> str:  # noqa: PLR0911 - one for each type of mistake
    value = item["input"]
    match item["type"]:
        case "extra_forbidden":
            name = str(item["loc"][-1])
            return f"unknown field `{name}`{did_you_mean(name, _fields_at(model, item['loc'][:-1]))}"
        case "missing":
            return "is missing"
        case "literal_error" | "enum":
            expected = item["ctx"]["expected"].replace("'", "")
            hint = did_you_mean(str(value), expected.replace(" or ", ", ").split(", "))
            return f"{quoted_value(value)} is not one of {expected}{hint}"
        case "value_error":
            return str(item["ctx"]["error"])
        case "too_short":
            return "must not be empty"
        case "date_parsing" | "date_from_datetime_parsing":
            return f"{value} is not a date"
        case type_ if type_ in _TYPES:
            fix = "; put it in quotes" if type_ == "string_type" and isinstance(value, int | float) else ""
            return f"must be {_TYPES[type_]}, got {quoted_value(value)}{fix}"
        case _:
            return f"{item['msg'].replace('Input should', 'must')}, got {quoted_value(value)}"


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the field names of the model at this path."""
    for part in path:
        field = next((f for name, f in model.model_fields.items() if part in {name, f.alias}), None)
        model = next(_models_in(field.annotation), model) if field is not None else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from _models_in(argument)


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
