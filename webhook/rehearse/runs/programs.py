"""Find or obtain the programs of the control plane."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.cluster.view import version_of
from webhook.rehearse.controlplane.binaries import (
    CONTROL_PLANE,
    EVERYTHING,
    KUBERNETES,
    PLATFORM,
    BinariesError,
    cache_directory,
    find_go,
    find_or_build,
    has_programs,
    report,
)
from webhook.rehearse.controlplane.images import copy_from_images

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NEEDED: Final = EVERYTHING - {"kubectl"}
OLDEST: Final = (1, 34)
"""The first minor version that serves resource.k8s.io/v1, which rehearsals need."""

_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a control plane.

    Attributes:
        paths: the path of each program, by name.
        version: the version of kube-scheduler, such as 1.37.2.
    """

    paths: Mapping[str, Path]
    version: str


def find_programs(folder: Path | None, cluster: str | None) -> Programs:
    """Return the programs from a folder, for the cluster's minor version, or for the default version.

    This can take minutes. Raise CannotJudgeError if a program is missing, can't run, or can't be obtained.
    """
    if folder is not None:
        if missing := [name for name in sorted(NEEDED) if not has_programs(folder, [name])]:
            raise CannotJudgeError(
                f"spotgate rehearse: --binaries {folder}: {', '.join(missing)} can't be run from there"
            )
        return _programs({name: folder / name for name in NEEDED})
    versions = dict.fromkeys((_preferred(cluster), KUBERNETES.version))
    if (programs := next(filter(None, map(_found, versions)), None)) is not None:
        return programs
    report("there are no programs of a control plane yet; `spotgate rehearse --prepare` gets them beforehand")
    return _obtain(versions)


def prepare(cluster: str | None) -> Programs:
    """Return the programs for a cluster of this version. Build or copy them if necessary. Raise CannotJudgeError."""
    version = _preferred(cluster)
    return _found(version) or _obtain([version])


def _obtain(versions: Iterable[str]) -> Programs:
    """Build or copy the programs of the first available version. Raise CannotJudgeError."""
    problems = []
    for version, obtain in product(versions, (_build, copy_from_images)):
        try:
            obtain(version)
        except BinariesError as error:
            problems.append(f"{error}\n")
            continue
        if (programs := _found(version)) is not None:
            return programs
    raise CannotJudgeError(
        f"spotgate rehearse: {''.join(problems)}a rehearsal needs these programs: install Go, docker, podman or "
        "nerdctl, and run `spotgate rehearse --prepare`, or name their folder with --binaries or KUBEBUILDER_ASSETS"
    )


def _preferred(cluster: str | None) -> str:
    """Return the cluster's version if rehearsals support it, or else the version that spotgate builds."""
    release = re.match(r"v\d+\.\d+\.\d+", cluster or "")  # providers add a suffix: v1.35.2-gke.100
    minor, newest = version_of(cluster or ""), version_of(KUBERNETES.version)
    return release[0] if release and minor and newest and OLDEST <= minor < newest else KUBERNETES.version


def _build(version: str) -> None:
    if version != KUBERNETES.version:
        raise BinariesError(
            f"spotgate builds only Kubernetes {KUBERNETES.version}; {version} comes from container images"
        )
    find_go()
    report("building the programs of the control plane with Go takes 8 to 15 minutes on two cores, once")
    find_or_build(NEEDED)


def _found(version: str) -> Programs | None:
    """Return the programs in KUBEBUILDER_ASSETS, or the newest of this minor version in the cache, or None."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    if has_programs(assets, NEEDED):
        return _programs({name: assets / name for name in NEEDED})
    paths: dict[str, Path] = {}
    for module in CONTROL_PLANE:
        minor = (version if module is KUBERNETES else module.version).rpartition(".")[0]
        needed = module.packages.keys() & NEEDED
        folders = cache_directory().glob(f"{module.name}-{minor}.*-{PLATFORM}-*")
        complete = (folder for folder in folders if has_programs(folder, needed))
        newest = max(complete, key=lambda folder: [*map(int, re.findall(r"\d+", folder.name))], default=None)
        if newest is None:
            return None
        paths |= {name: newest / name for name in needed}
    return _programs(paths)


def _programs(paths: Mapping[str, Path]) -> Programs:
    """Return the programs with the version that the scheduler reports. Raise CannotJudgeError."""
    command = [str(paths["kube-scheduler"]), "--version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT).stdout  # noqa: S603 - the scheduler
    except (OSError, subprocess.TimeoutExpired) as error:
        output = str(error)
    version = re.match(r"Kubernetes v(\S+)", output)
    if version is None:
        raise CannotJudgeError(f"spotgate rehearse: `{command[0]} --version` prints no version: {output.strip()}")
    return Programs(paths, version[1])
