"""Write YAML for kubectl. It reads an unquoted ``y`` as true and ``1e3`` as a number; to PyYAML, both are strings."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import yaml

from webhook.documents.values import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN: Final = re.compile(r"[A-Za-z0-9/][\w./-]*", re.ASCII)
"""Text that needs no quotes, unless it resolves to a value that isn't a string."""
_NOT_PRINTABLE: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON allows in a string, but YAML rejects or reads as a line break."""
_NO_BLOCK: Final = re.compile(r"[\x85\u2028\u2029]|(?:\A|\n)\n\Z")
"""Text that only double quotes preserve: YAML's other line breaks, and empty lines at the end."""

_TEXT: Final = "tag:yaml.org,2002:str"
_NO_TEXT: Final = "tag:yaml.org,2002:value"


class _Dumper(yaml.CSafeDumper):
    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        """Return the tag of a scalar. A different tag makes PyYAML quote a string that isn't one to kubectl."""
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_plain_text = kind is yaml.ScalarNode and implicit[0] and tag == _TEXT
        return _NO_TEXT if is_plain_text and resolve(value) != value else tag

    def ignore_aliases(self, _data: object) -> bool:
        """Repeat shared values instead of writing aliases: manifests have no anchors."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _NO_BLOCK.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _text)


def dump(value: object, *, width: int = 80, short_in_brackets: bool = False) -> str:
    """Return a JSON value as YAML without a newline at the end. Keep the order of the members.

    With ``short_in_brackets``, write lists and mappings of scalars on one line.
    """
    flow = None if short_in_brackets else False
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=width
    )
    return text.removesuffix("...\n").rstrip("\n")


def dump_on_one_line(value: object) -> str:
    """Return a JSON value as YAML on one line, with lists and mappings in brackets."""
    if isinstance(value, dict):
        members = (f"{dump_on_one_line(key)}: {dump_on_one_line(member)}" for key, member in value.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(dump_on_one_line, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and resolve(value) == value:
        return value
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def dump_documents(values: Iterable[object], *, width: int, short_in_brackets: bool = False) -> str:
    """Return JSON values as YAML documents. Start each with ``---``."""
    texts = (dump(value, width=width, short_in_brackets=short_in_brackets) for value in values)
    return "".join(f"---\n{text}\n" for text in texts)
