"""Define the ``spec`` of SpotPlacement."""

from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec
from webhook.policy.common import DecidingSpec


class SpotPlacementSpec(DecidingSpec):
    """Finds Pods that target spot, and injects tolerations and a nodeSelector."""

    spot_taints: tuple[TaintPatternSpec, ...] = ()
    """More taints that mean spot, for all policies."""
    selector_labels: tuple[LabelSpec, ...] = ()
    """Preferred node labels to select spot pools by, if they fit."""
