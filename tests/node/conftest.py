"""The node that all tests in this folder share. Where it can't run, they are skipped, even in CI."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.node.node import Node, start_node
from tests.node.programs import find_programs
from tests.programs import TIMEOUT_SECONDS
from webhook.rehearse.controlplane.binaries import BinariesError, report
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exclude fixtures from the timeout, because the first test builds the programs."""
    for item in items:
        if "node" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """Yield a node, and build its programs if needed."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with contextlib.ExitStack() as stack:
        with capture.global_and_fixture_disabled():  # show long builds and skipped tests immediately
            try:
                running = stack.enter_context(start_node(find_programs()))
            except (BinariesError, ControlPlaneError) as error:
                report(f"NO TESTS ON A NODE: {' '.join(str(error).split())}")
                pytest.skip(str(error))
        yield running
