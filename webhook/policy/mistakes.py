"""Validate a document with pydantic, and report all of its mistakes with their lines, fields, and fixes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError

from webhook.base.field_paths import FieldPath, field_path
from webhook.policy.common import Metadata, Model
from webhook.policy.document import PolicyDocument
from webhook.policy.errors import Problem, did_you_mean, quoted_value
from webhook.policy.pydantic_models import checked
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from webhook.documents import Document


M = TypeVar("M")

_LONGEST: Final = 300
"""The maximum length of a mistake's text, which may quote a long value."""

MISTAKES_AT_MOST: Final = 100
"""The maximum number of mistakes reported for a document. To find each line, the document is parsed up to it."""

_TESTS: Final = "PolicyTest"
"""A kind that policy folders can contain, but that isn't a policy."""


def validate_document(
    document: Document, kinds: Mapping[str, type[Model | BaseModel]], problems: list[Problem]
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


_adapter: Final = cache(TypeAdapter)


def validate_model(
    model: type[M], value: object, prefix: tuple[str, ...], problem: Callable[[FieldPath, str], None]
) -> M | None:
    """Return the validated model, or None if it has mistakes.

    Call ``problem`` with the path of each mistake, which starts with ``prefix``, and its text.
    """
    try:
        valid: M = _adapter(model).validate_python(value)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    else:
        return valid
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


def _text(item: ErrorDetails, model: type) -> str:  # noqa: PLR0911 - one for each type of mistake
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


def _fields_at(kind: type, path: Sequence[str | int]) -> list[str]:
    """Return the names of the fields at this path of a struct or a model."""
    (model,) = _models_in(kind)
    for part in path:
        field = next((f for name, f in model.model_fields.items() if part in {name, f.alias}), None)
        model = next(_models_in(field.annotation), model) if field is not None else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield checked(annotation)
    else:
        for argument in get_args(annotation):
            yield from _models_in(argument)
