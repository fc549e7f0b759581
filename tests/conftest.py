"""Settings for the whole suite."""

from __future__ import annotations

from hypothesis import settings

from tests.controlplane.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - the hook

# The same examples on every machine, no database left behind; no deadline, as no test asserts a timing.
settings.register_profile("spotgate", derandomize=True, deadline=None, database=None)
settings.load_profile("spotgate")
