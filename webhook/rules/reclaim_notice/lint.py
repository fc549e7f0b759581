"""Warn about ReclaimNotice policies with misspelled classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.capacity.placement.workload_class import CLASSES
from webhook.rules.spec_warnings import SpecWarning, hint_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload
    from webhook.rules.reclaim_notice.spec import ReclaimNoticeSpec


def lint(spec: ReclaimNoticeSpec, _workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the probable mistakes in a policy."""
    for name in spec.action:
        if hint := hint_for(name, CLASSES):
            yield SpecWarning(("action", name), f"is the action of a new class{hint}")
