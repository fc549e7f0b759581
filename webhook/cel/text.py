"""The text of expressions: made ready for the library, with everything at its place in the text.

``variables.name`` becomes one name, so that it can be bound; ``matches`` and ``substring`` those in
`webhook.cel.functions`. To the
library ``request.userInfo`` and others in `webhook.cel.library` are names and no fields, so ``has`` of them becomes
another function, and ``has(variables.name)`` is true where it has a value. What is asked of a null, as
``oldObject.?spec`` and ``has(oldObject.spec)`` on CREATE, is absent in Kubernetes, and an error to the library: there
another name stands for the null, bound to an empty map.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "variables_"
_OR_EMPTY: Final = {"object": "objecT", "oldObject": "oldObjecT", "namespaceObject": "namespaceObjecT"}
"""What may be null, and what stands for it where it is asked what it has."""
_OR_EMPTY_OF: Final = {stands: name for name, stands in _OR_EMPTY.items()}
_WORDS: Final = re.compile(
    r"""
      (?P<raw> [bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*') )
    | (?P<skip> [bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
              | //[^\n]* )
    | \b variables (?P<dot>\s*\.\s*) (?P<variable>[A-Za-z_]\w*)
    | \b (?P<ours>(?:[Mm]atches|[Ss]ubstring|Has) (?=\s*\()
              | has (?=\s*\(\s*(?:request\s*\.\s*(?:userInfo|operation|dryRun|(?:kind|resource)\s*\.\s*\w+)
                                | namespaceObject\s*\.\s*metadata\s*\.\s*name)\s*\)))
    | \b has\s*\(\s*variables\s*\.\s*(?P<asked>[A-Za-z_]\w*)\s*\)
    | \b (?P<has>has\s*\(\s*)? (?P<root>object|oldObject|namespaceObject)\b
              (?= (?(has)\s*\.\s*\w+\s*\) | \s*[.[]\s*\?) )
    | \b (?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


class Text:
    """An expression, ready to be bound.

    Attributes:
        text: with ``variables_name`` for ``variables.name``.
        variables: the variables that it names, in the order of their first use.
        bound: what else it names that is to be bound: name -> expression.
        words: everything else in it that may be a name.
    """

    __slots__ = ("_end", "bound", "text", "variables", "words")

    def __init__(self, expression: str) -> None:
        """Read an expression.

        Raises:
            ExpressionError: it uses what Kubernetes does not have.
        """
        self.variables: dict[str, None] = {}
        self.bound: dict[str, str] = {}
        self.words: set[str] = set()
        self._end = 0
        self.text = _WORDS.sub(self._word, expression)

    def _word(self, found: re.Match[str]) -> str:  # noqa: PLR0911 - one for each sort of word
        is_field, self._end = _is_field(found, self._end), found.end()
        if raw := found["raw"]:
            return _unescaped(raw)
        if ours := found["ours"]:
            if ours[0].isupper():
                raise ExpressionError(f"there is no `{ours}`", ours, offset=found.start())
            return ours.capitalize()
        if is_field:
            return found[0]
        if asked := found["asked"]:
            self.variables[asked] = None
            return f"([{bound_name(asked)}] != [])"
        if variable := found["variable"]:
            self.variables[variable] = None
            return bound_name(variable) + found["dot"].replace(".", "", 1)
        if root := found["root"]:
            self.words.add(root)
            self.bound[_OR_EMPTY[root]] = f"{root} == null ? {{}} : {root}"
            return (found["has"] or "") + _OR_EMPTY[root]
        if word := found["word"]:
            if (problem := _misused(word)) is not None:
                raise ExpressionError(problem, offset=found.start())
            self.words.add(word)
        return found[0]


def _is_field(found: re.Match[str], end: int) -> bool:
    """Does it come behind a dot? Words, strings and comments before it end at ``end``."""
    return found.string[end : found.start()].rstrip().removesuffix("?").rstrip().endswith(".")


def _unescaped(raw: str) -> str:
    """As a string with escapes where it ends in a backslash: the library takes the quote behind that for escaped."""
    prefix, quote = raw[: raw.index(raw[-1])], raw[-3:] if raw.endswith((3 * '"', 3 * "'")) else raw[-1]
    inside = raw[len(prefix) + len(quote) : -len(quote)]
    if not inside.endswith("\\"):
        return raw
    return prefix.strip("rR") + quote + inside.replace("\\", "\\\\") + quote


def _misused(word: str) -> str | None:
    if word == "variables":
        return "`variables` is no value of its own: write variables.<name>"
    if word.startswith(_PREFIX):
        return f"`{word}` is reserved: write variables.{word.removeprefix(_PREFIX)}"
    if word == "cel":
        return "`cel.bind` is not in Kubernetes: name the value among `variables`"
    return None


def bound_name(variable: str) -> str:
    """What a variable is called in the text."""
    return _PREFIX + variable


def shown_name(name: str) -> str:
    """What a name of the text is called in policies."""
    return f"variables.{name.removeprefix(_PREFIX)}" if name.startswith(_PREFIX) else _OR_EMPTY_OF.get(name, name)


def without_strings(expression: str) -> str:
    """Return an expression without its strings and comments."""

    def word(found: re.Match[str]) -> str:
        text: str = found["raw"] or found["skip"] or ""
        return "" if text else found[0]

    return _WORDS.sub(word, expression)


def substituted(expression: str, names: Mapping[str, str]) -> str:
    """An expression in which other expressions stand for some of its names; without comments, to be part of others.

    Args:
        expression: as it is written; ``matches`` stays ``matches``.
        names: name (``object``, ``params``, ``variables.x``) -> what stands for it.
    """
    end = 0

    def word(found: re.Match[str]) -> str:
        nonlocal end
        is_field, end = _is_field(found, end), found.end()
        if is_field:
            return found[0]
        if (found["skip"] or "").startswith("//"):
            return ""
        if found["variable"]:
            return names.get(f"variables.{found['variable']}", found[0])
        if found["root"]:
            return (found["has"] or "") + names.get(found["root"], found["root"])
        return names.get(found["word"] or "", found[0])

    return _WORDS.sub(word, expression)
