"""A rehearsal as JSON: the figures, in a shape that is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from webhook.cli.rehearse.result import Rehearsal, WorkloadResult

_NOT_SHOWN: Final = ("workLostGpuHours", "budget", "work_lost_gpu_hours")


def show(rehearsal: Rehearsal) -> None:
    """Print it."""
    print(msgspec.json.format(msgspec.json.encode(as_json(rehearsal))).decode())


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the fixed shape."""
    return {
        "lost": list(rehearsal.lost),
        "runs": rehearsal.runs,
        "scheduler": rehearsal.scheduler,
        "notSimulated": list(rehearsal.not_simulated),
        "summary": msgspec.to_builtins(rehearsal.summary),
        "workloads": [_workload(each) for each in rehearsal.workloads],
        "fixes": msgspec.to_builtins(rehearsal.fixes),
    }


def _workload(result: WorkloadResult) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(result)
    return {key: each for key, each in shown.items() if key not in _NOT_SHOWN}
