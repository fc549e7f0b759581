"""Define the ``spec`` of SpotPlacement."""

from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec
from webhook.policy.common import DecidingSpec


class SpotPlacementSpec(DecidingSpec):
    """Finds Pods that target spot, and injects tolerations and a nodeSelector."""

    spot_taints: tuple[TaintPatternSpec, ...] = ()
    """Taints of this cluster that mean only spot, in addition to the provider's taints and those with the word spot,
    preemptible, interruptible, or evictable. They apply to all policies."""
    selector_labels: tuple[LabelSpec, ...] = ()
    """Node labels to select spot pools by, the preferred one first. One is taken where all pools that the Pod can land
    on give it to their nodes and no other pool does."""
