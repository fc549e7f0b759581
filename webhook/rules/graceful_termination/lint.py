"""Warn about GracefulTermination policies with misspelled kinds or classes."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from webhook.rules.graceful_termination.spec import DEFAULT_CLASSES, GracefulTerminationSpec
from webhook.rules.spec_warnings import SpecWarning, hint_for, misspelt_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload


def lint(spec: GracefulTerminationSpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the probable mistakes in a policy."""
    yield from misspelt_kinds("trainingOperators", spec.training_operators.patterns, workloads)
    for name in spec.classes:
        if hint := hint_for(name.rstrip(string.digits), DEFAULT_CLASSES):
            yield SpecWarning(("classes", name), f"adds a new class{hint}")
