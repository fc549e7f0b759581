"""Name the parts of a reclaim notice that the webhook, the controller, and applications share."""

from __future__ import annotations

from typing import Final

ON_RECLAIM: Final = "spotgate.dev/on-reclaim"
"""The label with the action. After admission, each Pod whose action is `INFORM` or `EVICT` has it."""
RECLAIM_AT: Final = "spotgate.dev/reclaim-at"
"""The annotation with the time of the removal, in RFC 3339 and UTC: on Nodes for any handler, on Pods by spotgate."""

INFORM: Final = "inform"
EVICT: Final = "evict"
NONE: Final = "none"
ACTIONS: Final = (INFORM, EVICT, NONE)
"""The values of `ON_RECLAIM`, on Pods and on namespaces."""

DIRECTORY: Final = "/var/run/spotgate"
FILE: Final = "reclaim-at"
"""The file in `DIRECTORY` with the value of `RECLAIM_AT`; empty until a notice."""
VOLUME: Final = "spotgate-reclaim-notice"
"""The downward API volume that is mounted at `DIRECTORY`."""
