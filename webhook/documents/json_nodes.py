"""Find the position of each value in JSON text.

YAML's parser can't: it refuses DEL and escaped pairs of surrogates, which is how Python's json writes an emoji.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from webhook.documents.nodes import Member, TextNode

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_json(source: str) -> bool:
    """Return whether a text is one JSON value."""
    try:
        json.loads(source)
    except ValueError:
        return False
    return True


def compose_json(source: str) -> TextNode:
    """Return the node of the one value in JSON text."""
    tokens = _TOKEN.finditer(source)
    return _node(next(tokens), tokens)


def _node(token: re.Match[str], tokens: Iterator[re.Match[str]]) -> TextNode:
    """Return the node of the value that begins with ``token``, which was taken from ``tokens``."""
    node = TextNode(start=token.start(), end=token.end(), opened=token.end())
    if token[0] == "{":
        node.flow, node.members = True, {}
        while (token := next(tokens))[0] != "}":
            value = _node(next(tokens), tokens)
            value.key = token.end()
            node.members[json.loads(token[0])] = Member(token.start(), value)
    elif token[0] == "[":
        node.flow, node.items = True, []
        while (token := next(tokens))[0] != "]":
            node.items.append(_node(token, tokens))
    node.end = token.end()
    return node


_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s"{}\[\]:,]+')
"""A token of valid JSON: a string, a bracket, a number or a word."""
