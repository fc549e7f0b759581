"""Warn about SpotSuitability policies with misspelled kinds or template paths, or with findings that can't deny."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.rules.spec_warnings import SpecWarning, hint_for, misspelt_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload
    from webhook.rules.spot_suitability.spec import SpotSuitabilitySpec


def lint(spec: SpotSuitabilitySpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the probable mistakes in a policy."""
    yield from misspelt_kinds("replicated", spec.replicated.patterns, workloads)
    yield from misspelt_kinds("stateful", spec.stateful.patterns, workloads)
    members = {member for workload in workloads for path in workload.paths for member in path.members}
    for number, driver in enumerate(spec.drivers):
        if hint := hint_for(driver.member, members):
            yield SpecWarning(("drivers", number, "member"), f"no known template path has this member{hint}")
