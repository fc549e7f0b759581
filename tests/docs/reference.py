"""The generated parts of docs/: ``python -m tests.docs.reference`` updates them.

People write the pages, except the text between two marks:

    <!-- fields of ReservedLabels -->       <!-- end of fields -->      the fields of its ``spec``; or ``of every policy``
    <!-- findings of ReservedLabels -->     <!-- end of findings -->    the ids of its findings
    <!-- help of check -->                  <!-- end of help -->        the output of ``spotgate check --help``
    <!-- text of examples/a.yaml -->        <!-- end of text -->        a file
    <!-- all formats -->                    <!-- end of all -->         a list: see `_ALL`

``docs/findings.md`` and the alerts for the Prometheus operator are generated completely.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from tests.docs.command_help import command_help, command_list, format_list
from tests.docs.providers_page import AnnotationError, provider_sections, provider_table
from tests.monitoring.tables import (
    OPERATOR_RULES,
    TESTED_RULES,
    alert_table,
    metric_table,
    operator_rules,
    rules_without_annotations,
)
from webhook.commands.schema.command import policy_schema
from webhook.engine.bundle import policy_kinds
from webhook.engine.findings import FindingText, anchor_of, as_markdown, finding_texts
from webhook.policy.common import ExemptSpec, PolicySpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.policy.common import Model

Schema = dict[str, Any]

_ALL: Final = {
    "alerts": alert_table,
    "commands": command_list,
    "formats": format_list,
    "metrics": metric_table,
    "facts": provider_sections,
    "providers": provider_table,
}

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (*sorted((ROOT / "docs" / "policies").glob("*.md")), ROOT / "docs" / "policy-tests.md")
"""The pages of all kinds of documents."""

_NAMED: Final = ("adding-a-provider", "monitoring", "on-demand-floor", "operate", "providers")
OTHER_PAGES: Final = (*sorted((ROOT / "docs" / "cli").glob("*.md")), *(ROOT / "docs" / f"{page}.md" for page in _NAMED))
FINDINGS_PAGE: Final = ROOT / "docs" / "findings.md"
EVERY: Final = "every policy"
"""The fields that are documented once for all policy kinds."""

_INTRODUCTION: Final = """\
# Findings

Every finding has a stable id: the policy kind in kebab case, and what is wrong. The id is in all output formats, in denials, warnings, audit
annotations, and logs, and in the metric `spotgate_findings_total`. To print a section of this page, run
`spotgate explain reserved-labels/reserved`.

The examples use the shipped policies, unless a section shows another policy. `--state` passes the objects of the cluster.

