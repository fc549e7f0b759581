"""Benchmarks of the command line: the startup time, and the throughput of `check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench import samples
from bench.figures import Section

if TYPE_CHECKING:
    from collections.abc import Collection

SPOTGATE: Final = str(Path(sys.executable).with_name("spotgate"))


class Ran(msgspec.Struct):
    """The output of `bench.child`."""

    seconds: float
    cpu: float
    mib: float
    exit: int


def run(*command: str, exits: Collection[int] = (0,)) -> Ran:
    """Run a command, and assert that its exit code is one of these."""
    child = [sys.executable, "-I", "-S", str(Path(__file__).with_name("child.py")), *command]
    # Let Python use cached byte code, as an installed program does.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = msgspec.json.decode(
        subprocess.run(child, check=True, capture_output=True, env=environment).stdout,  # noqa: S603
        type=Ran,
    )
    assert ran.exit in exits, f"{command} exited with {ran.exit}"
    return ran


def startup(folder: Path, *, rounds: int) -> Section:
    """Measure the start of the command line with a check of one Pod."""
    file = folder / "pod.json"
    file.write_bytes(msgspec.json.encode(samples.pod(containers=1, variables=3)))
    commands = {
        "spotgate check pod.json": [SPOTGATE, "check", str(file)],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    for command in commands.values():
        run(*command)
    taken: dict[str, list[Ran]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(run(*command))
    return Section(
        title="Start of the command line",
        columns=("command", "wall ms", "peak MiB"),
        rows=[
            (name, median(result.seconds for result in ran) * 1000, median(result.mib for result in ran))
            for name, ran in taken.items()
        ],
        note=f"Medians of {rounds} runs in turns, after one run of each to write its byte code.",
    )


def checking(folder: Path, *, rounds: int, count: int) -> Section:
    """Measure ``check`` on ``count`` and ``5 * count`` manifests: in files, in files with pools, and in one file."""
    most = 5 * count
    manifests = [samples.manifest(number) for number in range(most)]
    state = folder / "pools.json"
    state.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": samples.cluster()}))
    rows = []
    for number, turns in ((count, rounds), (most, max(1, rounds // 3))):
        many, one = folder / f"{number}", folder / f"{number}.yaml"
        many.mkdir()
        for index, text in enumerate(manifests[:number]):
            (many / f"{index}.yaml").write_text(text)
        one.write_text("---\n".join(manifests[:number]))
        for name, arguments in (
            (f"{number:,} files", [many]),
            (f"{number:,} files, --state", ["--state", state, many]),
            (f"one file of {number:,}", [one]),
        ):
            ran = [run(SPOTGATE, "check", "-o", "json", *map(str, arguments)) for _ in range(turns)]
            seconds = median(result.seconds for result in ran)
            rows.append((name, number / seconds, seconds, max(result.mib for result in ran)))
    return Section(
        title=f"spotgate check, manifests of {manifests[0].count(chr(10))} lines",
        columns=("in", "manifests/s", "wall s", "peak MiB"),
        rows=rows,
        note="A process per core, or one for one file. Memory of the largest. With --state, half of the Pods use spot.",
    )
