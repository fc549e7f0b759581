"""Remember the last decisions for the operators' page: names and ids of findings, nothing of the objects."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.server.log import TEXT_LENGTH

if TYPE_CHECKING:
    from webhook.context import Phase
    from webhook.review import Request

WITH_FINDINGS: Final = 200
"""Decisions with findings that are remembered: more than a person reads, and in the log are all."""

OF_ANY_KIND: Final = 50
"""Decisions that are remembered, whatever they found: a moment of a busy cluster, to see that it is asked at all. Both
together take 0.1 MB, and 2 MB where all names are as long as they may be."""


class Decided(NamedTuple):
    """One decision.

    Attributes:
        time: Unix time.
        findings: the ids.
    """

    time: float
    phase: str
    operation: str
    kind: str
    namespace: str
    name: str
    outcome: str
    findings: tuple[str, ...]
    milliseconds: float


class RecentDecisions:
    """The last decisions, the oldest first.

    Attributes:
        found: those with findings.
        last: those of any kind.
    """

    def __init__(self) -> None:
        self.found: deque[Decided] = deque(maxlen=WITH_FINDINGS)
        self.last: deque[Decided] = deque(maxlen=OF_ANY_KIND)

    def add(self, request: Request, phase: Phase, outcome: str, findings: tuple[str, ...], milliseconds: float) -> None:
        """Remember a decision."""
        decided = Decided(
            time.time(),
            phase,
            request.operation,
            request.kind.kind[:TEXT_LENGTH],
            request.namespace[:TEXT_LENGTH],
            request.name[:TEXT_LENGTH],
            outcome,
            findings,
            milliseconds,
        )
        self.last.append(decided)
        if findings:
            self.found.append(decided)
