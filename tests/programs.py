"""Programs for tests: spotgate, and third-party ones, built on first use: a control plane, actionlint, kustomize, Helm, jq."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.tools import find_tools
from tests.quick_start import quick_spotgate
from webhook.cluster.view import version_of
from webhook.rehearse.controlplane.binaries import KUBERNETES, BinariesError, find_or_build, report

if TYPE_CHECKING:
    from collections.abc import Iterator


VERSION = f"v{os.environ.get('KUBERNETES', '').removeprefix('v') or KUBERNETES.version.removeprefix('v')}"
"""The tested version of Kubernetes: `make` exports `KUBERNETES`, and sets KUBEBUILDER_ASSETS for it."""

TIMEOUT_SECONDS = 120
_BUILT = frozenset({"actionlint", "binaries", "gojq", "helm", "kustomize"})
_TESTS = Path(__file__).parent
_FOLDERS = ("controlplane", "rehearse")
_WITH_PROGRAMS = ("cli/judging", "cli/output", "integrations", "manifests")
"""The other folders with tests that `make test-cluster` runs."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read only the folders with such tests for `-m cluster`: each worker would take seconds for all others."""
    if config.option.markexpr != "cluster" or _TESTS not in collection_path.parents:
        return None
    folders = [_TESTS / name for name in (*_FOLDERS, *_WITH_PROGRAMS)]
    if any(folder.is_relative_to(collection_path) or collection_path.is_relative_to(folder) for folder in folders):
        return None
    return True


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a program that is built, and exclude its build from their timeout."""
    for item in items:
        built = not _BUILT.isdisjoint(getattr(item, "fixturenames", ()))
        if built:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS, func_only=True))
        if built or _is_below(item, _FOLDERS):
            item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("cluster") and not _is_below(item, (*_FOLDERS, *_WITH_PROGRAMS)):
            raise pytest.UsageError(f"{item.nodeid} needs a program: add its folder to _WITH_PROGRAMS in {__file__}")


def _is_below(item: pytest.Item, folders: tuple[str, ...]) -> bool:
    return item.nodeid.startswith(tuple(f"tests/{folder}/" for folder in folders))


def since(minor: tuple[int, int], what: str) -> pytest.MarkDecorator:
    """Return a mark that skips tests before the minor version of Kubernetes that introduced a feature."""
    reason = f"Kubernetes {minor[0]}.{minor[1]} has {what}, and this is {VERSION}"
    return pytest.mark.skipif((version_of(VERSION) or minor) < minor, reason=reason)


def without(error: BinariesError) -> BaseException:
    """Return the exception that skips a test without its program locally, and fails it in CI."""
    if os.environ.get("CI"):
        return pytest.fail.Exception(str(error), pytrace=False)
    return pytest.skip.Exception(str(error))


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """Return the programs of a control plane, and build them if needed."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # show long builds and skipped tests immediately
        try:
            return find_or_build()
        except BinariesError as error:
            report(f"NO TESTS ON A CONTROL PLANE: {error}")
            problem = error
    raise without(problem)


@pytest.fixture(scope="session")
def spotgate() -> Iterator[Path]:
    """Yield a `spotgate` that starts fast, alone in its folder."""
    with quick_spotgate() as folder:
        yield folder / "spotgate"


@pytest.fixture(scope="session")
def actionlint() -> Path:
    """Return actionlint; building it takes some seconds, once."""
    return _program("actionlint")


@pytest.fixture(scope="session")
def gojq() -> Path:
    """Return gojq, the jq of Argo CD; building it takes some seconds, once."""
    return _program("gojq")


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """Return kustomize; building it takes some seconds, once."""
    return _program("kustomize")


@pytest.fixture(scope="session")
def helm() -> Path:
    """Return Helm; building it takes 4.6 minutes of CPU time, once."""
    return _program("helm")


def _program(name: str) -> Path:
    try:
        return find_tools([name])[name]
    except BinariesError as error:
        raise without(error) from None


def peak_mib(pid: int) -> float:
    """Return the highest resident set size of a process so far."""
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(peak) / 1024
