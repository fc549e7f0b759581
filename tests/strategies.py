"""Hypothesis strategies for Pods, workloads, and node pools as JSON, with unusual values wherever rules read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests import builders

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = dict[str, Any]

seconds = st.one_of(st.sampled_from((0, 1, 5, 15, 30, 60, 120, 270, 300, 600)), st.integers(0, 1000))


def sometimes(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """Build objects with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


def hooks() -> st.SearchStrategy[JSON]:
    """Build lifecycle handlers."""
    return st.one_of(
        st.builds(lambda n: {"sleep": {"seconds": n}}, seconds),
        st.builds(lambda n: {"exec": {"command": ["/bin/sh", "-c", f"sleep {n}"]}}, seconds),
        st.just({"exec": {"command": ["/app/drain"]}}),
        st.just({"httpGet": {"path": "/drain", "port": 80}}),
    )


def container(name: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """Build containers with this name."""
    quantities = st.dictionaries(
        st.sampled_from(("cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb")),
        st.sampled_from(("0", "1", "8", 1)),
    )
    return st.builds(
        lambda rest: {"name": name, "image": "example.com/app", **rest},
        sometimes(
            ports=st.lists(st.just({"containerPort": 8080}), max_size=1),
            lifecycle=sometimes(preStop=hooks(), postStart=hooks()),
            resources=sometimes(limits=quantities, requests=quantities),
            **members,
        ),
    )


def containers(prefix: str, least: int, most: int, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[list[JSON]]:
    """Build lists of containers with different names."""
    strategies = [container(f"{prefix}{number}", **members) for number in range(most)]
    return st.one_of(*(st.tuples(*strategies[:count]).map(list) for count in range(least, most + 1)))


def tolerations() -> st.SearchStrategy[JSON]:
    """Build tolerations that the API server accepts."""
    key = st.sampled_from(("is_gpu", "spot", "nvidia.com/gpu", "example.com/team"))
    effect = st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    return st.one_of(
        st.builds(lambda k, e: {"key": k, "operator": "Exists", "effect": e}, key, effect),
        st.builds(lambda k, v, e: {"key": k, "value": v, "effect": e}, key, st.sampled_from(("", "true")), effect),
        st.just({"operator": "Exists"}),
    )


def owners() -> st.SearchStrategy[list[JSON]]:
    """Build ``ownerReferences`` with one controller or none."""
    kinds = (
        ("ReplicaSet", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("Job", "batch/v1"),
        ("Job", "batch.volcano.sh/v1alpha1"),
        ("PyTorchJob", "kubeflow.org/v1"),
        ("RayCluster", "ray.io/v1"),
    )
    return st.one_of(
        st.just([]),
        st.sampled_from(kinds).map(
            lambda value: [{"kind": value[0], "apiVersion": value[1], "name": "owner", "controller": True}]
        ),
    )


def pods(
    *, labels: Mapping[str, st.SearchStrategy[str]], annotations: Mapping[str, st.SearchStrategy[str]]
) -> st.SearchStrategy[JSON]:
    """Build Pods with any of these labels and annotations."""
    spec = st.builds(
        lambda ordinary, rest: {"containers": ordinary, **rest},
        containers("app", 1, 3),
        sometimes(
            initContainers=containers("init", 0, 2, restartPolicy=st.just("Always")),
            terminationGracePeriodSeconds=st.one_of(seconds, st.just(30), st.integers(-5, 5)),
            tolerations=st.lists(tolerations(), max_size=2),
            nodeSelector=st.dictionaries(
                st.sampled_from(("kubernetes.io/os", "example.com/zone")),
                st.sampled_from(("linux", "windows")),
                max_size=2,
            ),
            os=st.sampled_from(({"name": "linux"}, {"name": "windows"})),
            restartPolicy=st.sampled_from(("Always", "OnFailure", "Never")),
            schedulerName=st.sampled_from(("default-scheduler", "tenant-slurm-slurm-scheduler")),
        ),
    )
    metadata = st.builds(
        lambda rest: {"name": "pod", "namespace": "team-a", **rest},
        sometimes(labels=sometimes(**labels), annotations=sometimes(**annotations), ownerReferences=owners()),
    )
    return st.builds(
        lambda meta, rest: {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": rest}, metadata, spec
    )


POOL_LABEL = "compute.coreweave.com/node-pool"
POOL_NAMES = ("p0", "p1", "p2", "p3")
FORBIDDEN = ("node.coreweave.cloud/evict", "node.coreweave.cloud/reserved", "sunk.coreweave.com/lock")

_own_keys = st.sampled_from(("example.com/tier", "example.com/team"))
_own_values = st.sampled_from(("spot", "paid"))


def node_pool_named(name: str) -> st.SearchStrategy[JSON]:
    """Build manifests of CKS node pools with this name."""
    taint = st.one_of(
        st.sampled_from(
            (
                {"key": "spot", "value": "true", "effect": "NoSchedule"},
                {"key": "spot", "effect": "NoExecute"},
                {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"},
                {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                {"key": "example.com/team", "value": "a", "effect": "NoSchedule"},
            )
        ),
        st.builds(
            lambda key, effect: {"key": key, "value": "x", "effect": effect},
            st.sampled_from(FORBIDDEN),
            st.sampled_from(("NoExecute", "PreferNoSchedule")),
        ),
    )
    spec = st.fixed_dictionaries(
        {"instanceType": st.sampled_from(("gd-8xh100ib-i128", "turin-gp")), "targetNodes": st.integers(0, 2)},
        optional={
            "computeClass": st.sampled_from(("spot", "Spot", "spot", "default")),
            "autoscaling": st.booleans(),
            "maxNodes": st.integers(0, 2),
            "nodeLabels": st.dictionaries(_own_keys, _own_values, max_size=2),
            "nodeTaints": st.lists(taint, max_size=2, unique_by=str),
        },
    )
    return st.builds(lambda spec: builders.node_pool(name) | {"spec": spec}, spec)


def node_pools(least: int = 0) -> st.SearchStrategy[list[JSON]]:
    """Build lists of a cluster's node pools."""
    pools = [node_pool_named(name) for name in POOL_NAMES]
    return st.one_of(*(st.tuples(*pools[:count]).map(list) for count in range(least, len(pools) + 1)))


def placements() -> st.SearchStrategy[JSON]:
    """Build ``nodeSelector`` and node affinity with node pools' names and labels, and with unknown labels."""
    key = st.sampled_from((POOL_LABEL, "example.com/tier", "kubernetes.io/arch", "example.com/unheard-of"))
    value = st.sampled_from((*POOL_NAMES, "spot", "paid", "amd64"))
    requirement = st.one_of(
        st.builds(
            lambda k, o, v: {"key": k, "operator": o, "values": v},
            key,
            st.sampled_from(("In", "NotIn")),
            st.lists(value, min_size=1, max_size=3, unique=True),
        ),
        st.builds(lambda k, o: {"key": k, "operator": o}, key, st.sampled_from(("Exists", "DoesNotExist"))),
    )
    term = st.lists(requirement, min_size=1, max_size=2).map(lambda value: {"matchExpressions": value})
    preferred = st.builds(lambda term: {"weight": 1, "preference": term}, term)
    affinity = st.fixed_dictionaries(
        {},
        optional={
            "nodeAffinity": st.fixed_dictionaries(
                {},
                optional={
                    "requiredDuringSchedulingIgnoredDuringExecution": st.lists(term, min_size=1, max_size=2).map(
                        lambda terms: {"nodeSelectorTerms": terms}
                    ),
                    "preferredDuringSchedulingIgnoredDuringExecution": st.lists(preferred, max_size=2),
                },
            ),
            "podAntiAffinity": st.just({}),
        },
    )
    return sometimes(nodeSelector=st.dictionaries(key, value, max_size=1), affinity=affinity)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def corrupted(draw: st.DrawFn, values: st.SearchStrategy[JSON]) -> JSON:
    """Draw a value, and replace one place of it with any JSON."""
    value = json.loads(json.dumps(draw(values)))
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if not place[key] or not isinstance(place[key], dict | list) or draw(st.booleans()):
            place[key] = draw(json_values)
            return value  # type: ignore[no-any-return]
        place = place[key]
