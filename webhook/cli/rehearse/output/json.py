"""A rehearsal as JSON: the figures, in a shape that is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from webhook.cli.rehearse.result import FigureChange, Rehearsal, WorkloadResult

_NOT_SHOWN: Final = ("workLostGpuHours", "budget", "work_lost_gpu_hours")


def show(rehearsal: Rehearsal) -> None:
    """Print it."""
    print(msgspec.json.format(msgspec.json.encode(as_json(rehearsal))).decode())


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the fixed shape, and the comparison where one was asked for."""
    shown = {
        "lost": list(rehearsal.lost),
        "runs": rehearsal.runs,
        "scheduler": rehearsal.scheduler,
        "notSimulated": list(rehearsal.not_simulated),
        "summary": msgspec.to_builtins(rehearsal.summary),
        "workloads": [_workload(each) for each in rehearsal.workloads],
        "fixes": [{"why": each.why, "yaml": each.yaml} for each in rehearsal.fixes],
    }
    if rehearsal.comparison is not None:
        compared = rehearsal.comparison
        shown["comparison"] = {
            "base": compared.base,
            "worse": list(map(_change, compared.worse)),
            "better": list(map(_change, compared.better)),
        }
    return shown


def _change(change: FigureChange) -> dict[str, Any]:
    kind, namespace, name = change.workload
    place = {"kind": kind, "namespace": namespace, "name": name, "figure": change.figure}
    return {**place, "before": msgspec.to_builtins(change.before), "after": msgspec.to_builtins(change.after)}


def _workload(result: WorkloadResult) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(result)
    return {key: each for key, each in shown.items() if key not in _NOT_SHOWN}
