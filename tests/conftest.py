"""Settings for the whole suite."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.browser import browse  # noqa: F401 - a fixture for all
from tests.controlplane.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - the hook
from tests.programs import gojq, helm, kustomize, pytest_collection_modifyitems  # noqa: F401 - fixtures and a hook

if TYPE_CHECKING:
    import pytest

# The same examples on every machine, no database left behind; no deadline, as no test asserts a timing.
settings.register_profile(
    "spotgate", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("spotgate")
# Else constants of the modules loaded so far are among the examples, and with xdist these are others in every run.
providers._get_local_constants = Constants


def pytest_configure(config: pytest.Config) -> None:
    """Let the whole suite keep validated policies in one place, and nowhere else. Workers inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; what is started inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="spotgate-policies-")
        os.environ["SPOTGATE_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
