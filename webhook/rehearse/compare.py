"""Compare two rehearsals: find the figures that a change makes worse or better."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.inputs.git import base_of
from webhook.rehearse.result import Figure, FigureChange, Rehearsal, RehearsalComparison, WorkloadResult

if TYPE_CHECKING:
    from collections.abc import Sequence


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
