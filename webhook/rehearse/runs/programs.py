"""Find the programs of the control plane, or say how they are had."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.cluster.view import version_of
from webhook.rehearse.controlplane.binaries import (
    CONTROL_PLANE,
    ETCD,
    EVERYTHING,
    KUBERNETES,
    KWOK,
    PLATFORM,
    BinariesError,
    cache_directory,
    find_go,
    find_or_build,
    has_programs,
    kubernetes_module,
    report,
)
from webhook.rehearse.controlplane.images import IMAGE, copy_from_images

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NEEDED: Final = EVERYTHING - {"kubectl"}
OLDEST: Final = (1, 34)
"""The first minor version that serves everything that is rehearsed: resource.k8s.io/v1."""

_ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Programs:
    """Hold the programs of a control plane.

    Attributes:
        paths: by name.
        origin: where they are from, for people.
        version: what kube-scheduler says it is, such as 1.37.2.
    """

    paths: Mapping[str, Path]
    origin: str
    version: str


def find_programs(folder: Path | None, cluster: str | None) -> Programs:
    """Return the programs in a folder, or else those of the minor version of a cluster; building them may take minutes.

    Raise CannotJudgeError if the folder does not have all of them, they can't be run, or there is no way to get them.
    """
    if folder is not None:
        if (found := _in_folder(folder, "--binaries")) is None:
            missing = ", ".join(name for name in sorted(NEEDED) if not has_programs(folder, [name]))
            raise CannotJudgeError(f"spotgate rehearse: --binaries {folder}: {missing} can't be run from there")
        return found
    if (found := _found(_preferred(cluster)) or _found(KUBERNETES.version)) is not None:
        return found
    report("there are no programs of a control plane yet; `spotgate rehearse --prepare` gets them beforehand")
    try:
        return prepare(cluster)
    except BinariesError as error:
        raise CannotJudgeError(
            f"spotgate rehearse: {error}\na rehearsal needs these programs: install Go, docker, podman or nerdctl, and "
            "run `spotgate rehearse --prepare`, or name their folder with --binaries or KUBEBUILDER_ASSETS"
        ) from None


def prepare(cluster: str | None) -> Programs:
    """Return the programs for a cluster of this version, built or out of images where need be. Raise BinariesError."""
    version = _preferred(cluster)
    if (found := _found(version)) is not None:
        return found
    problems = []
    for obtain in (_build, copy_from_images):
        try:
            obtain(version, cache_directory(), report)
            break
        except BinariesError as error:
            problems.append(str(error))
    found = _found(version)
    if found is None:
        raise BinariesError("\n".join(problems))
    return found


def _preferred(cluster: str | None) -> str:
    """Return the version of Kubernetes that is wanted: the cluster's, if it is one of those that rehearsals run on."""
    minor = None if cluster is None else version_of(cluster)
    release = re.match(r"v\d+\.\d+\.\d+", cluster or "")  # a provider adds its own: v1.35.2-gke.100
    newest = version_of(KUBERNETES.version)
    return release[0] if release and minor and newest and OLDEST <= minor < newest else KUBERNETES.version


def _build(version: str, cache: Path, say: Callable[[str], None]) -> None:
    find_go()
    say("building the programs of the control plane with Go takes 8 to 15 minutes on two cores, once")
    if version == KUBERNETES.version:
        find_or_build(NEEDED, cache=cache, say=say)
    else:
        with kubernetes_module(version) as module:
            find_or_build(NEEDED, modules=(ETCD, KWOK, module), cache=cache, say=say)


def _found(version: str) -> Programs | None:
    """Return the programs that KUBEBUILDER_ASSETS names, or else the newest of this minor version in the cache."""
    assets = _in_folder(Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull), "KUBEBUILDER_ASSETS")
    if assets is not None:
        return assets
    paths: dict[str, Path] = {}
    for module in CONTROL_PLANE:
        minor = (version if module is KUBERNETES else module.version).rpartition(".")[0]
        needed = module.packages.keys() & NEEDED
        folders = cache_directory().glob(f"{module.name}-{minor}.*-{PLATFORM}-*")
        newest = max((each for each in folders if has_programs(each, needed)), key=_release, default=None)
        if newest is None:
            return None
        paths |= {name: newest / name for name in needed}
    scheduler = paths["kube-scheduler"]
    how = "taken out of container images" if scheduler.parent.name.endswith(IMAGE) else "built from Go modules"
    return Programs(paths, f"{how}, in {cache_directory()}", _version(scheduler))


def _release(folder: Path) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", folder.name.split("-")[1])]


def _in_folder(folder: Path, named: str) -> Programs | None:
    if not has_programs(folder, NEEDED):
        return None
    return Programs({name: folder / name for name in NEEDED}, f"{named} {folder}", _version(folder / "kube-scheduler"))


def _version(scheduler: Path) -> str:
    """Return its version. Raise CannotJudgeError."""
    try:
        done = subprocess.run(  # noqa: S603 - the scheduler
            [scheduler, "--version"], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
        said = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    version = re.match(r"Kubernetes v(\S+)", said)
    if version is None:
        raise CannotJudgeError(f"spotgate rehearse: `{scheduler} --version` says no version: {said.strip()}")
    return version[1]
