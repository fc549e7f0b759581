"""Take a control plane's programs out of the container images that Kubernetes, etcd and KWOK publish, for Linux."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.rehearse.controlplane.binaries import KWOK, PLATFORM, BinariesError, fill_cache, report

if TYPE_CHECKING:
    from pathlib import Path

ENGINES: Final = ("docker", "podman", "nerdctl")
REGISTRY: Final = "registry.k8s.io"

# What kubeadm of Kubernetes 1.37 takes for 1.34 to 1.37: cmd/kubeadm/app/constants/constants.go.
ETCD_TAG: Final = "3.7.0-0"

KUBERNETES_TAG: Final = "v1.37.0"
"""The version of Kubernetes in the image of rehearsals: the newest whose digests are here. See the Dockerfile."""

# Of the images for all platforms; etcd's is from https://github.com/kubernetes/k8s.io/pull/9687. Those of Kubernetes
# are as two other projects pin them, and were not compared with the registry. What has none here, as Kubernetes 1.37.2,
# is taken by its tag.
DIGESTS: Final = {
    "kube-apiserver:v1.37.0": "sha256:d1045e5c6d2f016797d22143eba7502e1bb712a4681836a7c35763a9c192dd70",
    "kube-controller-manager:v1.37.0": "sha256:997c997924eb8574f63f204a0b0af133aaf33c10df84009c32d34037f4e0e077",
    "kube-scheduler:v1.37.0": "sha256:a27622f132aa09cf2461ba077894a070c0186ec607366d14e805912d4804d11f",
    "etcd:3.7.0-0": "sha256:6ecefbe2510c4a30573a62a4d6dd175acf881ca67003fcd91849a16df7a724d5",
    "kwok/kwok:v0.8.0": "sha256:6d25aa8fbdfe78845423160bf125b5513f9522e2770981f0945c2a250c2b26f0",
}
IMAGE: Final = "-image"
"""How the names of folders of the cache end that come from images."""

_SECONDS: Final = 600.0
"""An image has 20 to 70 MB; slower than this is stuck."""


def folders_of(version: str) -> dict[str, dict[str, str]]:
    """Return what a control plane of this version of Kubernetes needs: by folder of the cache, programs and images."""
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return {
        f"etcd-v{ETCD_TAG.partition('-')[0]}-{PLATFORM}{IMAGE}": {"etcd": _reference(f"etcd:{ETCD_TAG}")},
        f"kwok-{KWOK.version}-{PLATFORM}{IMAGE}": {"kwok": _reference(f"kwok/kwok:{KWOK.version}")},
        f"kubernetes-{version}-{PLATFORM}{IMAGE}": {name: _reference(f"{name}:{version}") for name in names},
    }


def _reference(image: str) -> str:
    """Return what an engine pulls: not all take a tag and a digest."""
    digest = DIGESTS.get(image)
    return f"{REGISTRY}/{image.partition(':')[0]}@{digest}" if digest else f"{REGISTRY}/{image}"


def copy_from_images(version: str) -> None:
    """Copy what the cache lacks for this version of Kubernetes out of images. Raise BinariesError."""
    if sys.platform != "linux":
        raise BinariesError("container images have programs for Linux alone, so they can't be used here")
    engine = next(filter(shutil.which, ENGINES), None)
    if engine is None:
        raise BinariesError(
            f"the programs can't be copied from container images: there is none of {', '.join(ENGINES)}"
        )
    fill_cache(
        {
            f"{folder}/{program}": partial(_copy, engine, image)
            for folder, images in folders_of(version).items()
            for program, image in images.items()
        }
    )


def _copy(engine: str, image: str, target: Path) -> None:
    """Copy a program out of the `/usr/local/bin` of an image."""
    report(f"copying {target.name} from {image} with {engine}")
    container = _run(engine, "create", image, target.name).split()[-1]
    try:
        _run(engine, "cp", f"{container}:/usr/local/bin/{target.name}", str(target))
    finally:
        _run(engine, "rm", container)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BinariesError(f"`{' '.join(command)}` fails: {error}") from None
    if done.returncode != 0:
        raise BinariesError(f"`{' '.join(command)}` exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
