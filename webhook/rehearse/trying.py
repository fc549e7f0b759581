"""Try fixes: rehearse with all of them, and then without each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.rehearse.compare import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.rehearse.result import Figure, Fix, Rehearsal

Harm = tuple[float, ...]

_ALL_RUNS: Final = None
_ONE_RUN: Final = 1


def try_fixes(base: Rehearsal, rehearse: Callable[[Sequence[Fix], int | None], Rehearsal], seconds: float) -> Rehearsal:
    """Return a rehearsal with the one with all of its fixes, which are ranked by what each adds to the others.

    ``rehearse`` takes the fixes, and the number of runs if it isn't the usual one. No rehearsal begins that is expected
    to end later than after so many seconds. Raise CannotJudgeError.
    """
    began = time.monotonic()
    fixed = rehearse(base.fixes, _ALL_RUNS)
    least = _harm(fixed)
    ranked: list[tuple[Harm, Fix]] = []
    longest = 0.0
    for fix in base.fixes:
        others = [each for each in base.fixes if each is not fix]
        start = time.monotonic()
        if others and start + longest > began + seconds:
            ranked.append((tuple(0.0 for _ in least), fix))
            continue
        without = _harm(rehearse(others, _ONE_RUN)) if others else _harm(base)
        longest = max(longest, time.monotonic() - start)
        saved = tuple(more - less for more, less in zip(without, least, strict=True))
        helps = saved > tuple(0.0 for _ in least)
        ranked.append((saved, structs.replace(fix, tried="helps" if helps else "does not help")))
    ranked.sort(key=lambda each: (each[1].tried == "does not help", [-number for number in each[0]]))
    comparison = compare(base, fixed, "the cluster without these fixes")
    return structs.replace(base, fixes=tuple(fix for _, fix in ranked), comparison=comparison, fixed=fixed)


def _harm(result: Rehearsal) -> Harm:
    """Return what a rehearsal ends with, the worst first, to compare: less is better."""
    workloads = result.workloads
    return (
        sum(each.failed or _most(each.pending) + _most(each.missing) for each in workloads),
        sum(_most(each.killed_early) for each in workloads),
        sum(_most(each.work_lost_gpu_hours) for each in workloads),
        sum(_most(each.seconds_below_budget) for each in workloads),
        sum(each.replicas - (each.lowest_ready.min or 0) for each in workloads),
    )


def _most(figure: Figure) -> float:
    return figure.max or 0.0
