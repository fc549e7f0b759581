"""Cache what the queries of a reader return for one object, and collect the problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.bounds import POOL_ITEMS
from webhook.documents.placeholders import placeholder_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query


class QueryResults:
    """Hold one object, the results of its queries so far, and the problems that came up."""

    __slots__ = ("_answers", "_problems", "_unread", "_value")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value
        self._problems: list[str] = []
        self._unread = ""
        self._answers: dict[str, tuple[Any, str]] = {}

    def _ask(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        return None if query is None or self._out_of_reach(query) else self._answer(query)[0]

    def _out_of_reach(self, query: Query) -> bool:
        """Return whether the query can't be answered. Its result is then unknown, and no default holds."""
        if not (problem := self._answer(query)[1]):
            return False
        self._note(problem)
        return True

    def _answer(self, query: Query) -> tuple[Any, str]:
        """Return the result of a query, or None and the problem. Queries of the same text share one result."""
        if (answer := self._answers.get(query.text)) is None:
            answer = query.answer(self._value)
            if isinstance(answer[0], list | dict) and len(answer[0]) > POOL_ITEMS:
                what = f"{query.place(self._value)} has {len(answer[0]):,} items"
                answer = None, f"{what}, more than the {POOL_ITEMS:,} that are read"
            self._answers[query.text] = answer
        return answer

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _doubt(self, query: Query, *problems: str) -> None:
        """Note problems that leave it unknown whether the pool can be used."""
        for problem in problems:
            self._note(problem)
        if problems and not self._unread:
            self._unread = query.place(self._value)

    def _ask_in_doubt(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a query. A failure leaves it unknown whether the pool can be used."""
        if query is None:
            return None
        found, problem = self._answer(query)
        if problem:
            self._doubt(query, problem)
        return found

    def _flag(self, query: Query | None) -> bool:
        found = self._ask_in_doubt(query)
        if query is None or found is None or isinstance(found, bool):
            return found is True
        self._doubt(query, f"{query.place(self._value)} is neither true nor false")
        return False

    def _number(self, query: Query | None) -> int | None:
        found = self._ask(query)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        if query is not None and found is not None:
            shown = f"{placeholder}, " if (placeholder := placeholder_in(found)) else ""
            self._note(f"{query.place(self._value)} is {shown}not an integer")
        return None
