"""Copy a control plane's programs from the container images of Kubernetes, etcd, and KWOK, for Linux."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from webhook.rehearse.controlplane.binaries import KWOK, PLATFORM, BinariesError, fill_cache, report

ENGINES: Final = ("docker", "podman", "nerdctl")
REGISTRY: Final = "registry.k8s.io"

# kubeadm 1.37 uses this version for Kubernetes 1.34 to 1.37: cmd/kubeadm/app/constants/constants.go.
ETCD_TAG: Final = "3.7.0-0"

DIGESTS: Final = msgspec.yaml.decode(Path(__file__).with_name("images.yaml").read_bytes(), type=dict[str, str])
IMAGE: Final = "-image"
"""The suffix of cache folders whose programs come from images."""

_SECONDS: Final = 600.0
"""The timeout of one command of the container engine; an image is 20 to 70 MB."""


def folders_of(version: str) -> dict[str, dict[str, str]]:
    """Return the programs and images for this Kubernetes version, by cache folder."""
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return {
        f"etcd-v{ETCD_TAG.partition('-')[0]}-{PLATFORM}{IMAGE}": {"etcd": _reference(f"etcd:{ETCD_TAG}")},
        f"kwok-{KWOK.version}-{PLATFORM}{IMAGE}": {"kwok": _reference(f"kwok/kwok:{KWOK.version}")},
        f"kubernetes-{version}-{PLATFORM}{IMAGE}": {name: _reference(f"{name}:{version}") for name in names},
    }


def _reference(image: str) -> str:
    """Return the image reference to pull. It has a tag or a digest: not every engine accepts both."""
    digest = DIGESTS.get(image)
    return f"{REGISTRY}/{image.partition(':')[0]}@{digest}" if digest else f"{REGISTRY}/{image}"


def copy_from_images(version: str) -> None:
    """Copy missing programs for this Kubernetes version from images to the cache. Raise BinariesError."""
    if sys.platform != "linux":
        raise BinariesError("container images contain only Linux programs, so they can't be used on this system")
    engine = next(filter(shutil.which, ENGINES), None)
    if engine is None:
        raise BinariesError(f"the programs can't be copied from container images: install one of {', '.join(ENGINES)}")
    fill_cache(
        {
            f"{folder}/{program}": partial(_copy, engine, image)
            for folder, images in folders_of(version).items()
            for program, image in images.items()
        }
    )


def _copy(engine: str, image: str, target: Path) -> None:
    """Copy a program from the image's `/usr/local/bin`."""
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
