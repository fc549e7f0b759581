"""The programs that rehearsals run, built if need be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.programs import without
from webhook.controlplane.binaries import BinariesError, find_or_build

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # Not the fixtures: the first of them may have to build Kubernetes.
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def programs() -> Mapping[str, Path]:
    """Return where they are."""
    try:
        return find_or_build()
    except BinariesError as error:
        raise without(error) from None
