"""The JSON Schema of policy files, from the very models that read them. Editors are its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from webhook.bundle import document_kinds
from webhook.policy.common import Metadata
from webhook.policy.policy_test import KIND, PolicyTestSpec
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core.core_schema import CoreSchema, DictSchema

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest that every editor knows."""

_DEFINITIONS: Final = "#/definitions/"


class _Generator(GenerateJsonSchema):
    """Without titles: they repeat the fields' names, and editors show them."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # noqa: ARG002
        return False

    def dict_schema(self, schema: DictSchema) -> JsonSchemaValue:
        """A map whose keys all have the shape that they should: pydantic lets those that have not hold anything."""
        keys = self.generate_inner(schema["keys_schema"])
        values = self.generate_inner(schema["values_schema"])
        return {
            "type": "object",
            "additionalProperties": values or True,
            **({"propertyNames": keys} if keys != {"type": "string"} else {}),
        }


def spec_models() -> dict[str, type[BaseModel]]:
    """The model of ``spec`` for every kind of document there is."""
    return {**document_kinds(), KIND: PolicyTestSpec}


def policy_schema() -> dict[str, Any]:
    """One schema for every document that a policy file may hold, and for tests of policies, told apart by ``kind``."""
    kinds = spec_models()
    models: list[type[BaseModel]] = [Metadata, *kinds.values()]
    references, generated = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=_DEFINITIONS + "{model}",
        schema_generator=_Generator,
    )
    metadata = references[Metadata, "validation"]
    documents = {
        name: _document(name, model, metadata, references[model, "validation"]) for name, model in kinds.items()
    }
    return {
        "$schema": DIALECT,
        "title": "spotgate policy",
        "type": "object",
        "properties": {
            "apiVersion": {"description": "The version of the policy language.", "const": API_VERSION},
            "kind": {
                "description": "What the document is.",
                "enum": list(kinds),
                "enumDescriptions": [model.__doc__ for model in kinds.values()],
            },
        },
        "required": ["apiVersion", "kind", "metadata"],
        "oneOf": [{"$ref": _DEFINITIONS + name} for name in documents],
        "definitions": {
            **documents,
            **{name: _tidied(definition) for name, definition in generated["$defs"].items()},
        },
    }


def resolved(schema: dict[str, Any], definitions: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What a reference in the schema stands for; what is said beside it counts."""
    if "$ref" not in schema:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**definitions[schema["$ref"].removeprefix(_DEFINITIONS)], **beside}


def is_model(schema: Mapping[str, Any]) -> bool:
    """Is it a mapping of which all fields are known?"""
    return "properties" in schema and schema.get("additionalProperties") is False


def editor_schema() -> dict[str, Any]:
    """`policy_schema` as editors need it, who read YAML and write it.

    Without defaults that are lists or mappings: they are offered as text, and YAML reads another (``- *cache*`` is an
    alias, ``true`` in a map of annotations no string). With what YAML 1.1 makes of ``off``, and with a ``spec:`` in
    which all is commented out, where nothing is required.
    """
    schema = policy_schema()
    definitions = schema["definitions"]
    for kind in schema["properties"]["kind"]["enum"]:
        if "spec" not in definitions[kind]["required"]:
            definitions[f"{kind}Spec"]["type"] = ["object", "null"]
    for definition in definitions.values():
        for part in (definition, *definition.get("properties", {}).values()):
            if isinstance(part.get("default"), list | dict):
                del part["default"]
            if "off" in part.get("enum", ()):
                part["enum"] = [*part["enum"], False]
                part["enumDescriptions"] = [*part["enumDescriptions"], "`off`, as YAML 1.1 reads it without quotes"]
                part["type"] = ["string", "boolean"]
    return schema


def _document(kind: str, model: type[BaseModel], metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    required = any(field.is_required() for field in model.model_fields.values())
    return {
        "description": model.__doc__,
        "type": "object",
        "properties": {
            "apiVersion": {"description": "The version of the policy language.", "const": API_VERSION},
            "kind": {"description": model.__doc__, "const": kind},
            "metadata": {**metadata, "description": "Name and notes of the document."},
            "spec": {**spec, "description": model.__doc__},
        },
        "required": ["apiVersion", "kind", "metadata", *(["spec"] if required else [])],
        "additionalProperties": False,
    }


def _tidied(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition without its title and, where unknown fields are mistakes, without null for what is left out."""
    tidied = {key: value for key, value in definition.items() if key != "title"}
    if definition.get("additionalProperties") is False:
        tidied["properties"] = {name: _without_null(field) for name, field in definition["properties"].items()}
    return tidied


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A field that can be left out. The loader takes an empty one for that; who writes one is not done yet."""
    match field:
        case {"anyOf": [other, {"type": "null"}], "default": None}:
            return {**other, **{key: value for key, value in field.items() if key not in {"anyOf", "default"}}}
        case _:
            return field
