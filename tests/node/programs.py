"""Find or build the programs of a node: kubelet, containerd with its shim and client, and runc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from webhook.rehearse.controlplane.binaries import (
    KUBERNETES,
    BinariesError,
    Module,
    cache_directory,
    fill_cache,
    find_go,
    find_or_build,
    has_programs,
    report,
)

CGROUPS: Final = Path("/sys/fs/cgroup")
MODULES: Final = Path(__file__).parent / "modules"
KUBELET: Final = Module(
    directory=MODULES / "kubelet",
    source=KUBERNETES.source,
    packages={"kubelet": "k8s.io/kubernetes/cmd/kubelet"},
    ldflags=KUBERNETES.ldflags,
)
CONTAINERD: Final = Module(
    directory=MODULES / "containerd",
    source="github.com/containerd/containerd/v2",
    packages={
        name: f"github.com/containerd/containerd/v2/cmd/{name}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
)
RUNC: Final = Module(
    directory=MODULES / "runc",
    source="github.com/opencontainers/runc",
    packages={"runc": "github.com/opencontainers/runc"},
)


def find_programs() -> dict[str, Path]:
    """Return the paths of all programs of a node, and of etcd and the API server. Build missing ones. Raise BinariesError."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise BinariesError("a node needs root on Linux")
    if not CGROUPS.is_dir() or not any(CGROUPS.iterdir()):
        raise BinariesError(f"a node needs cgroups in {CGROUPS}")
    if missing := [name for name in ("busybox", "unshare") if shutil.which(name) is None]:
        raise BinariesError(f"a node needs {' and '.join(missing)}: install busybox-static and util-linux")
    runc = cache_directory() / RUNC.key / "runc"
    if not has_programs(runc.parent, [runc.name]):  # first, because it needs more than Go
        fill_cache({f"{RUNC.key}/{runc.name}": _build_runc})
    programs = find_or_build(["etcd", "kube-apiserver"])
    programs |= find_or_build([*KUBELET.packages, *CONTAINERD.packages], modules=[KUBELET, CONTAINERD])
    return {**programs, "runc": runc, "unshare": Path(str(shutil.which("unshare")))}


def _build_runc(target: Path) -> None:
    """Build runc with cgo, which it needs, and with seccomp, because kubelet limits the system calls of every sandbox."""
    report(f"building {target.name} {RUNC.version} (once; less than a minute)")
    command = ["nice", "-n", "10", find_go(), "build", *RUNC.flags(), "-tags", "seccomp", "-o", str(target)]
    environment = os.environ | {"CGO_ENABLED": "1", "GOWORK": "off"}
    done = subprocess.run([*command, *RUNC.packages.values()], cwd=RUNC.directory, env=environment, check=False)
    if done.returncode != 0:
        needs = "gcc, pkg-config, libc6-dev, and libseccomp-dev"
        raise BinariesError(f"runc could not be built; see the output above. It needs {needs}")
