"""Warn about EvictionStrategy policies with misspelled kinds, or with findings that can't deny."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.rules.spec_warnings import SpecWarning, misspelt_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload
    from webhook.rules.eviction_strategy.spec import EvictionStrategySpec


def lint(spec: EvictionStrategySpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the probable mistakes in a policy."""
    yield from misspelt_kinds("distributed", spec.distributed.patterns, workloads)
    yield from misspelt_kinds("replicated", spec.replicated.patterns, workloads)
    yield from misspelt_kinds("stateful", spec.stateful.patterns, workloads)
