"""Print a rehearsal as JSON in a stable schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.rehearse.verdict import verdict_of

if TYPE_CHECKING:
    from webhook.rehearse.result import Rehearsal

_SHOWN: Final = ("lost", "runs", "scheduler", "notSimulated", "lostNodes", "drainedBy", "summary", "workloads")
_HIDDEN: Final = frozenset(
    {"workLostGpuHours", "budget", "downSeconds", "states", "lostOn", "goesWithNodes"}
    | {"pendingBefore", "graceSeconds", "startupSeconds"}
)
"""Fields of a workload that only the table, the drawing, and fixes need."""


def show(rehearsal: Rehearsal) -> None:
    """Print the stable fields and, if requested, the comparison and the rehearsal with the fixes."""
    every: dict[str, Any] = msgspec.to_builtins(rehearsal)
    every["lostNodes"] = sorted(node for window in rehearsal.windows for node in window.nodes)
    every["drainedBy"] = ", ".join(sorted({window.drained_by for window in rehearsal.windows}))
    every["summary"] = {"verdict": verdict_of(rehearsal), **every["summary"]}
    every["workloads"] = _workloads(rehearsal)
    shown = {key: every[key] for key in _SHOWN}
    shown["fixes"] = [{"why": fix.why, "yaml": fix.yaml, "tried": fix.tried} for fix in rehearsal.fixes]
    if rehearsal.comparison is not None:
        shown["comparison"] = every["comparison"]
    if (fixed := rehearsal.fixed) is not None:
        summary = {**every["fixed"]["summary"], "verdict": verdict_of(fixed)}
        shown["withFixes"] = {"summary": summary, "workloads": _workloads(fixed)}
    print(msgspec.json.format(msgspec.json.encode(shown)).decode())


def _workloads(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in msgspec.to_builtins(workload).items() if key not in _HIDDEN}
        | {"reasons": [str(reason) for reason in workload.reasons]}
        for workload in rehearsal.workloads
    ]
