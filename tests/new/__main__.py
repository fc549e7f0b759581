"""Write the files of a new policy kind, provider, or output format: `python -m tests.new policy-kind StartupDelay`.

Each folder next to this file has the files of a working example, under their paths in the repository, and `lines.yaml`:
the lines to add to existing files. The name replaces the example's in paths and texts.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from webhook.engine.bundle import example_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


@dataclass(frozen=True)
class Scaffold:
    """What can be new: the pattern and the form of its name, the page that goes on, and what replaces the example's names."""

    pattern: str
    form: str
    page: str
    names: Callable[[str], Mapping[str, str]]


def _of_kind(name: str) -> dict[str, str]:
    words = re.findall(r"[A-Z][a-z0-9]*", name)
    return {
        "PriorityClass": name,
        "priority_class": "_".join(words).lower(),
        "priority-class": "-".join(words).lower(),
    }


SCAFFOLDS: Final = {
    "policy-kind": Scaffold(
        "([A-Z][a-z0-9]+){1,4}",
        "up to four capitalized words, such as StartupDelay",
        "docs/adding-a-policy-kind.md",
        _of_kind,
    ),
    "provider": Scaffold(
        "(?!acme$)[a-z][a-z0-9-]*[a-z0-9]",
        "lower-case letters, digits, and dashes, such as nimbus, and not acme, which the examples use",
        "docs/adding-a-provider.md",
        lambda name: {"acme": name, "Acme": name.replace("-", " ").title()},
    ),
    "format": Scaffold(
        "[a-z][a-z0-9]*",
        "lower-case letters and digits, such as markdown",
        "docs/adding-an-output-format.md",
        lambda name: {"markdown": name},
    ),
}


def write(what: str, name: str, root: Path) -> tuple[list[Path], list[Path]]:
    """Write below `root`, and return the new and the changed files. Raise FileExistsError before anything is written."""
    names = SCAFFOLDS[what].names(name)
    pattern = re.compile("|".join(names))
    new = {
        root / path: text for path, text in _files(HERE / what, lambda text: pattern.sub(lambda m: names[m[0]], text))
    }
    for path in new:
        if path.exists():
            raise FileExistsError(path)
    changed = {}
    for file, line in yaml.safe_load((HERE / what / "lines.yaml").read_text()).items():
        added = pattern.sub(lambda match: names[match[0]], line["add"])
        changed[root / file] = _with_line((root / file).read_text(), line["before"], added)
    for path, text in (new | changed).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(new), list(changed)


def _files(folder: Path, renamed: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each file of the example. Their names end in `.txt`, so that no tool reads them."""
    for file in sorted(folder.rglob("*.txt")):
        yield renamed(str(file.relative_to(folder).with_suffix(""))), _sorted_imports(renamed(file.read_text()))


def _sorted_imports(text: str) -> str:
    """Sort the imports, because the place of one depends on the new name."""
    return re.sub(
        r"(?:^from webhook\..*\n)+",
        lambda block: "".join(sorted(block[0].splitlines(keepends=True))),
        text,
        flags=re.MULTILINE,
    )


def _with_line(text: str, before: str, added: str) -> str:
    start = text.index(f"\n{before}") + 1
    return f"{text[:start]}{added}\n{text[start:]}"


def main(arguments: Any = None) -> None:
    """Write the files, and print them."""
    parser = ArgumentParser(prog="python -m tests.new", description="Write the files of something new.")
    parser.add_argument("what", choices=SCAFFOLDS)
    parser.add_argument("name", metavar="NAME", help="such as StartupDelay, nimbus, or markdown")
    asked = parser.parse_args(arguments)
    scaffold = SCAFFOLDS[asked.what]
    if re.fullmatch(scaffold.pattern, asked.name) is None:
        parser.error(f"{asked.name!r} can't be the name of a {asked.what}: use {scaffold.form}")
    kinds = {kind.casefold(): kind for kind in example_files()}
    if asked.what == "policy-kind" and (taken := kinds.get(asked.name.casefold())):
        parser.error(f"policy files already have the kind {taken}: choose another name")
    try:
        new, changed = (
            sorted(file.relative_to(ROOT) for file in files) for files in write(asked.what, asked.name, ROOT)
        )
    except FileExistsError as error:
        parser.error(f"{error} exists: choose another name")
    sys.stdout.write("".join(f"{file}\n" for file in (*new, *changed)))
    sys.stdout.write(f"Each file has the example of {scaffold.page}, which says how to go on.\n")
    sys.stdout.write("To undo all of it, and your other uncommitted changes of these files, run:\n")
    sys.stdout.write(f"  git checkout -- {' '.join(map(str, changed))}\n  git clean -f -- {' '.join(map(str, new))}\n")


if __name__ == "__main__":
    main()
