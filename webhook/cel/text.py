"""The text of expressions: made ready for the library, with everything at its place in the text.

``variables.name`` becomes one name, so that it can be bound; ``matches`` the one in `webhook.cel.functions`, and
``has(request.userInfo)`` too: to the library that is a name, and no field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "variables_"
_WORDS: Final = re.compile(
    r"""
      (?P<skip> [bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
              | [bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
              | //[^\n]* )
    | (?<![\w.]) variables (?P<dot>\s*\.\s*) (?P<variable>[A-Za-z_]\w*)
    | (?<![\w.]) params \s*\.\s* (?P<param>[A-Za-z_]\w*)
    | \b (?P<ours>(?:[Mm]atches|Has) (?=\s*\() | has (?=\s*\(\s*request\s*\.\s*userInfo\s*\)))
    | (?<![\w.]) (?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


class Text:
    """An expression, ready to be bound.

    Attributes:
        text: with ``variables_name`` for ``variables.name``.
        variables: the variables that it names, in the order of their first use.
        params: the parameters that it names.
        words: everything else in it that may be a name.
    """

    __slots__ = ("params", "text", "variables", "words")

    def __init__(self, expression: str) -> None:
        """Read an expression.

        Raises:
            ExpressionError: it uses what Kubernetes does not have.
        """
        self.variables: dict[str, None] = {}
        self.params: dict[str, None] = {}
        self.words: set[str] = set()
        self.text = _WORDS.sub(self._word, expression)

    def _word(self, found: re.Match[str]) -> str:
        if variable := found["variable"]:
            self.variables[variable] = None
            return bound_name(variable) + found["dot"].replace(".", "", 1)
        if ours := found["ours"]:
            if ours[0].isupper():
                raise ExpressionError(f"there is no `{ours}`", ours)
            return ours.capitalize()
        if param := found["param"]:
            self.params[param] = None
            self.words.add("params")
            return found[0]
        word = found["word"]
        if word == "variables":
            raise ExpressionError("`variables` is no value of its own: write variables.<name>")
        if word is not None and word.startswith(_PREFIX):
            raise ExpressionError(f"`{word}` is reserved: write variables.{word.removeprefix(_PREFIX)}")
        if word == "cel":
            raise ExpressionError("`cel.bind` is not in Kubernetes: name the value among `variables`")
        if word:
            self.words.add(word)
        return found[0]


def bound_name(variable: str) -> str:
    """What a variable is called in the text."""
    return _PREFIX + variable


def shown_name(name: str) -> str:
    """What a name of the text is called in policies."""
    return f"variables.{name.removeprefix(_PREFIX)}" if name.startswith(_PREFIX) else name


def substituted(expression: str, names: Mapping[str, str]) -> str:
    """An expression in which other expressions stand for some of its names.

    Args:
        expression: as it is written; ``matches`` stays ``matches``.
        names: name (``object``, ``params``, ``variables.x``) -> what stands for it.
    """

    def word(found: re.Match[str]) -> str:
        if found["variable"]:
            return names.get(f"variables.{found['variable']}", found[0])
        if found["param"]:
            return names.get("params", "params") + found[0].removeprefix("params")
        return names.get(found["word"] or "", found[0])

    return _WORDS.sub(word, expression)
