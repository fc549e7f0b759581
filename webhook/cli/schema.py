"""``spotgate schema``: the JSON Schema of policy files, from the very models that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from webhook.bundle import document_kinds
from webhook.cli.exits import FINE
from webhook.policy.common import API_VERSION, Metadata
from webhook.policy.policy_test import KIND, PolicyTestSpec

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from pydantic import BaseModel

DESCRIPTION: Final = """\
Print the JSON Schema (draft 2020-12) of policy files, for editors: completion, explanations, and
mistakes underlined.
"""

EPILOG: Final = """\
examples:
  %(prog)s > spotgate.schema.json

  With the YAML language server (VS Code, Neovim, JetBrains ...), as the first line of a policy file:
  # yaml-language-server: $schema=spotgate.schema.json

exit codes:
  0  always
"""


def configure(parser: ArgumentParser) -> None:
    """There are no flags."""
    del parser


def run(options: Namespace) -> int:
    """Print it."""
    del options
    print(orjson.dumps(policy_schema(), option=orjson.OPT_INDENT_2).decode())
    return FINE


def policy_schema() -> dict[str, Any]:
    """One schema for every document that a policy file may hold, and for tests of policies, told apart by ``kind``."""
    kinds: dict[str, type[BaseModel]] = {**document_kinds(), KIND: PolicyTestSpec}
    models: list[type[BaseModel]] = [Metadata, *kinds.values()]
    references, generated = models_json_schema([(model, "validation") for model in models])
    metadata = references[Metadata, "validation"]
    definitions = {
        name: _document(name, model, metadata, references[model, "validation"]) for name, model in kinds.items()
    }
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "spotgate policy",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in definitions],
        "$defs": {**definitions, **generated["$defs"]},
    }


def _document(kind: str, model: type[BaseModel], metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    required = any(field.is_required() for field in model.model_fields.values())
    return {
        "title": kind,
        "description": model.__doc__,
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind, "description": model.__doc__},
            "metadata": metadata,
            "spec": spec,
        },
        "required": ["apiVersion", "kind", "metadata", *(["spec"] if required else [])],
        "additionalProperties": False,
    }
