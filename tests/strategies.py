"""Hypothesis strategies for Pods as JSON: odd in every way that rules care about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = dict[str, Any]

seconds = st.one_of(st.sampled_from((0, 1, 5, 15, 30, 60, 120, 270, 300, 600)), st.integers(0, 1000))


def sometimes(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """An object with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


def hooks() -> st.SearchStrategy[JSON]:
    """A lifecycle handler."""
    return st.one_of(
        st.builds(lambda n: {"sleep": {"seconds": n}}, seconds),
        st.builds(lambda n: {"exec": {"command": ["/bin/sh", "-c", f"sleep {n}"]}}, seconds),
        st.just({"exec": {"command": ["/app/drain"]}}),
        st.just({"httpGet": {"path": "/drain", "port": 80}}),
    )


def container(name: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """A container of that name."""
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
    """A list of containers, named apart."""
    return st.integers(least, most).flatmap(
        lambda n: st.tuples(*(container(f"{prefix}{i}", **members) for i in range(n))).map(list)
    )


def tolerations() -> st.SearchStrategy[JSON]:
    """A toleration that the API server accepts."""
    key = st.sampled_from(("is_gpu", "spot", "nvidia.com/gpu", "example.com/team"))
    effect = st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    return st.one_of(
        st.builds(lambda k, e: {"key": k, "operator": "Exists", "effect": e}, key, effect),
        st.builds(lambda k, v, e: {"key": k, "value": v, "effect": e}, key, st.sampled_from(("", "true")), effect),
        st.just({"operator": "Exists"}),
    )


def owners() -> st.SearchStrategy[list[JSON]]:
    """``ownerReferences`` with one controller, or none."""
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
            lambda each: [{"kind": each[0], "apiVersion": each[1], "name": "owner", "controller": True}]
        ),
    )


def pods(
    *, labels: Mapping[str, st.SearchStrategy[str]], annotations: Mapping[str, st.SearchStrategy[str]]
) -> st.SearchStrategy[JSON]:
    """A Pod with any of these labels and annotations."""
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
            schedulerName=st.sampled_from(("default-scheduler", "tenant-slurm-slurm-scheduler")),
        ),
    )
    metadata = st.builds(
        lambda rest: {"name": "pod", "namespace": "team-a", **rest},
        sometimes(
            labels=sometimes(**labels),
            annotations=sometimes(**annotations),
            ownerReferences=owners(),
        ),
    )
    return st.builds(
        lambda meta, rest: {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": rest}, metadata, spec
    )