To exempt users, namespaces, or objects from a policy's finding, list them in [`exempt`](policies/common.md#exempt) of the policy or in an
Exemption. A section names further ways under *Exemptions*."""

_SHARED: Final = frozenset(PolicySpec.__struct_encode_fields__)
_OF_EXEMPT: Final = {"Exemption": set(ExemptSpec.__struct_encode_fields__)}
"""The fields of an Exemption that are also in the table of every policy."""
_MARKED: Final = re.compile(
    r"<!-- (fields|findings|help|text|all) (?:of )?([^\n]+) -->\n.*?(?=<!-- end of \1 -->)", re.DOTALL
)
_LONG: Final = 40
"""The length in characters from which a description is not repeated in a table."""
_HEAD: Final = "\n| Field of `spec` | Description |\n|---|---|\n"


def marked(page: Path) -> list[str]:
    """Return the kinds whose fields the page lists."""
    return [match[2] for match in _MARKED.finditer(page.read_text()) if match[1] == "fields"]


def page_of(kind: str) -> Path:
    """Return the page of a kind of document."""
    for page in PAGES:
        if kind in marked(page):
            return page
    raise AssertionError(f"no page in docs/policies/ has `<!-- fields of {kind} -->`: see docs/adding-a-policy-kind.md")


def render(page: Path) -> str:
    """Return the page with the text between its marks updated."""
    return _MARKED.sub(
        lambda match: match[0].partition("\n")[0] + "\n" + _written(match[1], match[2]), page.read_text()
    )


def _written(mark: str, name: str) -> str:
    match mark:
        case "fields":
            return _table(name)
        case "findings":
            return _findings(policy_kinds()[name].slug)
        case "help":
            return command_help(name)
        case "text":
            return f"\n```yaml\n{(ROOT / name).read_text()}```\n\n"
        case _:
            return f"\n{_ALL[name]()}\n\n"


def findings_page() -> str:
    """Return ``docs/findings.md``."""
    parts = [_INTRODUCTION]
    kinds = {kind.slug: name for name, kind in policy_kinds().items()}
    for slug, name in {**kinds, "object": ""}.items():
        parts.append(f"## {name}\n\nSee [{name}](policies/{slug}.md)." if name else "## Objects of any kind")
        parts += [f"### {name}\n\n{as_markdown(name)}" for name in _of(slug)]
    return "\n\n".join(parts) + "\n"


def _findings(slug: str) -> str:
    """Return the table of a kind's findings."""
    rows = [
        f"| [`{name}`](../findings.md#{anchor_of(name)}) | {finding_texts()[name].means} | {_setting(name)} |\n"
        for name in _of(slug)
    ]
    return "\n| id | Description | Setting |\n|---|---|---|\n" + "".join(rows) + "\n"


def _of(slug: str) -> list[str]:
    return [name for name in finding_texts() if name.startswith(f"{slug}/")]


def _setting(finding_id: str) -> str:
    setting = finding_texts()[finding_id].setting
    return f"`{setting}`" if setting else ""


def resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Resolve a reference in the schema; keywords next to it take precedence."""
    if "$ref" not in schema:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**definitions[schema["$ref"].removeprefix("#/definitions/")], **beside}


def is_model(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is a mapping with a fixed set of fields."""
    return "properties" in schema and schema.get("additionalProperties") is False


def _table(name: str) -> str:
    definitions = policy_schema()["definitions"]
    kind = next(kind for kind, policy in policy_kinds().items() if not _own_of(policy.spec)) if name == EVERY else name
    spec = resolved(definitions[kind]["properties"]["spec"], definitions)
    shared = _SHARED - _own_of(policy_kinds()[kind].spec) if kind in policy_kinds() else _OF_EXEMPT.get(kind, set())
    properties = {key: field for key, field in spec["properties"].items() if (key in shared) == (name == EVERY)}
    told = {}
    if kind in policy_kinds() and name != EVERY:  # the page about every policy explains the values of `enforcement`
        told[str(resolved(spec["properties"]["enforcement"], definitions)["enumDescriptions"])] = ""
    rows = _rows({**spec, "properties": properties}, "", definitions, told)
    return _HEAD + "".join(f"{row}\n" for row in rows) + "\n"


def _own_of(spec: type[Model]) -> set[str]:
    """Return the common policy fields that this kind documents differently."""
    return {field.encode_name for field in msgspec.structs.fields(PolicySpec) if field.name in spec.__annotations__}


