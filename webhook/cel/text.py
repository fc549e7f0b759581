"""Rewrite the text of expressions for the library. Names keep their length, and so their position.

- ``variables.name`` becomes a single name, so that it can be bound.
- ``matches`` and ``substring`` become the functions of `webhook.cel.functions`.
- ``has`` of a field that is a separate variable (`webhook.cel.library`) becomes another function.
  ``has(variables.name)`` becomes a test for whether the variable has a value.
- If ``oldObject`` is null, Kubernetes treats ``oldObject.?spec`` as absent and ``has(oldObject.spec)`` as false. The
  library reports an error, so another name replaces ``oldObject`` there, bound to an empty map.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel.errors import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "variables_"
_OR_EMPTY: Final = {"object": "_given", "oldObject": "_givenOld", "namespaceObject": "_givenNamespace"}
"""The variables that may be null, each with a replacement of the same length that is never null."""
_OR_EMPTY_OF: Final = {hidden: name for name, hidden in _OR_EMPTY.items()}
_WORDS: Final = re.compile(
    r"""
      (?P<skip> [bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
              | [bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
              | //[^\n]* )
    | \b variables (?P<dot>\s*\.\s*) (?P<variable>[A-Za-z_]\w*)
    | \b (?P<ours>(?:[Mm]atches|[Ss]ubstring|Has) (?=\s*\()
              | has (?=\s*\(\s*(?:request\s*\.\s*(?:userInfo|operation|dryRun|(?:kind|resource)\s*\.\s*\w+)
                                | namespaceObject\s*\.\s*metadata\s*\.\s*name)\s*\)))
    | \b has\s*\(\s*variables\s*\.\s*(?P<tested>[A-Za-z_]\w*)\s*\)
    | \b (?P<has>has\s*\(\s*)? (?P<root>object|oldObject|namespaceObject)\b
              (?= (?(has)\s*\.\s*\w+\s*\) | \s*[.[]\s*\?) )
    | \b (?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


class Text:
    """An expression, rewritten for the library.

    Attributes:
        text: the rewritten text, with ``variables_name`` for ``variables.name``.
        variables: the names of the ``variables`` that it reads, in order of first use.
        bound: the expressions of other names in the text that must be bound, by name.
        words: all other words that may be names.
    """

    def __init__(self, expression: str) -> None:
        """Rewrite an expression. Raise ExpressionError if it uses a name that Kubernetes doesn't have."""
        self.variables: dict[str, None] = {}
        self.bound: dict[str, str] = {}
        self.words: set[str] = set()
        self._end = 0
        self.text = _WORDS.sub(self._word, expression)

    def _word(self, match: re.Match[str]) -> str:
        is_field, self._end = _is_field(match, self._end), match.end()
        if ours := match["ours"]:
            if ours[0].isupper():
                raise ExpressionError(f"there is no `{ours}`", ours)
            return ours.capitalize()
        if is_field:
            return match[0]
        if tested := match["tested"]:
            self.variables[tested] = None
            return f"([{bound_name(tested)}] != [])"
        if variable := match["variable"]:
            self.variables[variable] = None
            return bound_name(variable) + match["dot"].replace(".", "", 1)
        if root := match["root"]:
            self.words.add(root)
            self.bound[_OR_EMPTY[root]] = f"{root} == null ? {{}} : {root}"
            return (match["has"] or "") + _OR_EMPTY[root]
        if word := match["word"]:
            if (problem := _misused(word)) is not None:
                raise ExpressionError(problem)
            self.words.add(word)
        return match[0]


def _is_field(match: re.Match[str], end: int) -> bool:
    """Return whether a word follows a dot. The word, string, or comment before it ends at ``end``."""
    return match.string[end : match.start()].rstrip().removesuffix("?").rstrip().endswith(".")


def _misused(word: str) -> str | None:
    if word == "variables":
        return "`variables` is not a value: write variables.<name>"
    if word.startswith(_PREFIX):
        return f"`{word}` is reserved: write variables.{word.removeprefix(_PREFIX)}"
    if word == "cel":
        return "`cel.bind` isn't available in Kubernetes: use `variables`"
    return None


def bound_name(variable: str) -> str:
    """Return the name that replaces a variable in the rewritten text."""
    return _PREFIX + variable


def shown_name(name: str) -> str:
    """Return the name in policies of a name in the rewritten text."""
    return f"variables.{name.removeprefix(_PREFIX)}" if name.startswith(_PREFIX) else _OR_EMPTY_OF.get(name, name)


def without_strings(expression: str) -> str:
    """Remove the strings and comments from an expression."""
    return _WORDS.sub(lambda match: "" if match["skip"] else match[0], expression)


def substituted(expression: str, names: Mapping[str, str]) -> str:
    """Replace names in an expression with other expressions, and remove comments.

    ``names`` maps ``object``, ``params``, or ``variables.x`` to its replacement. ``matches`` stays unchanged.
    """
    end = 0

    def word(match: re.Match[str]) -> str:
        nonlocal end
        is_field, end = _is_field(match, end), match.end()
        if is_field:
            return match[0]
        if (match["skip"] or "").startswith("//"):
            return ""
        if match["variable"]:
            return names.get(f"variables.{match['variable']}", match[0])
        if match["root"]:
            return (match["has"] or "") + names.get(match["root"], match["root"])
        return names.get(match["word"] or "", match[0])

    return _WORDS.sub(word, expression)
