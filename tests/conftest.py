"""Settings for the whole suite."""

from __future__ import annotations

import gc
import signal
import sys

from hypothesis import HealthCheck, settings

from tests.browser import browse  # noqa: F401 - a fixture for all
from tests.controlplane.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - the hook
from tests.loading import remember_what_is_shipped
from tests.programs import (  # noqa: F401 - fixtures and a hook
    actionlint,
    binaries,
    gojq,
    helm,
    kustomize,
    pytest_collection_modifyitems,
)

# What jsonschema reads IRIs with takes a second to import, in each worker; no schema here has any.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# The same examples in every run, no database left behind; no deadline, as no test asserts a timing.
settings.register_profile(
    "spotgate",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples in every run, and many: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", settings.get_profile("spotgate"), derandomize=False, max_examples=1000)
settings.load_profile("spotgate")
remember_what_is_shipped()


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, and look for no garbage while tests are collected."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; what is started inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests, which stay until the end, out of every garbage collection."""
    gc.freeze()
    gc.enable()
