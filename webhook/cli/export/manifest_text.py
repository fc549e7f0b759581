"""YAML of manifests that commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from webhook.documents.yaml_writer import Dumper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TEXT: Final = "tag:yaml.org,2002:str"
_WIDTH: Final = 1000
"""Characters of a line, so many that expressions and certificates stay on one."""


class _Dumper(Dumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indent lists in mappings too, as manifests mostly have it."""
        super().increase_indent(flow, False)  # noqa: FBT003


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    if "\n" in text:
        return dumper.represent_scalar(_TEXT, text, style="|")
    return Dumper.yaml_representers[str](dumper, text)


_Dumper.add_representer(str, _text)


def as_block(value: Mapping[str, Any]) -> str:
    """Return one mapping, an item on each line."""
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=_WIDTH)


def as_documents(values: Iterable[Mapping[str, Any]]) -> str:
    """Return documents, each after a `---`, with short values on one line."""
    return yaml.dump_all(
        values, Dumper=_Dumper, default_flow_style=None, explicit_start=True, sort_keys=False, width=_WIDTH
    )
