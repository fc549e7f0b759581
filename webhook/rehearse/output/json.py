"""Print a rehearsal as JSON in a stable schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.rehearse.verdict import verdict_of

if TYPE_CHECKING:
    from webhook.rehearse.result import Rehearsal

_SHOWN: Final = ("lost", "runs", "scheduler", "notSimulated", "lostNodes", "drainedBy", "summary", "workloads")
_NOT_OF_A_WORKLOAD: Final = ("workLostGpuHours", "budget", "downSeconds", "states", "lostOn", "goesWithNodes")
_FOR_FIXES: Final = ("pendingBefore", "graceSeconds", "startupSeconds")


def show(rehearsal: Rehearsal) -> None:
    """Print the stable fields and, if requested, the comparison and the rehearsal with the fixes."""
    every: dict[str, Any] = msgspec.to_builtins(rehearsal)
    every["lostNodes"] = sorted(node for window in rehearsal.windows for node in window.nodes)
    every["drainedBy"] = ", ".join(sorted({window.drained_by for window in rehearsal.windows}))
    for workload in (*every["workloads"], *(every["fixed"] or {"workloads": ()})["workloads"]):
        for key in (*_NOT_OF_A_WORKLOAD, *_FOR_FIXES):
            del workload[key]
    every["summary"] = {"verdict": verdict_of(rehearsal), **every["summary"]}
    shown = {key: every[key] for key in _SHOWN}
    shown["fixes"] = [{"why": fix.why, "yaml": fix.yaml, "tried": fix.tried} for fix in rehearsal.fixes]
    if rehearsal.comparison is not None:
        shown["comparison"] = every["comparison"]
    if rehearsal.fixed is not None:
        shown["withFixes"] = {key: every["fixed"][key] for key in ("summary", "workloads")}
        shown["withFixes"]["summary"]["verdict"] = verdict_of(rehearsal.fixed)
    print(msgspec.json.format(msgspec.json.encode(shown)).decode())
