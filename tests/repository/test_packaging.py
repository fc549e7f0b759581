"""Packaging: the wheel works outside the checkout, and the locked requirements are exact."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from webhook import __version__
from webhook.rehearse.controlplane.images import folders_of

ROOT = Path(__file__).parents[2]
GROUPS = ("dev", "check", "docs", "cluster", "hooks", "build", "fuzz", "mutants")
LOCKS = ("runtime.txt", *(f"{group}.txt" for group in GROUPS))

POD_WITH_RESERVED_LABEL = """\
apiVersion: v1
kind: Pod
metadata:
  name: labelled
  labels: {foo.coreweave.cloud/bar: "x"}
spec:
  containers: [{name: main, image: busybox}]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the checkout without the network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (built,) = folder.glob("spotgate-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder outside the checkout with the wheel's content; integrations/ installs it with pip."""
    target = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def run_installed(installed: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code that imports the installed wheel; PYTHONPATH precedes the checkout's editable install."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=installed,
        env={"PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_wheel_contains_only_the_packages_and_bundled_policies(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert folders == {"webhook", "certs", "policies"}
    assert {"webhook/py.typed", "certs/py.typed"} <= set(names)


def test_wheel_contains_every_bundled_policy_without_tests(wheel: Path) -> None:
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("policies/")}
    in_checkout = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "policies").rglob("*.yaml")
        if "tests" not in path.relative_to(ROOT / "policies").parts
    } | {"policies/schema.json"}
    assert in_checkout
    assert in_wheel == in_checkout


def test_wheel_contains_the_findings_of_rules_without_cases(wheel: Path) -> None:
    of_rules = [Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("webhook/rules/")]
    assert "findings.yaml" in of_rules
    assert "cases.yaml" not in of_rules


def test_wheel_contains_the_sources_of_a_control_plane(wheel: Path) -> None:
    modules = {
        name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("webhook/rehearse/controlplane/modules/")
    }
    assert {
        f"webhook/rehearse/controlplane/modules/{name}/go.{end}"
        for name in ("etcd", "kubernetes", "kwok")
        for end in ("mod", "sum")
    } == modules


def test_wheel_has_both_console_scripts(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    scripts = archive.read(entry_points).decode()
    assert "spotgate = webhook.commands:main" in scripts
    assert "kubectl-spotgate = webhook.commands:main" in scripts


def test_installed_package_finds_its_bundled_policies(installed: Path) -> None:
    code = "import pathlib, webhook; print(pathlib.Path(webhook.__file__).parent.parent / 'policies')"
    done = run_installed(installed, code)
    assert done.returncode == 0, done.stderr
    policies = Path(done.stdout.strip())
    assert policies == installed / "policies"
    assert list(policies.rglob("*.yaml"))


def test_installed_command_judges_a_manifest_with_the_bundled_policies(installed: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD_WITH_RESERVED_LABEL)
    code = "import sys, webhook.commands; sys.exit(webhook.commands.main())"
    done = run_installed(installed, code, "check", str(manifest))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "foo.coreweave.cloud/bar" in done.stdout


def locked(lock: str) -> dict[str, tuple[Requirement, int]]:
    """Return each requirement of a lock file by its canonical name, with the number of its hashes."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", " ")
    entries: dict[str, tuple[Requirement, int]] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement = Requirement(line.split(" --hash=")[0].strip())
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}(?!\S)", line)
        entries[canonicalize_name(requirement.name)] = (requirement, len(hashes))
    return entries


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_index_or_url(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert not re.findall(r"\S*://\S*|--(?:extra-)?index-url.*|--find-links.*|--trusted-host.*| @ .*", text)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_and_hashes_every_dependency(lock: str) -> None:
    entries = locked(lock)
    assert entries
    unpinned = [name for name, (r, _) in entries.items() if [s.operator for s in r.specifier] != ["=="]]
    unhashed = [name for name, (_, hashes) in entries.items() if not hashes]
    assert (unpinned, unhashed) == ([], [])


def test_locks_agree_on_versions() -> None:
    """The targets of make install several of them into one environment."""
    pins: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, (requirement, _) in locked(lock).items():
            pins.setdefault(f"{name}; {requirement.marker}", set()).add(str(requirement.specifier))
    assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}
    assert locked("runtime.txt").keys() <= locked("dev.txt").keys()


@pytest.mark.parametrize("group", [None, *GROUPS])
def test_lock_satisfies_the_ranges_of_pyproject(group: str | None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] if group is None else project["dependency-groups"][group]
    entries = locked(f"{group or 'runtime'}.txt")
    unsatisfied = [text for text in wanted if isinstance(text, str) and not satisfied(Requirement(text), entries)]
    assert unsatisfied == []


def satisfied(wanted: Requirement, entries: dict[str, tuple[Requirement, int]]) -> bool:
    """Return whether the lock has a version in the wanted range under the same marker."""
    entry = entries.get(canonicalize_name(wanted.name))
    if entry is None:
        return False
    (pin,) = entry[0].specifier
    return wanted.specifier.contains(pin.version) and str(wanted.marker) == str(entry[0].marker)


def test_image_has_one_base_pinned_by_digest_and_the_manifests_user() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    programs = {image.rpartition("/")[2].partition("@")[0]: image for image in images_of_programs()}
    arguments = {name: f"ARG {name.upper().replace('-', '_')}=" for name in programs}
    assert [line for line in lines if line.startswith(tuple(arguments.values()))] == [
        f"{arguments[name]}{image}" for name, image in programs.items()
    ]
    assert [line for line in lines if line.startswith("FROM ")] == [
        *(f"FROM ${{{arguments[name][4:-1]}}} AS {name}" for name in programs),
        "FROM ${PYTHON} AS build",
        "FROM scratch AS webhook",
        "FROM ${PYTHON} AS programs",
        "FROM webhook AS rehearsal",
        "FROM webhook",  # the result of `docker build`
    ]
    assert all(re.search("@sha256:[0-9a-f]{64}$", image) for image in programs.values())
    (base,) = [line for line in lines if line.startswith("ARG PYTHON=")]
    assert re.fullmatch(r"ARG PYTHON=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert "USER 65532:65532" in lines
    assert "runAsUser: 65532" in (ROOT / "manifests/base/deployment.yaml").read_text()


KUBERNETES = "v1.37.0"
"""The version of the rehearsal image: the newest whose digests are pinned."""


def images_of_programs() -> list[str]:
    return [image for folder in folders_of(KUBERNETES).values() for image in folder.values()]


def test_image_names_the_version_of_the_package() -> None:
    assert f"ARG VERSION={__version__}" in (ROOT / "Dockerfile").read_text()
