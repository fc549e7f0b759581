"""Random clusters: what the Nodes of each pool look like, and the part of it that spotgate sees.

A `Machine` is a potential Node. Each pool has one, whether or not it has Nodes now. A Karpenter NodePool of both capacity
types, or of two architectures, has one of each. spotgate sees all NodePools of CKS and Karpenter, and the Nodes that are
up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.placement_oracle.providers import (
    ACCELERATOR_TAINTS,
    ACCELERATORS,
    COMMON_TAINT,
    DEDICATED_TAINTS,
    FORBIDDEN_TAINTS,
    GPU,
    GPU_CLASS,
    INTERRUPTABLE,
    MEMORY,
    MIG,
    NETWORK_CLASS,
    OBJECTS,
    PASSING_TAINTS,
    SPOT_TAINTS,
    TIER,
    TYPES,
    ZONE,
    automatic_taints,
    cks_pool,
    karpenter_pool,
    labels_of,
)

if TYPE_CHECKING:
    from random import Random

JSON = dict[str, Any]

FLAVORS: Final = ("cks", "gke", "eks", "aks", "karpenter", "eks+karpenter")
_KINDS: Final = ("cpu", "cpu", "cpu", "gpu", "gpu", "arm", "windows", "tpu", "neuron")
"""The kinds of machines, by how often a pool has them, if the provider has them."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A Node as it is or would be: the truth, of which spotgate sees a part.

    Attributes:
        node: its manifest.
        accelerator: the resource of its accelerator, or empty.
        devices: the device classes of its devices.
        up: the pool has Nodes like this one now.
        shown: an object or a Node shows the pool.
        hidden: its taints that neither an object nor a Node shows, and that the provider doesn't set.
    """

    pool: str
    provider: str
    spot: bool
    node: JSON
    accelerator: str
    devices: frozenset[str]
    up: bool
    shown: bool
    hidden: list[JSON]

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.node["metadata"]["labels"]
        return labels

    @property
    def taints(self) -> list[JSON]:
        taints: list[JSON] = self.node["spec"]["taints"]
        return taints


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A node pool: its potential Nodes, and the objects that show it."""

    name: str
    machines: tuple[Machine, ...]
    state: tuple[JSON, ...]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A random cluster."""

    flavor: str
    pools: tuple[Pool, ...]

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The potential Nodes."""
        return tuple(machine for pool in self.pools for machine in pool.machines)

    @property
    def state(self) -> list[JSON]:
        """The objects that spotgate sees."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
        claims = [_claim_template("gpu", GPU_CLASS), _claim_template("network", NETWORK_CLASS)]
        return [namespace, *claims, *(thing for pool in self.pools for thing in pool.state)]


def _claim_template(name: str, device_class: str) -> JSON:
    requests = [{"name": "device", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def maybe(random: Random, probability: float) -> bool:
    """Return whether an event of this probability happens; hypothesis shrinks it to False."""
    return random.random() >= 1 - probability


def cluster_of(random: Random, flavor: str) -> Cluster:
    """Return a random cluster with an on-demand pool that has Nodes, and three to six other pools."""
    providers = flavor.split("+")
    interruptable = maybe(random, 0.5)
    common = [COMMON_TAINT] if maybe(random, 0.15) else []
    pools = [_built(random, providers[0], "system", ("cpu",), (False,), [], [], up=True, marked=False)]
    pools += [
        _pool(random, random.choice(providers), f"p{number}", common, interruptable=interruptable)
        for number in range(random.randint(3, 6))
    ]
    return Cluster(flavor=flavor, pools=tuple(pools))


def _pool(random: Random, provider: str, name: str, common: list[JSON], *, interruptable: bool) -> Pool:
    kind = random.choice([kind for kind in _KINDS if kind in TYPES[provider]])
    spot = maybe(random, 0.75)
    capacities: tuple[bool, ...] = (spot,)
    kinds: tuple[str, ...] = (kind,)
    if provider == "karpenter":
        capacities = (True, False) if maybe(random, 0.15) else capacities
        kinds = ("cpu", "arm") if kind == "cpu" and maybe(random, 0.1) else kinds
    own = _own_taints(random, provider, kind, spot=True in capacities) + (common if capacities == (True,) else [])
    extra = random.choice((SPOT_TAINTS[0], DEDICATED_TAINTS[0]))
    undeclared = [extra] if provider in OBJECTS and maybe(random, 0.08) else []
    marked = interruptable if provider == "cks" else maybe(random, 0.3)
    up = maybe(random, 0.5)
    return _built(random, provider, name, kinds, capacities, own, undeclared, up=up, marked=marked)


def _own_taints(random: Random, provider: str, kind: str, *, spot: bool) -> list[JSON]:
    """Return the taints that the team gives a pool."""
    taints = []
    if spot and maybe(random, 0.3):
        taints.append(random.choice(SPOT_TAINTS))
    if maybe(random, 0.15):
        taints.append(random.choice(DEDICATED_TAINTS))
    if kind in ACCELERATORS and provider != "gke" and maybe(random, 0.5):
        taints.append(ACCELERATOR_TAINTS[provider][kind])
    if provider == "cks" and maybe(random, 0.08):
        taints.append(random.choice(FORBIDDEN_TAINTS))
    return taints


def _built(
    random: Random,
    provider: str,
    name: str,
    kinds: tuple[str, ...],
    capacities: tuple[bool, ...],
    own: list[JSON],
    undeclared: list[JSON],
    *,
    up: bool,
    marked: bool,
) -> Pool:
    """Return a pool with a machine of each kind and capacity type, of which at most the first is up."""
    labels = {TIER: random.choice("ab")} if maybe(random, 0.5) else {}
    zone, cpus = {ZONE: f"zone-{random.choice('abc')}"}, random.choice(("16", "16", "4"))
    sliced = maybe(random, 0.2)
    declared = provider in OBJECTS
    machines: list[Machine] = []
    for spot in capacities:
        for kind in kinds:
            node = f"{name}-{len(machines)}"
            provided = labels_of(provider, name, kind, spot=spot, cpus=cpus)
            automatic = automatic_taints(provider, kind, spot=spot, marked=marked)
            taints = {(t["key"], t["effect"]): t for t in (*undeclared, *automatic, *own)}
            allocatable = {"cpu": cpus, "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
            if kind == "gpu":
                allocatable |= {MIG: "7"} if sliced else {GPU: "8", MEMORY: "80000"}
            elif kind in ACCELERATORS:
                allocatable[ACCELERATORS[kind]] = "4"
            manifest = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node, **provided, **zone, **labels}},
                "spec": {"taints": list(taints.values())},
                "status": {"allocatable": allocatable},
            }
            machines.append(
                Machine(
                    pool=name,
                    provider=provider,
                    spot=spot,
                    node=manifest,
                    accelerator=ACCELERATORS.get(kind, ""),
                    devices=frozenset({NETWORK_CLASS, GPU_CLASS} if kind == "gpu" else {NETWORK_CLASS}),
                    up=up and not machines,
                    shown=up or declared,
                    hidden=[] if up else undeclared if declared else own,
                )
            )
    state = [_as_seen(random, machines[0].node)] if up else []
    if provider == "cks":
        state.append(cks_pool(name, kinds[0], spot=capacities[0], up=up, taints=own, labels=labels))
    if provider == "karpenter":
        types = ["spot" if spot else "on-demand" for spot in capacities]
        state.append(karpenter_pool(name, kinds, types, taints=own, labels=labels))
    return Pool(name=name, machines=tuple(machines), state=tuple(state))


def _as_seen(random: Random, node: JSON) -> JSON:
    """Return the Node as it is now: it may have a temporary taint, and lack the one that CKS sets intermittently."""
    taints = [*node["spec"]["taints"], *([random.choice(PASSING_TAINTS)] if maybe(random, 0.1) else [])]
    if maybe(random, 0.3):
        taints = [taint for taint in taints if taint != INTERRUPTABLE]
    return {**node, "spec": {"taints": taints}}
