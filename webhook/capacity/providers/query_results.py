"""Cache what the queries of a reader return for one object, and collect the problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from webhook.bounds import POOL_ITEMS
from webhook.documents.placeholders import placeholder_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query

_PART: Final = re.compile(r"([0-9]{1,7})([hms])")
_DURATION: Final = re.compile(f"({_PART.pattern}){{1,3}}")
"""A duration as Kubernetes writes it: ``1h30m``, ``90s``; it has no more than three parts."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}
_MOST_SECONDS: Final = 10**7


class QueryResults:
    """Hold one object, the results of its queries so far, and the problems that came up.

    Attributes:
        unread: the first field that can't be read although it says whether the pool can be used.
    """

    __slots__ = ("_answers", "problems", "unread", "value")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value
        self.problems: list[str] = []
        self.unread = ""
        self._answers: dict[str, tuple[Any, str]] = {}

    def ask(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a query. Return None, and note the problem, if it can't be answered."""
        return None if query is None or self.out_of_reach(query) else self.answer(query)[0]

    def out_of_reach(self, query: Query) -> bool:
        """Return whether the query can't be answered. Its result is then unknown, and no default holds."""
        if not (problem := self.answer(query)[1]):
            return False
        self.note(problem)
        return True

    def answer(self, query: Query) -> tuple[Any, str]:
        """Return the result of a query, or None and the problem. Queries of the same text share one result."""
        if (answer := self._answers.get(query.text)) is None:
            answer = query.answer(self.value)
            if isinstance(answer[0], list | dict) and len(answer[0]) > POOL_ITEMS:
                what = f"{query.place(self.value)} has {len(answer[0]):,} items"
                answer = None, f"{what}, more than the {POOL_ITEMS:,} that are read"
            self._answers[query.text] = answer
        return answer

    def note(self, problem: str) -> None:
        """Add a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def doubt(self, query: Query, *problems: str) -> None:
        """Note problems that leave it unknown whether the pool can be used."""
        for problem in problems:
            self.note(problem)
        if problems and not self.unread:
            self.unread = query.place(self.value)

    def ask_in_doubt(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a query. A failure leaves it unknown whether the pool can be used."""
        if query is None:
            return None
        found, problem = self.answer(query)
        if problem:
            self.doubt(query, problem)
        return found

    def flag(self, query: Query | None) -> bool:
        """Return a boolean; False if there is none. A failure leaves it unknown whether the pool can be used."""
        found = self.ask_in_doubt(query)
        if query is None or found is None or isinstance(found, bool):
            return found is True
        self.doubt(query, f"{query.place(self.value)} is neither true nor false")
        return False

    def number(self, query: Query | None) -> int | None:
        """Return an integer, or None."""
        found = self.ask(query)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        if query is not None and found is not None:
            shown = f"{placeholder}, " if (placeholder := placeholder_in(found)) else ""
            self.note(f"{query.place(self.value)} is {shown}not an integer")
        return None

    def seconds(self, query: Query | None) -> int | None:
        """Return a number of seconds, which may be written as a duration, or None."""
        found = self.ask(query)
        if query is None or found is None:
            return None
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _MOST_SECONDS:
            return found
        if isinstance(found, str) and _DURATION.fullmatch(found):
            return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(found))
        self.note(f"{query.field} is neither a number of seconds nor a duration such as 90s")
        return None
