"""Give the tests of a control plane to one worker of pytest-xdist, and other tests to any free worker.

A webhook configuration applies to the whole cluster, so two tests that install one must not run concurrently. (xdist's
`--dist loadgroup` should do this, but pytest 9.2 no longer reads the marks of xdist 3.8. xdist ships no types, hence
the ignores.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

SHARED = (
    "commands/doctor|contract/|exported/policies|parity/",
    "calls/conditions|calls/declared_rules|install/another_namespace|install/install|kubectl/",
    "calls/who_may_ask|commands/check|exported/placement|install/self_managed|live/",
    "floor/",
)
"""Prefixes of the files that share a control plane: all but the third have controllers."""

LONGEST = (
    "install/install_page",
    SHARED[0],
    SHARED[1],
    SHARED[2],
    SHARED[3],
    "live",
    "run",
    "notice/notice",
    "install/chaos",
    "oracle/scheduler",
    "rehearse/scenarios",
    "rehearse/fixes",
    "commands/audit",
)
"""The longest scopes and files, which start first, so that no worker ends with one of them."""

_FILE = re.compile(r"tests/(controlplane|rehearse)/((?:\w+/)?)test_(\w+)\.py::")


def scope_of(nodeid: str) -> str:
    """Return the scope of a test; a worker runs all tests of a scope."""
    match = _FILE.match(nodeid)
    if match is None:
        return nodeid
    room, folder, name = match.groups()
    if room == "rehearse":
        return "live" if name in {"live", "nightly"} else nodeid  # their tests share a cluster
    name = folder + name
    own = name in LONGEST  # `install/install_page` also begins as `install/install`
    return next((prefix for prefix in SHARED if not own and re.match(prefix, name)), name)


def rank_of(nodeid: str) -> int:
    """Return the position of the test's scope or file in `LONGEST`."""
    scope = scope_of(nodeid)
    if scope == nodeid and (match := _FILE.match(nodeid)):
        scope = f"rehearse/{match[3]}"
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


class OneWorkerPerScope(LoadScopeScheduling):  # type: ignore[misc]
    """A scheduler that runs the tests of a scope one after another in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if self._pending_of(self.assigned_work[node]) < 2:  # queue one test behind the running one, not two
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)  # xdist may be disabled
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace `--dist load`, the default of `-n`, and keep the order of the tests."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return OneWorkerPerScope(config, log)
