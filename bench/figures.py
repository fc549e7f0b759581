"""Tables of benchmarks, which `bench.run` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of figures.

    Attributes:
        title: the measured quantity.
        columns: the headings, with units.
        rows: the cells; numbers are printed with three significant digits.
        note: a remark on how to read the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | float, ...]]
    note: str = ""


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that ``share`` of the samples don't exceed."""
    ordered = sorted(samples)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
