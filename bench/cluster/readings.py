"""Readings before and after a load: CPU time from /proc, and the API server's metrics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl

_TICKS: Final = os.sysconf("SC_CLK_TCK")

_HISTOGRAMS: Final = {
    "apiserver_admission_webhook_admission_duration_seconds": "name",
    "apiserver_mutating_admission_policy_check_duration_seconds": "policy",
    "apiserver_validating_admission_policy_check_duration_seconds": "policy",
}
"""The API server's histograms of calls to webhooks and policies, and the label of each that contains the name."""


class Calls(NamedTuple):
    """The number of calls to a webhook or a policy, and their total seconds."""

    times: float = 0
    seconds: float = 0


def read_calls(kubectl: Kubectl) -> dict[str, Calls]:
    """Return the API server's calls to each webhook or policy since its start."""
    # Parse only these histograms, a hundredth of all metrics.
    lines = (line for line in kubectl("get", "--raw=/metrics").splitlines() if line.startswith(tuple(_HISTOGRAMS)))
    calls: dict[str, Calls] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            histogram, _, part = sample.name.rpartition("_")
            if histogram not in _HISTOGRAMS:
                continue
            name = sample.labels[_HISTOGRAMS[histogram]]
            times, seconds = calls.get(name, Calls())
            if part == "count":
                calls[name] = Calls(times + sample.value, seconds)
            elif part == "sum":
                calls[name] = Calls(times, seconds + sample.value)
    return calls


def calls_since(before: dict[str, Calls], kubectl: Kubectl) -> dict[str, Calls]:
    """Return the calls since the reading ``before``."""
    differences = {
        name: Calls(*(now - then for now, then in zip(calls, before.get(name, Calls()), strict=True)))
        for name, calls in read_calls(kubectl).items()
    }
    return {name: calls for name, calls in differences.items() if calls.times}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children: utime and stime of proc_pid_stat(5), in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(cpu_seconds(int(child)) for child in children)
