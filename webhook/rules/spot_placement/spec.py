"""Define the ``spec`` of SpotPlacement."""

from pydantic import Field

from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec
from webhook.policy.common import DecidingSpec


class SpotPlacementSpec(DecidingSpec):
    """Finds Pods that target spot, and injects tolerations and a nodeSelector."""

    spot_taints: tuple[TaintPatternSpec, ...] = Field(
        default=(),
        description="Taints of this cluster that mean nothing but spot, beside those that its provider puts there and "
        "those with the word spot, preemptible, interruptible or evictable. It holds for all policies: what a taint "
        "means does not depend on who asks.",
    )
    selector_labels: tuple[LabelSpec, ...] = Field(
        default=(),
        description="Node labels to select spot pools by, the preferred one first. One is taken where all pools that "
        "the Pod can land on give it to their nodes and no other pool does.",
    )
