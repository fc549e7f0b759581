"""Try fixes: rehearse with all of them, then with all but one."""

from __future__ import annotations

import time
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.rehearse.compare import compare
from webhook.rehearse.inputs.resources import BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.rehearse.result import Fix, Rehearsal


def try_fixes(base: Rehearsal, rehearse: Callable[[Sequence[Fix], int | None], Rehearsal], seconds: float) -> Rehearsal:
    """Return the rehearsal with the results of its fixes, ranked by how much each adds to the others.

    ``rehearse`` takes the fixes and the number of runs; None means the default. A fix stays untried if its rehearsal
    would end after ``seconds``, judging by the longest so far. Raise CannotJudgeError.
    """
    fixed = rehearse(base.fixes, None)
    # Where the fixes make room for replacements, a budget may block the drain only now.
    if budgets := [fix for fix in fixed.fixes if fix.manifest["kind"] == BUDGET.kind]:
        base = structs.replace(base, fixes=(*base.fixes, *budgets))
        fixed = rehearse(base.fixes, None)
    began = time.monotonic()
    ranked: list[tuple[tuple[float, ...], Fix]] = []
    longest = 0.0
    for fix in base.fixes:
        others = [other for other in base.fixes if other is not fix]
        start = time.monotonic()
        if others and start + longest > began + seconds:
            ranked.append(((1.0,), fix))
            continue
        reduced = rehearse(others, 1) if others else base
        longest = max(longest, time.monotonic() - start)
        worse = bool(compare(fixed, reduced, "").worse)
        helps = (_harm(reduced), worse) > (_harm(fixed), False)
        rank = (0.0 if helps else 2.0, *(-harm for harm in _harm(reduced)))
        ranked.append((rank, structs.replace(fix, tried="helps" if helps else "does not help")))
    ranked.sort(key=itemgetter(0))
    comparison = compare(base, fixed, "the cluster without these fixes")
    return structs.replace(base, fixes=tuple(fix for _, fix in ranked), comparison=comparison, fixed=fixed)


def _harm(result: Rehearsal) -> tuple[float, ...]:
    """Return the harm at the end of a rehearsal, the most severe figure first."""
    summary = result.summary
    figures = (summary.pending, summary.missing, summary.killed_early, summary.work_lost_gpu_hours)
    return (sum(workload.failed for workload in result.workloads), *(figure.max or 0.0 for figure in figures))
