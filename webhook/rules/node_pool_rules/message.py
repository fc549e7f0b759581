"""Fill messages of a policy with values of the evaluated object."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.providers.query import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EXPRESSION: Final = re.compile(r"\$\{([^{}]*)\}")
_SHOWN: Final = 60
"""Characters of a user's value that a finding repeats, for a terminal."""


class MessageTemplate:
    """A message with JMESPath expressions on the object: ``targetNodes is ${spec.targetNodes}``.

    ``query`` is the function for its expressions. Raise ValueError if a ``${`` is not closed.
    """

    __slots__ = ("_parts", "text")

    def __init__(self, text: str, query: Callable[[str], Query] = Query) -> None:
        self.text = text
        parts = _EXPRESSION.split(text)
        if any("${" in part for part in parts[::2]):
            raise ValueError("`${` needs an expression without braces, and a closing `}`")
        self._parts = tuple(query(part) if number % 2 else part for number, part in enumerate(parts))

    def __call__(self, value: Mapping[str, Any]) -> str:
        """Return the message for this object."""
        return "".join(part if isinstance(part, str) else on_one_line(part(value)) for part in self._parts)


def on_one_line(value: object) -> str:
    """Return a user's value on one line, truncated if it is long. Sort the keys of maps, like the API server."""
    if value is None:
        return "not set"
    text = " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return f"{text[:_SHOWN]}..." if len(text) > _SHOWN else text
