"""What one object answers to the queries of its reader, and what nobody can read of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.bounds import POOL_ITEMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query


class QueryResults:
    """The object, what it has answered so far, and the problems that came up."""

    __slots__ = ("_answers", "_problems", "_unread", "_value")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value
        self._problems: list[str] = []
        self._unread = ""
        self._answers: dict[str, tuple[Any, str]] = {}

    def _ask(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        return None if query is None or self._out_of_reach(query) else self._answer(query)[0]

    def _out_of_reach(self, query: Query) -> bool:
        """Can't anybody tell what it says? Then that is unknown: no default holds."""
        if not (problem := self._answer(query)[1]):
            return False
        self._note(problem)
        return True

    def _answer(self, query: Query) -> tuple[Any, str]:
        """What it says, or why nobody can tell; several queries may be of the same text."""
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
        """Note what leaves it open whether the pool can be used."""
        for problem in problems:
            self._note(problem)
        if problems and not self._unread:
            self._unread = query.place(self._value)

    def _ask_in_doubt(self, query: Query | None) -> Any:  # noqa: ANN401 - JSON
        """What it says, where it leaves open whether the pool can be used if nobody can tell."""
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
            self._note(f"{query.place(self._value)} is not an integer")
        return None
