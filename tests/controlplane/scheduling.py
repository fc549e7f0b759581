"""Give tests on one control plane to one worker of pytest-xdist, and every other test to whoever is free.

A webhook configuration concerns the whole cluster: two tests that install one must not run at once. (xdist's own
`--dist loadgroup` is to do this, but xdist 3.8 marks tests in a way that pytest 9.2 no longer reads. It ships no types,
hence the ignores.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.scheduler import Scheduling

SHARED = (
    "calls/conditions|calls/declared_rules|commands/doctor|contract/|exported/policies|kubectl/zoo|parity/",
    "install/install|kubectl/",
    "calls/who_may_ask|commands/check|exported/placement|install/self_managed|live/",
)
"""Files of tests that share a control plane, by what their paths begin with: two with controllers, one without."""

LONGEST = (*SHARED[:2], "install/chaos", "install/install_page", SHARED[2], "run", "commands/audit")
"""What is begun first, so that no worker is left with it in the end."""

_FILE = re.compile(r"tests/(controlplane|rehearse)/((?:\w+/)?)test_(\w+)\.py::")


def scope_of(nodeid: str) -> str:
    """Return what the test is not to be parted from."""
    found = _FILE.match(nodeid)
    if found is None:
        return nodeid
    room, folder, name = found.groups()
    if room == "rehearse":
        return "live" if name in {"live", "nightly"} else nodeid  # the tests of these share a cluster
    name = folder + name
    own = name in LONGEST
    return next((each for each in SHARED if not own and re.match(each, name)), name)


def rank_of(nodeid: str) -> int:
    """Return where the test stands in the order of `LONGEST`."""
    scope = scope_of(nodeid)
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


class OneWorkerPerScope(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one scope run one after another in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # xdist may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Stand in for `--dist load`, which is what `-n` alone means; keep the order of the tests."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return OneWorkerPerScope(config, log)
