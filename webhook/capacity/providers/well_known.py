"""Load the labels and taints that Kubernetes and its add-ons define for the Nodes of every provider.

Sources: https://kubernetes.io/docs/reference/labels-annotations-taints/;
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md;
https://cloud.google.com/kubernetes-engine/docs/how-to/prepare-arm-workloads-for-deployment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec


class WellKnown(msgspec.Struct, frozen=True, rename="camel"):
    """Well-known labels and taints: ``well_known.json``.

    Attributes:
        passing_domains: the domains of temporary taints.
        passing_names: the names of temporary taints, in any domain. CSI drivers and network plugins add the last one,
            each in its own domain, until they run on the node.
        platform_taints: the keys of taints that repeat a platform label of the node, by the key of the label. Users add
            the tolerations for other taints, such as ``os=windows``:
            https://kubernetes.io/docs/concepts/windows/user-guide/
        deprecated_keys: deprecated labels, and those with which Karpenter replaces them (``NormalizedLabels``).
    """

    passing_domains: frozenset[str]
    passing_names: frozenset[str]
    platform_taints: dict[str, str]
    deprecated_keys: dict[str, str]


WELL_KNOWN: Final = msgspec.json.decode(Path(__file__).with_name("well_known.json").read_bytes(), type=WellKnown)
