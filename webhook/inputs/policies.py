"""Load the policies and the cluster's state that flags name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.terminal import complain
from webhook.capacity.placement.taints import says_spot
from webhook.capacity.providers.pool import Taint
from webhook.engine.bundle import SHIPPED, Bundle, load_bundle
from webhook.engine.lint import warnings
from webhook.inputs.state import FileState
from webhook.policy.errors import did_you_mean
from webhook.rules.context import NOTHING_KNOWN, utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.capacity.view import ClusterView

SHIPPED_WORD: Final = "shipped"


def policies_path(text: str) -> Path:
    """Return the path of policies. ``shipped`` names spotgate's policies."""
    return SHIPPED if text == SHIPPED_WORD else Path(text)


def read_policies(paths: Sequence[Path], *, own_namespace: str = "", cluster: str = "") -> Bundle:
    """Load the policies in these files and folders, or the shipped ones. Print warnings about ineffective policies.

    Raise PolicyErrors with all mistakes if a policy is invalid.
    """
    bundle = load_bundle(paths, own_namespace=own_namespace, cluster=cluster)
    for warning in warnings(bundle, utc_now().date()):
        complain(str(warning))
    return bundle


def warn_of_spot_labels(bundle: Bundle, view: ClusterView) -> None:
    """Warn of each new provider without spot Nodes, if Nodes have similar values of its spot labels."""
    for document in (own for own in bundle.own if own.kind == "CapacityProvider" and own not in bundle.replacing):
        values = {label.key: label.value for label in document.spec.spot_node_labels}
        nodes = [node for node in view.nodes.values() if node.provider == document.name]
        others = sorted(
            {
                f"{key}={value}"
                for node in nodes
                for key, value in node.labels
                if key in values and (says_spot(Taint("", value)) or did_you_mean(value, [values[key]]))
            }
        )
        if others and not any(node.spot for node in nodes):
            text = f"no Node has one, and some have {', '.join(others[:3])}; if these are spot, correct the value"
            complain(str(document.problem(("spec", "spotNodeLabels"), text, warning=True)))


def read_state(paths: Sequence[Path], bundle: Bundle) -> ClusterView:
    """Read the cluster that manifests describe. Raise StateErrors with all mistakes if one can't be read."""
    return FileState(paths, bundle.providers).view() if paths else NOTHING_KNOWN
