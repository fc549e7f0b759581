"""Measure the mutation score: ``python -m tests.mutants [COUNT]`` runs a fixed sample and prints the survivors."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "mutants"
SEED: Final = 28
COUNT: Final = 600


def mutmut(*arguments: str, check: bool = True) -> str:
    """Run mutmut in the checkout and return its output. Its settings are in pyproject.toml."""
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(command, cwd=FOLDER.parent, check=check, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Write all mutants, run a sample of them, and print the score of each package."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    shutil.rmtree(FOLDER, ignore_errors=True)
    mutmut("run", "none", check=False)  # mutmut writes all mutants, then fails: none has this name
    names = sorted(
        name for meta in FOLDER.glob("webhook/**/*.meta") for name in json.loads(meta.read_text())["exit_code_by_key"]
    )
    sample = set(random.Random(SEED).sample(names, count))  # noqa: S311 (the same sample each time)
    mutmut("run", *sorted(sample))
    outcomes = dict(
        line.strip().split(": ") for line in mutmut("results", "--all", "true").splitlines() if ": " in line
    )
    killed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for name in sorted(sample):
        outcome, room = outcomes[name], name.split(".")[1]
        for key in (room, "all"):
            total[key] += 1
            killed[key] += outcome in {"killed", "timeout"}
        if outcome not in {"killed", "timeout"}:
            sys.stdout.write(f"{outcome}: {name}\n")
    sys.stdout.write(f"{len(names):,} mutants, {len(sample)} run\n")
    for room, of in sorted(total.items()):
        sys.stdout.write(f"{room:9} {killed[room]} of {of} killed: {killed[room] / of:.1%}\n")


if __name__ == "__main__":
    main()
