"""Derive pydantic's models from the structs of documents, to validate what users write and to describe it for editors.

Importing pydantic and building its models takes longer than evaluating a file, and shipped documents are valid.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import msgspec
from msgspec import NODEFAULT
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, create_model, field_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue  # noqa: TC002 - pydantic reads the annotations
from pydantic_core import CoreSchema, core_schema

from webhook.policy.schema_annotations import describe_fields

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler


class CheckedModel(BaseModel):
    """The base of pydantic's models: frozen, without unknown fields, and with camelCase field names in files.

    Attributes:
        struct: the struct from which the model is derived, if any.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, defer_build=True)
    struct: ClassVar[type[msgspec.Struct] | None] = None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        names = ((name, field.alias or name) for name, field in cls.model_fields.items())
        describe_fields(cls.struct or cls, names, handler.resolve_ref_schema(described).get("properties", {}))
        return described

    @field_validator("*", mode="before")
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
    model: type[CheckedModel] = create_model(
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
    return Field(default=... if default is NODEFAULT else default, alias=field.encode_name)
