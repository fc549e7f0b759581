"""Print a rehearsal as text for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base import terminal
from webhook.base.terminal import Line, counted
from webhook.rehearse.reasons import Cause
from webhook.rehearse.result import BELOW_AT_MOST, FIGURES, MODELLED
from webhook.rehearse.verdict import effects_of, expected_of, nodes_of, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.rehearse.result import Figure, Rehearsal, RehearsalComparison, RehearsalSummary, WorkloadResult

_INDENT: Final = "    "
_COLUMNS: Final = _INDENT + "{!s:<22}{!s:>10}{!s:>16}"
_HARM: Final = frozenset(FIGURES) - {"moved", "lowest_ready", "ready_again_seconds"}
_SHOWN_IF_ANY: Final = frozenset({"seconds_below_budget", "work_lost_gpu_hours", "down_seconds"})


def show(rehearsal: Rehearsal) -> None:
    """Print the rehearsal."""
    terminal.show(_lines(rehearsal))


def _lines(rehearsal: Rehearsal) -> Iterator[Line]:
    yield [(verdict_of(rehearsal), "bold")]
    if rehearsal.fixed is not None:
        yield [(f"With the fixes: {effects_of(rehearsal.fixed)}.", "bold")]
    how = f"scheduler {rehearsal.scheduler}, {counted(rehearsal.runs, 'run')}"
    yield [(f"{_INDENT}{', '.join(rehearsal.lost)}: {nodes_of(rehearsal)}; {how}", "dim")]
    yield from _facts(rehearsal)
    for workload, fixed in rehearsal.sides:
        yield from _workload(workload, fixed)
    if expected := expected_of(rehearsal):
        yield [(expected, "dim")]
    if rehearsal.comparison is not None and rehearsal.fixed is None:
        yield from _comparison(rehearsal.comparison)
    for sort, notes in (("modelled", MODELLED), ("not simulated", rehearsal.not_simulated)):
        for note in notes:
            yield [(f"{sort}: {note}", "dim")]
    if rehearsal.programs:
        yield [(f"programs of the control plane: {rehearsal.programs}", "dim")]
    for fix in rehearsal.fixes:
        yield [(f"Fix ({fix.tried or 'not tried'}): {fix.why}", "bold")]
        yield from ([(f"{_INDENT}{line}", "")] for line in fix.yaml.splitlines())


def _facts(rehearsal: Rehearsal) -> Iterator[Line]:
    """Yield the providers' actions on the nodes and the total figures of all workloads."""
    for window in rehearsal.windows:
        steps = ", ".join(f"{name} after {seconds:g} s" for seconds, name in window.moments if name != "cordon")
        yield [(f"{_INDENT}{window.provider}: {counted(len(window.nodes), 'node')}: {steps}", "dim")]
        if window.assumes:
            yield [(f"{_INDENT}assumed: {window.assumes}", "yellow")]
    summary = rehearsal.summary
    failed = sum(workload.failed for workload in rehearsal.workloads)
    if rehearsal.fixed is not None:
        yield [(_COLUMNS.format("", "as it is", "with the fixes"), "dim")]
        yield from _side_by_side(summary, rehearsal.fixed.summary)
    else:
        work = f", work lost {summary.work_lost_gpu_hours} GPU-hours"
        jobs = f", {counted(failed, 'Job')} failed" if failed else ""
        yield [(_INDENT, ""), *_counts(summary), (work, ""), (jobs, "red")]


def _counts(figures: RehearsalSummary | WorkloadResult) -> Line:
    line = [(f"moved {figures.moved}", "")]
    for name in ("pending", "missing", "killed_early"):
        figure = getattr(figures, name)
        line += [(", ", ""), (f"{name.replace('_', ' ')} {figure}", _color(figure))]
    return line


def _side_by_side(before: object, after: object) -> Iterator[Line]:
    """Yield a line for each figure, without and with the fixes."""
    for name in FIGURES:
        old, new = getattr(before, name, None), getattr(after, name, None)
        if old and new and (name not in _SHOWN_IF_ANY or old.max or new.max):
            words = name.replace("_", " ").replace("gpu", "GPU")
            blank = "never" if name == "ready_again_seconds" else "unknown"
            yield [(_COLUMNS.format(words, old.words(blank), new.words(blank)), _color(old) if name in _HARM else "")]


def _workload(result: WorkloadResult, fixed: WorkloadResult | None) -> Iterator[Line]:
    where = f"{result.namespace}/" if result.namespace else ""
    waiting = f" ({result.pending_before} more were pending before)" if result.pending_before else ""
    lost = f"  {result.lost} of {result.replicas} lost{waiting}"
    line = [(f"{result.kind} {where}{result.name}", "bold"), (lost, "")]
    if fixed is None:
        ready = f", lowest ready {result.lowest_ready}{_again(result.ready_again_seconds)}"
        line += [(": ", ""), *_counts(result), (ready, "")]
    yield line
    yield from _side_by_side(result, fixed) if fixed is not None else ()
    if result.budget:
        seconds = result.seconds_below_budget
        longer = " or longer" if seconds.max == BELOW_AT_MOST else ""
        met = f"not met for {seconds} s{longer}" if seconds.max else "always met"
        known = "unknown whether it is met" if seconds.max is None else met
        yield [(f"{_INDENT}PodDisruptionBudget {result.budget}: {known}", _color(seconds))]
    if result.work_lost_gpu_hours.max:
        yield [(f"{_INDENT}work lost: {result.work_lost_gpu_hours} GPU-hours", "")]
    for reason in result.reasons:
        yield [(f"{_INDENT}{reason}", "red" if reason.cause is Cause.JOB_FAILED else "")]
    yield from ([(f"{_INDENT}with the fixes: {reason}", "")] for reason in (fixed.reasons if fixed is not None else ()))


def _again(seconds: Figure) -> str:
    if seconds.max is None:
        return ", never all ready again"
    return f", all ready again after {seconds} s" if seconds.max else ""


def _comparison(comparison: RehearsalComparison) -> Iterator[Line]:
    yield [(f"Compared with {comparison.base}:", "bold")]
    for sort, changes, style in (("worse", comparison.worse, "red"), ("better", comparison.better, "green")):
        for change in changes:
            yield [(f"{_INDENT}{sort}: ", style), (str(change), "")]
    if not comparison.worse and not comparison.better:
        yield [(f"{_INDENT}no difference beyond the variation between runs", "dim")]


def _color(figure: Figure) -> str:
    return "red" if figure.max else ""
