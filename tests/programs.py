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
_FOLDERS = tuple(Path(__file__).parent / name for name in ("controlplane", "rehearse"))


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a program that is built, and exclude its build from their timeout."""
    for item in items:
        built = not _BUILT.isdisjoint(getattr(item, "fixturenames", ()))
        if built:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS, func_only=True))
        if built or any(folder in item.path.parents for folder in _FOLDERS):
            item.add_marker(pytest.mark.cluster)


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
