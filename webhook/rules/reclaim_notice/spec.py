"""Define the ``spec`` of ReclaimNotice."""

from typing import Annotated, Literal

from webhook.policy.common import ClassName, DecidingSpec
from webhook.policy.schema_annotations import EnumDescriptions, Field

ReclaimAction = Annotated[
    Literal["inform", "evict", "none"],
    EnumDescriptions(
        inform="the Pod finds its deadline in the file `/var/run/spotgate/reclaim-at`",
        evict="the same, and `spotgate controller` stops the Pod at the notice, with the time that is left",
        none="nothing happens before the provider drains the node",
    ),
]


class ReclaimNoticeSpec(DecidingSpec):
    """Gives Pods that target spot the deadline of their node, in a file, or stops them at the notice."""

    action: Annotated[dict[ClassName, ReclaimAction], Field(examples=[{"checkpointing": "inform"}])] = {}
    """The action by workload class. Default: `none`. The label `spotgate.dev/on-reclaim` has precedence."""
