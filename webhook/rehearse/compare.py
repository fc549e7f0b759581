"""Compare two rehearsals: what a change makes worse, and what better."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.offline.git import base_of
from webhook.rehearse.result import Figure, FigureChange, RehearsalComparison, WorkloadResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.rehearse.result import Rehearsal

FLAG: Final = "--compare"

_MORE_IS_WORSE: Final = ("pending", "missing", "killed_early", "seconds_below_budget", "work_lost_gpu_hours")
_NAMES: Final = dict(zip(WorkloadResult.__struct_fields__, WorkloadResult.__struct_encode_fields__, strict=True))


def compare(base: Rehearsal, changed: Rehearsal, name: str) -> RehearsalComparison:
    """Return what of the change is worse, and what better, in every run than in every run of the base of this name.

    Schedulers differ from run to run, so what overlaps is no difference. A workload that one of them does not touch has
    nothing pending, killed or lost there.
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
            if was.failed or now.failed:  # else a Pod that does not move was not lost, or is pending
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
    """Write what these files and folders have in the merge base of HEAD and another branch; return where.

    A path outside the repository stays as it is, and one that the base does not have is left out. Raise
    CannotJudgeError if there is no Git, no repository or no such commit, or a path is standard input.
    """
    base = base_of(FLAG, ref, Path.cwd())
    places: list[str] = []
    for path in paths:
        if path == "-":
            raise CannotJudgeError(f"spotgate rehearse: {FLAG} can't tell what standard input was before: name files")
        inside = os.path.relpath(os.path.realpath(path), base.root)
        if inside.startswith(".."):
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
