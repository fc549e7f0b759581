"""Compare rehearsals: find the figures that a change or a fix makes worse or better."""

from __future__ import annotations

import os
import time
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.inputs.git import base_of
from webhook.rehearse.inputs.resources import BUDGET
from webhook.rehearse.result import Figure, FigureChange, Rehearsal, RehearsalComparison, WorkloadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.rehearse.result import Fix


FLAG: Final = "--compare"

_MORE_IS_WORSE: Final = ("pending", "missing", "killed_early", "seconds_below_budget", "work_lost_gpu_hours")
_NAMES: Final = dict(zip(WorkloadResult.__struct_fields__, WorkloadResult.__struct_encode_fields__, strict=True))


def compare(base: Rehearsal, changed: Rehearsal, name: str) -> RehearsalComparison:
    """Return the figures that are worse or better in every run of ``changed`` than in every run of ``base``.

    Scheduling varies from run to run, so overlapping ranges don't count as a difference. A workload that is absent from
    one of the rehearsals has no pending, killed, or missing Pods there. ``name`` is the name of the base.
    """
    before = {workload.identity: workload for workload in base.workloads}
    after = {workload.identity: workload for workload in changed.workloads}
    worse: list[FigureChange] = []
    better: list[FigureChange] = []
    for identity in sorted({*before, *after}):
        was, now = before.get(identity), after.get(identity)
        figures = [*_MORE_IS_WORSE]
        if was is not None and now is not None:
            figures.append("lowest_ready")
            if was.failed or now.failed:  # otherwise, a Pod that doesn't move is pending, or wasn't lost
                figures.append("moved")
        for figure in figures:
            old, new = (getattr(workload, figure, Figure(0, 0)) for workload in (was, now))
            change = FigureChange(*identity, _NAMES[figure], old, new)
            low, high = (old, new) if figure in _MORE_IS_WORSE else (new, old)
            if _below(low, high):
                worse.append(change)
            elif _below(high, low):
                better.append(change)
    return RehearsalComparison(name, tuple(worse), tuple(better))


def _below(low: Figure, high: Figure) -> bool:
    """Return whether every run of one figure is below every run of the other."""
    return low.max is not None and high.min is not None and low.max < high.min


def write_base(ref: str, paths: Sequence[str], into: Path) -> list[str]:
    """Write these files and folders as of the merge base of HEAD and ``ref``. Return the paths of the copies.

    A path outside the repository is returned unchanged; a path that the merge base lacks is omitted. Raise
    CannotJudgeError if Git, the repository, or the commit is missing, or a path is standard input.
    """
    base = base_of(FLAG, ref, Path.cwd())
    places: list[str] = []
    for path in paths:
        if path == "-":
            raise CannotJudgeError(f"spotgate rehearse: {FLAG} can't compare standard input: name files")
        inside = os.path.relpath(os.path.realpath(path), base.root)
        if inside == ".." or inside.startswith("../"):
            places.append(path)
            continue
        files = [file for file in base.files if inside in (".", file) or file.startswith(f"{inside}/")]
        for name, content in base.read(files):
            place = into / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if files:
            places.append(str(into / inside))
    return places


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
