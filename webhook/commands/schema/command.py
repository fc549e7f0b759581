"""Print the JSON Schema of policy files, generated from the models that parse them: ``spotgate schema``.

Print the JSON Schema (draft 7) of policy files, for completion and checks in editors.

examples:
  %(prog)s > schema.json

  With the YAML language server (VS Code, Neovim, JetBrains ...), as the first line of a policy file:
  # yaml-language-server: $schema=schema.json

exit codes:
  0  always
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from webhook.base.exits import FINE
from webhook.base.globs import Globs
from webhook.base.terminal import as_json
from webhook.commands.shared.help import help_of
from webhook.engine.bundle import document_kinds
from webhook.policy.checking import checked
from webhook.policy.common import Metadata
from webhook.policy.policy_test import KIND, PolicyTestSpec
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from pydantic import BaseModel
    from pydantic_core.core_schema import CoreSchema

    from webhook.rules.node_pool_rules.message import MessageTemplate

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(_: ArgumentParser) -> None:
    """Add no flags."""


def run(_: Namespace) -> int:
    """Print the schema."""
    print(as_json(editor_schema()))
    return FINE


DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest dialect that all editors support."""

_DEFINITIONS: Final = "#/definitions/"
_API_VERSION: Final = {"description": "The version of the policy language.", "const": API_VERSION}


class _Generator(GenerateJsonSchema):
    """A generator of schemas without titles: titles repeat field names, and editors show them."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # noqa: ARG002
        return False

    def encode_default(self, dft: object) -> object:
        """Return a default as users write it."""
        return msgspec.json.decode(msgspec.json.encode(dft, enc_hook=_written))


def _written(value: Globs | MessageTemplate) -> object:
    return value.patterns if isinstance(value, Globs) else value.text


def spec_models() -> dict[str, type[BaseModel]]:
    """Return the model of ``spec`` for every document kind."""
    return {**{name: checked(kind) for name, kind in document_kinds().items()}, KIND: PolicyTestSpec}


def policy_schema() -> dict[str, Any]:
    """Return a schema for all documents of policy files and for PolicyTests. ``kind`` selects the definition."""
    kinds = spec_models()
    models: list[type[BaseModel]] = [checked(Metadata), *kinds.values()]
    references, generated = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=_DEFINITIONS + "{model}",
        schema_generator=_Generator,
    )
    metadata = references[checked(Metadata), "validation"]
    return {
        "$schema": DIALECT,
        "title": "spotgate policy",
        "type": "object",
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": {
                "description": "What the document is.",
                "enum": list(kinds),
                "enumDescriptions": [model.__doc__ for model in kinds.values()],
            },
        },
        "required": ["apiVersion", "kind", "metadata"],
        "oneOf": [{"$ref": _DEFINITIONS + name} for name in kinds],
        "definitions": {
            **{
                name: _document(name, model, metadata, references[model, "validation"]) for name, model in kinds.items()
            },
            **generated["$defs"],
        },
    }


def editor_schema() -> dict[str, Any]:
    """Return `policy_schema` without defaults that are null, lists, or maps.

    Editors insert them, but the loader rejects null, and YAML parses others differently: ``- *cache*`` is an alias.
    """
    schema = policy_schema()
    for definition in schema["definitions"].values():
        for field in definition.get("properties", {}).values():
            if isinstance(field.get("default", ""), list | dict | None):
                del field["default"]
    return schema


def _document(kind: str, model: type[BaseModel], metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    required = any(field.is_required() for field in model.model_fields.values())
    return {
        "description": model.__doc__,
        "type": "object",
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": {"description": model.__doc__, "const": kind},
            "metadata": {**metadata, "description": "Name and notes of the document."},
            "spec": {**spec, "description": model.__doc__},
        },
        "required": ["apiVersion", "kind", "metadata", *(["spec"] if required else [])],
        "additionalProperties": False,
    }
