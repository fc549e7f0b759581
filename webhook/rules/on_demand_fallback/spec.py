"""Define the ``spec`` of OnDemandFallback."""

from webhook.capacity.providers.schema import RequireName
from webhook.policy.common import NonEmpty, PolicySpec


class OnDemandFallbackSpec(PolicySpec):
    """Denies GPU spot pools without on-demand fallback."""

    require: RequireName = "gpu"
    """The required fallback of a GPU spot pool."""
    require_by_provider: dict[NonEmpty, RequireName] = {}
    """The same per provider: name of the CapacityProvider -> requirement."""
