"""What a model says to editors and to the reference, and not to the loader, which has validators for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler, JsonValue
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True, eq=False)
class Meanings:
    """Annotates an enumeration: ``Annotated[Literal["a", "b"], Meanings({"a": "...", "b": "..."})]``.

    Editors show ``enumDescriptions`` beside the words that they offer.
    """

    words: dict[str, str]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        enumeration = handler.resolve_ref_schema(schema)
        enumeration["enumDescriptions"] = [self.words[word] for word in enumeration["enum"]]
        return schema


def at_least_one(*names: str) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields."""
    return {"anyOf": [{"required": [name]} for name in names]}


def exactly_one(*names: str) -> dict[str, JsonValue]:
    """For ``json_schema_extra`` of a model that needs one of these fields and takes no two."""
    return {"oneOf": [{"required": [name]} for name in names]}
