"""What a benchmark hands to `bench.run` to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table.

    Attributes:
        title: what is measured.
        columns: with their units.
        rows: cells; a number is shown with three significant digits.
        note: what one must know to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float, ...]]
    note: str = ""


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that ``share`` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
