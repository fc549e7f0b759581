"""Declare what makes a Pod target spot (`capacity.placement.target`), for the match conditions of the webhooks."""

from __future__ import annotations

from webhook.capacity.placement.target import CAPACITY_LABEL, NODE_POOL_ANNOTATION
from webhook.rules.concern import Concern, Keys


def targeting_concern(*, tolerating: bool) -> Concern:
    """Return what of a Pod may make it target spot."""
    return Concern(
        labels=Keys(frozenset({CAPACITY_LABEL})),
        annotations=Keys(frozenset({NODE_POOL_ANNOTATION})),
        selectors=True,
        all_tolerations=tolerating,
        in_spot_namespaces=True,
    )
