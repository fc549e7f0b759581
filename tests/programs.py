"""Programs of others that tests run: those of a control plane, actionlint, kustomize, Helm and jq, built where they are not yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.tools import find_tools
from webhook.cluster.view import version_of
from webhook.rehearse.controlplane.binaries import KUBERNETES, BinariesError, find_or_build, report

if TYPE_CHECKING:
    from pathlib import Path


VERSION = f"v{os.environ.get('KUBERNETES', '').removeprefix('v') or KUBERNETES.version.removeprefix('v')}"
"""The version of Kubernetes under test: `make` exports `KUBERNETES`, and sets KUBEBUILDER_ASSETS for it."""

TIMEOUT_SECONDS = 120
_BUILT = frozenset({"actionlint", "binaries", "gojq", "helm", "kustomize"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the first test that needs a program build it: fixtures do not count."""
    for item in items:
        if not _BUILT.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS, func_only=True))


def since(minor: tuple[int, int], what: str) -> pytest.MarkDecorator:
    """Return the mark of tests that need something that is new in this minor version of Kubernetes."""
    reason = f"Kubernetes {minor[0]}.{minor[1]} has {what}, and this is {VERSION}"
    return pytest.mark.skipif((version_of(VERSION) or minor) < minor, reason=reason)


def without(error: BinariesError) -> BaseException:
    """Return what to raise to do without the tests that need a program; in CI that is a failure."""
    if os.environ.get("CI"):
        return pytest.fail.Exception(str(error), pytrace=False)
    return pytest.skip.Exception(str(error))


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> dict[str, Path]:
    """Return the programs of a control plane, built if need be."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # what takes minutes, or is left out, must be seen at once
        try:
            return find_or_build()
        except BinariesError as error:
            report(f"NO TESTS ON A CONTROL PLANE: {error}")
            problem = error
    raise without(problem)


@pytest.fixture(scope="session")
def actionlint() -> Path:
    """Return the program; building it takes some seconds, once."""
    return _program("actionlint")


@pytest.fixture(scope="session")
def gojq() -> Path:
    """Return the program: jq, as Argo CD has it; building it takes some seconds, once."""
    return _program("gojq")


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """Return the program; building it takes some seconds, once."""
    return _program("kustomize")


@pytest.fixture(scope="session")
def helm() -> Path:
    """Return the program; building it takes minutes, once: 4.6 of one processor."""
    return _program("helm")


def _program(name: str) -> Path:
    try:
        return find_tools([name])[name]
    except BinariesError as error:
        raise without(error) from None
