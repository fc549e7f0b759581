"""Check with pydantic what users write, report all mistakes, and describe documents for editors.

pydantic's models are derived from the structs of documents. Importing pydantic and building its models takes longer
than evaluating a file, and shipped documents are valid.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_args, get_type_hints

import msgspec
import pydantic
from msgspec import NODEFAULT
from pydantic import BaseModel, GetJsonSchemaHandler, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue  # noqa: TC002 - pydantic reads the annotations
from pydantic_core import CoreSchema, core_schema

from webhook.policy.errors import did_you_mean, quoted_value
from webhook.policy.schema_annotations import describe_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import ErrorDetails

    from webhook.base.field_paths import FieldPath

M = TypeVar("M")

_LONGEST: Final = 300
"""The maximum length of a mistake's text, which may quote a long value."""

MISTAKES_AT_MOST: Final = 100
"""The maximum number of mistakes reported for a document. To find each line, the document is parsed up to it."""


class CheckedModel(BaseModel):
    """The base of pydantic's models: frozen, without unknown fields, and with camelCase field names in files.

    Attributes:
        struct: the struct from which the model is derived, if any.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, defer_build=True)
    struct: ClassVar[type[msgspec.Struct] | None] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        names = ((name, field.alias or name) for name, field in cls.model_fields.items())
        describe_fields(cls.struct or cls, names, properties)
        for name, field in properties.items():
            match field:
                case {"anyOf": [written, {"type": "null"}], "default": None, **others}:  # `_is_written` rejects null
                    properties[name] = {**written, **others}
        return described

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _is_written(cls, value: object) -> object:
        """Reject a field without a value: the value is commented out, or its indentation is wrong."""
        if value is None:
            raise ValueError("is empty; set a value, or remove the field")
        return value


@cache
def checked(struct: type[msgspec.Struct]) -> type[CheckedModel]:
    """Return pydantic's model of a struct: the same fields, with all their annotations."""
    hints = get_type_hints(struct, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], _field(field)) for field in msgspec.structs.fields(struct)
    }
    model: type[CheckedModel] = pydantic.create_model(
        struct.__name__, __base__=CheckedModel, __module__=struct.__module__, __doc__=struct.__doc__, **fields
    )
    model.struct = struct
    return model


def checked_schema(struct: type[msgspec.Struct], handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return pydantic's schema of a struct: validate the fields, build the struct, and call its `check`."""

    def build(fields: BaseModel) -> msgspec.Struct:
        built: Any = struct(**vars(fields))
        built.check()
        return built  # type: ignore[no-any-return]

    return core_schema.no_info_after_validator_function(build, handler.generate_schema(checked(struct)))


def _field(field: msgspec.structs.FieldInfo) -> Any:
    default = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    return pydantic.Field(default=... if default is NODEFAULT else default, alias=field.encode_name)


_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)


def validate_model(
    model: type[M], value: object, prefix: tuple[str, ...], problem: Callable[[FieldPath, str], None]
) -> M | None:
    """Return the validated model, or None if it has mistakes.

    Call ``problem`` with the path of each mistake, which starts with ``prefix``, and its text.
    """
    try:
        valid: M = _adapter(model).validate_python(value)
    except pydantic.ValidationError as error:
        mistakes = error.errors(include_url=False)
    else:
        return valid
    if rest := len(mistakes[MISTAKES_AT_MOST:]):
        problem(prefix, f"{rest} more mistakes are not shown")
    for item in mistakes[:MISTAKES_AT_MOST]:
        if item["type"] == "too_short" and item["input"]:
            continue  # the list isn't empty: each item has a mistake, which is reported
        field: FieldPath = getattr(item.get("ctx", {}).get("error"), "path", ())  # of a `SpecError`
        path = (*prefix, *(part for part in item["loc"] if part != "[key]"), *field)
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
            return f"unknown field `{name}`{did_you_mean(name, fields_at(model, item['loc'][:-1]))}"
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


def fields_at(kind: type, path: Sequence[str | int]) -> list[str]:
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
