"""Define the ``spec`` of GracefulTermination."""

from typing import Annotated, Final, Literal

import msgspec

from webhook.capacity.placement.workload_class import TRAINING_OPERATORS
from webhook.policy.common import ClassName, DecidingSpec, KindGlobs, KindPatterns, Model, Seconds, defaults_next_to
from webhook.policy.errors import quoted_value
from webhook.policy.schema_annotations import Before, Check, EnumDescriptions, Field

MOST_GRACE: Final = 86400
"""One day: the maximum of all fields in seconds of a policy."""


def _check_grace(value: object) -> object:
    if value != "budget" and (type(value) is not int or not 1 <= value <= MOST_GRACE):
        raise ValueError(
            f"{quoted_value(value)} is neither a number of seconds from 1 to {MOST_GRACE} nor the word `budget`"
        )
    return value


GraceSeconds = Annotated[Annotated[int, Field(ge=1, le=MOST_GRACE)] | Literal["budget"], Before(_check_grace)]


class ClassSpec(Model):
    """The shutdown settings of one workload class."""

    grace_seconds: GraceSeconds
    """The grace period, at most the budget; or `budget`."""
    pre_stop_seconds: Seconds
    """The sleep before SIGTERM; 0 for none."""


DEFAULT_CLASSES: Final = defaults_next_to(__file__)("classes", dict[str, ClassSpec])


def _with_defaults(classes: dict[str, ClassSpec]) -> dict[str, ClassSpec]:
    return {**DEFAULT_CLASSES, **classes}


class GracefulTerminationSpec(DecidingSpec):
    """Injects preStop sleeps, and fits grace periods to the provider's budget and the workload's class."""

    untuned: Annotated[
        Literal["fit-budget", "raise-only"],
        EnumDescriptions(
            **{
                "fit-budget": "the grace period of the class, at most the budget",
                "raise-only": "the same, but never less than 30 s",
            }
        ),
    ] = "fit-budget"
    """The grace period of Pods with the default of 30 s."""
    over_budget: Annotated[
        Literal["warn", "clamp", "deny"],
        EnumDescriptions(
            warn="the Pod is admitted with a warning",
            clamp="the grace period is lowered to the budget, unless a lifecycle hook sleeps that long",
            deny="the Pod is denied",
        ),
    ] = "warn"
    """The action for a grace period above the budget."""
    method: Annotated[
        Literal["auto", "sleep", "exec"],
        EnumDescriptions(
            auto="`sleep` if the API server and all kubelets support it, otherwise `exec`",
            sleep="the sleep action of Kubernetes (1.30 or later)",
            exec="the `sleep` command of a shell",
        ),
    ] = "auto"
    """How a preStop hook sleeps. Windows Pods never get `exec`."""
    classes: Annotated[dict[ClassName, ClassSpec], Check(_with_defaults)] = msgspec.field(
        default_factory=lambda: dict(DEFAULT_CLASSES)
    )
    """Workload classes, in addition to the default ones."""
    training_operators: KindPatterns = KindGlobs(TRAINING_OPERATORS.patterns)
    """Owners, as `Kind.group` (globs), whose Pods with GPUs are `checkpointing`, even if they restart."""
