"""Give all tests on the shared control plane to one worker of pytest-xdist, and every other test to whoever is free.

So with those on the control plane without controllers, which other tests stop and restart. A webhook configuration
concerns the whole cluster: two tests that install one must not run at once. What has a cluster of its own is for whoever
is free: the shared one is what takes longest. (xdist's own `--dist loadgroup` is to do this, but xdist 3.8 marks tests in a
way that pytest 9.2 no longer reads. It ships no types, hence the ignores.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.scheduler import Scheduling

FOLDER = "tests/controlplane/"
BARE = re.compile(rf"{FOLDER}test_(check_live|exported_placement|live_\w+|policy_\w+|self_managed|who_may_ask)\.py::")
OWN = re.compile(rf"{FOLDER}test_(audit|binaries|chaos|cluster_life|install_page|operate|run|scale)\.py")


def scope_of(nodeid: str) -> str:
    """Return what the test is not to be parted from."""
    if BARE.match(nodeid):
        return "the control plane without controllers"
    if own := OWN.match(nodeid):
        return own[0]
    return FOLDER if nodeid.startswith(FOLDER) else nodeid


class OneWorkerPerScope(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one scope run one after another in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # xdist may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Stand in for `--dist load`, which is what `-n` alone means."""
    return OneWorkerPerScope(config, log) if config.getoption("dist") == "load" else None
