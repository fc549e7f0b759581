"""Define the ``spec`` of SpotPlacement."""

from __future__ import annotations

from pydantic import Field

from webhook.capacity.providers.schema import LabelSpec  # noqa: TC001 - pydantic reads the annotation
from webhook.policy.common import Flag, PolicySpec


class SpotPlacementSpec(PolicySpec):
    """Finds Pods that target spot, and injects tolerations and a nodeSelector."""

    provider: str = Field(
        default="", description="The CapacityProvider of this cluster, where the cluster does not show it."
    )
    tolerating_is_targeting: Flag = Field(
        default=False, description="A Pod that tolerates a provider's spot taint by name targets spot."
    )
    selector_labels: tuple[LabelSpec, ...] = Field(
        default=(),
        description="Node labels to select spot pools by, the preferred one first. One is taken where all pools that "
        "the Pod can land on give it to their nodes and no other pool does.",
    )
