"""What makes a Pod one that targets spot, as `capacity.placement.target` finds it, for the API server to look at."""

from __future__ import annotations

from webhook.capacity.placement.target import CAPACITY_LABEL, NODE_POOL_ANNOTATION
from webhook.rules.concern import Concern, Keys


def targeting_concern(*, tolerating: bool) -> Concern:
    """Return what of a Pod may make it target spot.

    Args:
        tolerating: tolerating a spot taint by name is targeting.
    """
    return Concern(
        labels=Keys(frozenset({CAPACITY_LABEL})),
        annotations=Keys(frozenset({NODE_POOL_ANNOTATION})),
        selectors=True,
        all_tolerations=tolerating,
        in_spot_namespaces=True,
    )
