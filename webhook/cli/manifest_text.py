"""Manifests that commands print, as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from webhook.documents.values import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WIDTH: Final = 1000
"""Characters of a line: expressions and certificates stay on one."""

_TEXT: Final = "tag:yaml.org,2002:str"
_NO_TEXT: Final = "tag:yaml.org,2002:value"


class _Dumper(yaml.SafeDumper):
    """Writes what is there twice twice: anchors are no good in a manifest."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indent lists in mappings too, as manifests mostly have it."""
        super().increase_indent(flow, False)  # noqa: FBT003

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        """What a plain scalar is read as; a text that is read as something else is put in quotes.

        By kubectl, too, which takes `y` for true and `1e3` for a number.
        """
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_plain_text = kind is yaml.ScalarNode and implicit[0] and tag == _TEXT
        return _NO_TEXT if is_plain_text and resolve(value) != value else tag


def as_block(value: Mapping[str, Any]) -> str:
    """One mapping, an item on each line."""
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=_WIDTH)


def as_documents(values: Iterable[Mapping[str, Any]]) -> str:
    """Documents, each behind a `---`; what is short stays on one line."""
    return yaml.dump_all(
        values, Dumper=_Dumper, default_flow_style=None, explicit_start=True, sort_keys=False, width=_WIDTH
    )
