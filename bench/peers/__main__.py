"""``make bench-peers``: run `spotgate check`, `gator test`, `kyverno apply`, and kubeconform on the same manifests.

They run in turns. The first run builds the other programs from their Go modules, which takes minutes. Their policies
are in ``bench/peers/``, and match spotgate's policies for these workloads as closely as each tool allows. kubeconform
only parses, for comparison.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.console import Console

from bench import samples
from bench.commands import SPOTGATE, Ran, run
from bench.figures import Section
from bench.run import show
from tests.controlplane.harness.tools import PEERS, find_tools
from webhook.rehearse.controlplane.binaries import BinariesError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POLICIES: Final = Path(__file__).parent

PARSER: Final = "kubeconform"

ENOUGH: Final = 60.0
"""Seconds after which a slow program isn't run again."""

Command = Callable[[Path], list[str]]
"""A function that returns the command line for a file or a folder of manifests."""


def contenders(programs: Mapping[str, Path]) -> dict[str, Command]:
    """Return the commands to compare, by name and version."""
    versions = {module.name: module.version for module in PEERS}
    gator, kyverno = str(programs["gator"]), str(programs["kyverno"])

    def apply(policies: str) -> Command:
        return lambda path: [kyverno, "apply", str(POLICIES / policies), "--resource", str(path)]

    return {
        "spotgate check, all its policies": lambda path: [SPOTGATE, "check", "-o", "json", str(path)],
        f"gator {versions['gator']} test": lambda path: [
            gator,
            "test",
            *("-f", str(POLICIES / "gator.yaml")),
            *("-f", str(path)),
        ],
        f"kyverno {versions['kyverno']} apply, ClusterPolicies": apply("kyverno.yaml"),
        f"kyverno {versions['kyverno']} apply, CEL kinds": apply("kyverno-cel.yaml"),
        f"{PARSER} {versions[PARSER]}, parsing only": lambda path: [
            str(programs[PARSER]),
            "-skip=Deployment",  # after parsing
            str(path),
        ],
    }


def measure(
    folder: Path, commands: Mapping[str, Command], *, counts: tuple[int, ...], rounds: int
) -> Iterator[Section]:
    """Yield sections for each number of manifests, in separate files and in one."""
    for count, in_one in [*((count, False) for count in counts), (counts[-1], True)]:
        manifests = folder / f"{count}-{'one.yaml' if in_one else 'files'}"
        texts = [samples.manifest(number) for number in range(count)]
        if in_one:
            manifests.write_text("---\n".join(texts))
        else:
            manifests.mkdir()
            for number, text in enumerate(texts):
                (manifests / f"{number}.yaml").write_text(text)
        taken: dict[str, list[Ran]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                if sum(result.seconds for result in taken[name]) < ENOUGH:
                    taken[name].append(run(*command(manifests), exits=(0, 1)))
        yield Section(
            title=f"{count:,} manifests of {texts[0].count(chr(10))} lines, in {'one file' if in_one else 'files'}",
            columns=("program", "runs", "wall s", "CPU s", "peak MiB"),
            rows=[
                (
                    name,
                    len(ran),
                    median(result.seconds for result in ran),
                    median(result.cpu for result in ran),
                    max(result.mib for result in ran),
                )
                for name, ran in taken.items()
            ],
            note="Medians of runs in turns. The peak is that of the largest process.",
        )


def prove(commands: Mapping[str, Command], folder: Path) -> None:
    """Exit if a program doesn't deny a bad manifest, so that only working programs are measured."""
    wrong = folder / "wrong.yaml"
    manifest = samples.manifest(1)
    label = "spotgate.dev/capacity: spot\n"
    assert label in manifest
    wrong.write_text(manifest.replace(label, f"{label}        compute.coreweave.cloud/mine: 'yes'\n"))
    for name, command in commands.items():
        if name.startswith(PARSER):
            continue
        ran = subprocess.run(command(wrong), check=False, capture_output=True, text=True)  # noqa: S603
        if ran.returncode == 0 or "reserved" not in ran.stdout + ran.stderr:
            sys.exit(f"{name} does not deny a reserved label:\n{ran.stdout}{ran.stderr}")


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use only a few manifests, to test the benchmark")
    parser.add_argument("--count", type=int, default=10_000, help="the number of manifests; default: %(default)s")
    options = parser.parse_args()
    try:
        programs = find_tools({name for module in PEERS for name in module.packages})
    except BinariesError as error:
        sys.exit(str(error))
    console = Console(width=160, highlight=False)
    console.print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}")
    with tempfile.TemporaryDirectory(prefix="spotgate-bench-") as temporary:
        folder = Path(temporary)
        commands = contenders(programs)
        prove(commands, folder)
        for section in measure(
            folder, commands, counts=(1, 20 if options.quick else options.count), rounds=1 if options.quick else 3
        ):
            show(console, section)


if __name__ == "__main__":
    main()
