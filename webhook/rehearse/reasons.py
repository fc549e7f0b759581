"""Why a reclaim harms a workload, as values. Only this module renders them."""

from __future__ import annotations

from enum import Enum

import msgspec


class Cause(Enum):
    """The sort of a reason. The value is its text."""

    OTHER = "{about}"
    NOT_SCHEDULED = "not scheduled"
    NO_SCHEDULER = "the rehearsal runs no scheduler named {about}"
    NODE_LOST = "its spec.nodeName is {about}, which is lost"
    GANG_WAITS = "its gang needs all of its Pods to run"
    BARE = "nothing recreates this Pod"
    ORDERED = "OrderedReady: the StatefulSet creates its next Pod only when all existing ones are ready"
    JOB_FAILED = "the Job has failed: {about}"
    INDEXES_FAILED = "these indexes of the Job have failed: {about}"
    UNEVICTED = "{about} keeps the drain from evicting it"
    TOLERATES = "it tolerates the taint {about}, so the drain doesn't evict it"
    LATER = "the drain evicts it only after the Pods of earlier groups are gone"
    LEFT = "the drain doesn't evict it"
    BOUND_LATE = "it was bound to the node after the drain listed the Pods there"
    BUDGET_BLOCKS = "PodDisruptionBudget {budget} allows no disruption"
    BUDGET_UNCOUNTABLE = "PodDisruptionBudget {budget} can't be counted: {about}"


class HarmReason(msgspec.Struct, frozen=True):
    """A reason why Pods of a workload don't run, or were killed early.

    Attributes:
        about: what the cause is about: a name, or the message of a Kubernetes component.
        budget: the name of the PodDisruptionBudget, if it is the cause.
    """

    cause: Cause
    about: str = ""
    budget: str = ""

    def __str__(self) -> str:
        return self.cause.value.format(about=self.about, budget=self.budget)
