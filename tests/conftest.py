"""Settings for the whole suite."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest
import yaml
from hypothesis import HealthCheck, settings

from tests.browser import browse  # noqa: F401 - a fixture for all
from tests.controlplane.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - the hook
from tests.loading import cache_shipped_documents
from tests.programs import (  # noqa: F401 - fixtures and hooks
    actionlint,
    binaries,
    gojq,
    helm,
    kustomize,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
    spotgate,
)

# jsonschema's parser of IRIs takes a second to import in each worker, and no schema here uses IRIs.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# `yaml.safe_load` in C, which takes a tenth of the time.
vars(yaml)["SafeLoader"] = yaml.CSafeLoader

# The same examples in every run, without a database; no deadline, because no test asserts a timing.
settings.register_profile(
    "spotgate",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
# Many new examples in every run: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", settings.get_profile("spotgate"), derandomize=False, max_examples=1000)
settings.load_profile("spotgate")
cache_shipped_documents()


def pytest_configure() -> None:
    """Let tests interrupt the programs that they start, and disable garbage collection during test collection."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; child processes inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # xdist may be disabled
def pytest_xdist_auto_num_workers() -> int:
    """Use three workers on two processors, because a test waits for a third of its time."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests, which stay until the end, from garbage collection, and collect rarely."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
