"""YAML to be read by kubectl, which takes a bare ``y`` for true and ``1e3`` for a number, where PyYAML sees texts."""

from __future__ import annotations

from typing import Final

import yaml

from webhook.documents.values import resolve

_TEXT: Final = "tag:yaml.org,2002:str"
_NO_TEXT: Final = "tag:yaml.org,2002:value"


class ReadByKubectl(yaml.resolver.Resolver):
    """Before one of PyYAML's dumpers among the bases of a class: what it writes is for kubectl."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        """What a plain scalar is read as; a text that is read as something else is put in quotes."""
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_plain_text = kind is yaml.ScalarNode and implicit[0] and tag == _TEXT
        return _NO_TEXT if is_plain_text and resolve(value) != value else tag

    def ignore_aliases(self, data: object) -> bool:
        """Write what is there twice twice: anchors are no good in a manifest."""
        del data
        return True


class Dumper(ReadByKubectl, yaml.SafeDumper):
    """For most YAML."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Elsewhere than in double quotes it is a line break, and read back as a space.
    return dumper.represent_scalar(_TEXT, text, style='"' if "\x85" in text else None)


Dumper.add_representer(str, _text)


def dump(value: object, *, width: int = 80, flow: bool = False) -> str:
    """A value as YAML, its members in their order, without a line end.

    Args:
        value: JSON.
        width: characters of a line, where there is a space to break it at.
        flow: in braces and brackets.
    """
    text: str = yaml.dump(
        value, Dumper=Dumper, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=width
    )
    return text.removesuffix("...\n").rstrip("\n")
