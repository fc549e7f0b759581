"""Fields of Pods that the mutating webhook adds, which Argo CD is to ignore when it compares Git and the cluster.

Source: https://argo-cd.readthedocs.io/en/stable/user-guide/diffing/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.bundle import policy_kinds
from webhook.decision import Outcome

if TYPE_CHECKING:
    from webhook.bundle import Bundle


def ignore_differences(bundle: Bundle) -> list[dict[str, Any]]:
    """Return ``spec.ignoreDifferences`` of an Application; empty if no policy changes Pods.

    Pods alone: the webhook leaves workloads as they are, and Argo CD does not compare the Pods that these make.
    """
    kinds = dict.fromkeys(policy.kind for policy in bundle.policies if policy.enforcement is not Outcome.AUDIT)
    written = dict.fromkeys(path for kind in kinds for path in policy_kinds()[kind].writes)
    return [{"group": "", "kind": "Pod", "jqPathExpressions": list(written)}] if written else []
