"""Assemble the root of the image: Python, its libraries, spotgate's environment, and the bill of materials.

Runs in the build stage of the Dockerfile. The image has no shell, package manager, or pip, because nothing copies them.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHON = Path(sys.base_prefix)
LIBRARY = PYTHON / f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
ENVIRONMENT = Path("/opt/spotgate")
# Excluded from the standard library: tests, installers, and modules for terminals, displays, databases, or compilers.
LEFT_OUT = (
    "config-*", "curses", "dbm", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "sqlite3", "test",
    "tests", "tkinter", "turtledemo", "venv", "_curses*", "_dbm*", "_gdbm*", "_sqlite3*", "_tkinter*", "_test*",
    "readline*", "__pycache__", "*.a",
)  # fmt: skip
# Excluded from the environment: a second copy in the CEL library, and its extensions. Nothing imports these 53 MB.
NOT_IMPORTED = ("bazel-project", "ext", "[Aa]ctivate*", "__pycache__")
BILL = Path("usr/share/spotgate/sbom.cdx.json")
ACCOUNT = "65532"  # as in manifests/base; the usual user ID of images without a shell


def main(root: Path) -> None:
    """Create the root folder of the image."""
    for name in ("lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        if Path("/", name).is_symlink():  # it links to the folder in /usr; arm64 has no lib64
            copy(Path("/", name), root)
    copy(LIBRARY, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    copy(ENVIRONMENT, root, ignore=shutil.ignore_patterns(*NOT_IMPORTED))
    interpreter = PYTHON / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (interpreter, PYTHON / "bin/python", PYTHON / "bin/python3"):
        copy(program, root)
    binaries = [interpreter, *root.rglob("*.so"), *root.rglob("*.so.*")]
    libraries = {file for file in linked_by(binaries) if not file.is_relative_to(root)}
    owners = {copy_library(file, root) for file in libraries} - {""}
    packages = sorted(copy_notices(owner, root) for owner in owners)
    for name in ("etc/ssl/certs/ca-certificates.crt", "etc/os-release", "etc/nsswitch.conf"):
        if Path("/", name).exists():
            copy(Path("/", name), root)
    write(root / "etc/passwd", f"spotgate:x:{ACCOUNT}:{ACCOUNT}::/:/sbin/nologin\n")
    write(root / "etc/group", f"spotgate:x:{ACCOUNT}:\n")
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)
    # Compile now, because each start on a read-only root would compile again. Use hashes, because file times vary.
    for folder in (LIBRARY, ENVIRONMENT):
        compileall.compile_dir(
            root / folder.relative_to("/"),
            quiet=1,
            stripdir=str(root),
            prependdir="/",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
    write(root / BILL, bill_of_materials(packages))


def copy(source: Path, root: Path, **options: Any) -> None:
    """Copy a file, link, or folder to the same path below the root."""
    target = root / source.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, **options)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def write(file: Path, text: str) -> None:
    """Write a file, and create its parent folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def linked_by(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that any of the files links to, directly or indirectly."""
    output = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    return {Path(name) for name in re.findall(r"(/\S+) \(0x", output)}


def copy_library(file: Path, root: Path) -> str:
    """Copy a library and the link that the linker uses. Return the library's Debian package, or an empty string."""
    real = file.resolve()
    for path in (real, file):
        if not (root / path.relative_to("/")).exists():
            copy(path, root)
    # Before Debian 13, dpkg lists paths in /lib, although /lib is a link to /usr/lib.
    for name in (real, Path("/", real.relative_to("/usr"))):
        done = subprocess.run(["dpkg", "--search", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0]
    return ""


def copy_notices(package: str, root: Path) -> tuple[str, str, str]:
    """Copy a package's license, and its dpkg entry for scanners. Return its name, version, and architecture."""
    name = package.partition(":")[0]
    copy(Path("/usr/share/doc", name, "copyright"), root)
    entry = subprocess.run(["dpkg", "--status", package], capture_output=True, text=True, check=True).stdout
    write(root / "var/lib/dpkg/status.d" / name, entry)
    fields = dict(re.findall(r"^(Version|Architecture): (.+)$", entry, re.MULTILINE))
    return name, fields["Version"], fields["Architecture"]


def bill_of_materials(packages: Iterable[tuple[str, str, str]]) -> str:
    """Return the CycloneDX document of the image. It lists Python packages, Python, and Debian packages."""
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--pyproject",
        "pyproject.toml",
    ]
    done = subprocess.run([*command, ENVIRONMENT], stdout=subprocess.PIPE, text=True, check=True)
    site = ENVIRONMENT / LIBRARY.relative_to(PYTHON) / "site-packages"
    (spotgate,) = importlib.metadata.distributions(name="spotgate", path=[str(site)])
    document = json.loads(done.stdout)
    document["metadata"]["component"]["version"] = spotgate.version
    version = ".".join(map(str, sys.version_info[:3]))
    python = f"pkg:generic/python@{version}"
    document["components"].append(
        {"type": "platform", "bom-ref": python, "name": "python", "version": version, "purl": python}
    )
    for name, version, architecture in packages:
        purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A')}?arch={architecture}"
        document["components"].append(
            {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        )
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
