"""Settings for the whole suite."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.browser import browse  # noqa: F401 - a fixture for all
from tests.controlplane.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - the hook
from tests.programs import gojq, helm, kustomize, pytest_collection_modifyitems  # noqa: F401 - fixtures and a hook

# The same examples on every machine, no database left behind; no deadline, as no test asserts a timing.
settings.register_profile(
    "spotgate", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("spotgate")
# Else constants of the modules loaded so far are among the examples, and with xdist these are others in every run.
providers._get_local_constants = Constants


def pytest_configure() -> None:
    """Let programs that tests start be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; what is started inherits it
        signal.signal(signal.SIGINT, signal.default_int_handler)
