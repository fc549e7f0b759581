"""``make bench``: measure every figure in docs/bench.md. Linux only: it pins processes and reads /proc."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench import samples
from bench.commands import checking, startup
from bench.decisions import REPLICASET_CONTROLLER, example_cases, flatness, latency, pod_cases
from bench.hostile import attacks, hostile
from bench.serving import serving
from webhook.engine.bundle import load_bundle
from webhook.inputs.state import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Section


def measure(folder: Path, *, quick: bool) -> Iterator[Section]:
    """Yield each section as soon as it is measured."""
    bundle = load_bundle()
    state = folder / "state.yaml"  # JSON is YAML
    state.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": samples.cluster()}))
    view = FileState([state], bundle.providers).view()

    small = pod_cases("Pod of 5.8 KB", samples.pod(containers=1, variables=3), bundle, view)
    large = pod_cases("Pod, 13 KB in all", samples.pod(containers=2, variables=18), bundle, view)
    once = pod_cases(
        "Pod of a controller, 13 KB", samples.pod(containers=2, variables=18), bundle, view, REPLICASET_CONTROLLER
    )
    rounds, calls = (3, 20) if quick else (9, 300)
    yield latency([*small, *large, *once, *example_cases(bundle)], rounds=rounds, calls=calls)
    yield flatness(large, rounds=rounds, calls=calls)
    yield hostile(bundle, view, attacks())
    yield from serving(folder, small, rounds=1 if quick else 5, count=200 if quick else 10_000)
    yield startup(folder, rounds=1 if quick else 10)
    yield checking(folder, rounds=1 if quick else 3, count=20 if quick else 2000)


def show(console: Console, section: Section) -> None:
    """Print a section as a Markdown table."""
    console.print(f"\n## {section.title}\n")
    table = Table(box=MARKDOWN)
    for column, cell in zip(section.columns, section.rows[0], strict=True):
        table.add_column(column, justify="left" if isinstance(cell, str) else "right")
    for row in section.rows:
        table.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    console.print(table)
    if section.note:
        console.print(section.note)


def number(value: float) -> str:
    """Return the number with three significant digits, and all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def conditions(load: float, kubernetes: str = "") -> str:
    """Return a line about the machine, its load before, and the version of a real API server."""
    machine = f"{len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}"
    versions = f"{f'Kubernetes {kubernetes}, ' if kubernetes else ''}Python {platform.python_version()}"
    return f"{versions}, {machine}; load average {load:.1f} before."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="make only a few calls, to test the benchmark")
    options = parser.parse_args()
    console = Console(width=120, highlight=False)
    console.print(conditions(os.getloadavg()[0]))
    with tempfile.TemporaryDirectory(prefix="spotgate-bench-") as folder:
        for section in measure(Path(folder), quick=options.quick):
            show(console, section)


if __name__ == "__main__":
    main()