def _rows(model: Schema, prefix: str, definitions: Mapping[str, Schema], told: dict[str, str]) -> Iterator[str]:
    """Yield a row for each field and its nested fields.

    Args:
        model: the model with the fields.
        prefix: the path of the model.
        definitions: the definitions of the schema.
        told: models and enumerations that earlier rows explain, with their places.
    """
    for name, printed in model["properties"].items():
        written = _without_null(printed)
        field = resolved(written, definitions)
        path = f"{prefix}{name}"
        inside, suffix = _inside(written)
        reference = inside.get("$ref", "")
        inner = resolved(inside, definitions)
        again = told.setdefault(f"{name}: {field['description']}", path)
        text = field["description"] if again == path or len(field["description"]) < _LONG else f"As `{again}`."
        meaning = "<br>".join([text, *_words(field, told)])
        if is_model(inner) and reference in told and again == path:
            meaning += f" As `{told[reference]}`."
        required, default = name in model.get("required", ()), _default(field)
        if required or default:
            meaning += ("<br>" if "<br>" in meaning else " ") + ("Required." if required else f"Default: {default}")
        cells = (f"`{path}`<br>{_type(written, definitions)}", meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        if is_model(inner) and reference not in told:
            told[reference] = path
            yield from _rows(inner, f"{path}{suffix}.", definitions, told)


def _without_null(field: Schema) -> Schema:
    """Return an optional field without the null that represents absence in a model."""
    match field:
        case {"anyOf": [other, {"type": "null"}], "default": None}:
            return {**other, **{key: value for key, value in field.items() if key not in {"anyOf", "default"}}}
        case _:
            return field


def _inside(field: Schema) -> tuple[Schema, str]:
    """Return the item schema of a list or map and its path suffix, or the field itself."""
    if (values := _values(field)) is not None:
        return values, ".*"
    return (field["items"], "[]") if "items" in field else (field, "")


def _values(field: Schema) -> Schema | None:
    """Return the value schema of a map, or None for any value or another type."""
    for values in (field.get("additionalProperties"), *field.get("patternProperties", {}).values()):
        if isinstance(values, dict):
            return values
    return None


def _type(written: Schema, definitions: Mapping[str, Schema]) -> str:
    field = resolved(written, definitions)
    match field:
        case {"enum": words}:
            text = ", ".join(f"`{word}`" for word in words)
        case {"const": _}:
            text = "empty"
        case {"type": "array", "items": items}:
            text = f"list of {_type(items, definitions)}"
        case {"type": "object"}:
            values = _values(field)
            text = "mapping" if values is None else f"map of {_type(values, definitions)}"
        case {"anyOf": choices}:
            text = " or ".join(_type(choice, definitions) for choice in choices)
        case {"type": "integer", "minimum": least, "maximum": most}:
            text = f"{least} to {most}"
        case _:
            text = str(field.get("format") or field.get("type", "any value"))
    return text


def _default(field: Schema) -> str:
    default = field.get("default")
    if default in (None, "", [], {}) or (is_model(field) and "required" not in field):
        return ""  # the fields of a model without required fields have their own defaults
    if isinstance(default, dict):
        return ", ".join(f"`{name}: {_yaml(value)}`" for name, value in default.items())
    if isinstance(default, list):
        return ", ".join(f"`{_item(item)}`" for item in default)
    return f"`{_yaml(default)}`"


def _item(item: Any) -> str:
    """Format a list item: a taint or label in one word, a named item by its name."""
    match item:
        case {"name": name}:
            return str(name)
        case {"key": key, "value": value, **rest}:
            return f"{key}{'=' * bool(value)}{value}" + (f":{effect}" if (effect := rest.get("effect")) else "")
        case _:
            return _yaml(item)


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        value = {key: child for key, child in value.items() if child is not None}
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()


def _words(field: Schema, told: dict[str, str]) -> Iterator[str]:
    """Yield the values of an enumeration with their meanings, once."""
    meanings = field.get("enumDescriptions", ())
    if meanings and str(meanings) not in told:
        told[str(meanings)] = ""
        for word, meaning in zip(field["enum"], meanings, strict=True):
            yield f"`{word}`: {meaning}"


if __name__ == "__main__":
    for file in ROOT.glob("webhook/**/*findings.yaml"):
        try:
            msgspec.convert(yaml.safe_load(file.read_text()), dict[str, FindingText])
        except msgspec.ValidationError as error:
            sys.exit(f"{file}: {error}")
    try:
        for page in (*PAGES, *OTHER_PAGES):
            page.write_text(render(page))
    except AnnotationError as error:
        sys.exit(str(error))
    FINDINGS_PAGE.write_text(findings_page())
    OPERATOR_RULES.write_text(operator_rules())
    TESTED_RULES.write_text(rules_without_annotations())
