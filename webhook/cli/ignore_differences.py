"""What Argo CD is not to take for a difference between Git and the cluster: what the mutating webhook adds to Pods.

Source: https://argo-cd.readthedocs.io/en/stable/user-guide/diffing/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from webhook.bundle import Bundle

_WRITTEN: Final = {
    "SpotPlacement": (".spec.affinity", ".spec.nodeSelector", ".spec.tolerations"),
    "GracefulTermination": (
        # Where only preStop was added to it, all of it goes: what would be left of it is not in Git.
        '.spec.containers[] | select((.lifecycle // {} | keys) == ["preStop"]) | .lifecycle',
        ".spec.containers[].lifecycle.preStop",
        ".spec.terminationGracePeriodSeconds",
    ),
}
"""By policy kind, the fields of a Pod that it may write, as path expressions of jq."""


def ignore_differences(bundle: Bundle) -> list[dict[str, Any]]:
    """``spec.ignoreDifferences`` of an Application; nothing where no policy changes Pods.

    Pods alone: the webhook leaves workloads as they are, and Argo CD does not compare the Pods that these make.
    """
    kinds = {
        policy.kind
        for policy in bundle.documents
        if policy.is_policy and policy.spec.enforcement in {Enforcement.DENY, Enforcement.WARN}
    }
    written = [path for kind, paths in _WRITTEN.items() if kind in kinds for path in paths]
    return [{"group": "", "kind": "Pod", "jqPathExpressions": written}] if written else []
