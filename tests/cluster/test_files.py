"""The cluster view from manifests: pools, namespaces, providers, kubelets, and unknowns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.capacity.providers.pool import CapacityType
from webhook.engine.bundle import load_bundle
from webhook.inputs.objects import read_manifests
from webhook.inputs.state import FileState, StateErrors, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterState, ClusterView

PROVIDER = """\
apiVersion: spotgate.dev/v1
kind: CapacityProvider
metadata: {name: other}
spec:
  title: Other
  poolNameLabel: other.io/pool
  spotNodeLabels: [{key: other.io/spot, value: "true"}]
  interruption: {cordonSeconds: 0, drainSeconds: 0, removalSeconds: 30}
  gracePeriod: {budgetSeconds: 15, safetyMarginSeconds: 0}
  nodePools:
    - group: other.io
      versions: [v1]
      kind: Pool
      resource: pools
      namespaced: true
      capacity: {from: spec.spot, values: {"true": spot}, default: on-demand}
      size: {desired: spec.size}
---
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec: {domains: [example.com]}
"""
NODE_POOL = (
    "apiVersion: compute.coreweave.com/v1alpha1\nkind: NodePool\nmetadata: {name: a}\nspec: {computeClass: spot}\n"
)
POOL = "apiVersion: other.io/v1\nkind: Pool\nmetadata: {name: b, namespace: team-a}\nspec: {size: 3}\n"


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Provider]:
    file = tmp_path_factory.mktemp("policies") / "provider.yaml"
    file.write_text(PROVIDER)
    return load_bundle([file]).providers


def node(name: str, labels: str = "{}", version: str = "v1.34.1") -> str:
    return (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {labels}}}\n"
        f"status: {{nodeInfo: {{kubeletVersion: {version}}}}}\n"
    )


def load(folder: Path, providers: Mapping[str, Provider], *documents: str, complete: bool = True) -> ClusterView:
    (folder / "state.yaml").write_text("---\n".join(documents))
    manifests = read_manifests([folder / "state.yaml"])
    assert manifests.problems == []
    return view_of(manifests.objects, providers, complete=complete)


def test_pools_of_every_reader_are_parsed(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    view = load(tmp_path, providers, NODE_POOL, POOL)
    assert view.pools is not None
    assert [(pool.provider, str(pool), pool.capacity) for pool in view.pools] == [
        ("cks", "NodePool a", CapacityType.SPOT),
        ("other", "Pool team-a/b", CapacityType.ON_DEMAND),
    ]
    assert view.providers == {"cks", "other"}


def test_a_pool_of_any_version_is_read_as_on_the_server(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    view = load(tmp_path, providers, NODE_POOL.replace("v1alpha1", "v1"))
    assert view.pools is not None
    assert [pool.name for pool in view.pools] == ["a"]


def test_the_same_kind_in_another_group_is_not_a_pool(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    assert load(tmp_path, providers, NODE_POOL.replace("compute.coreweave.com", "example.org")).pools == ()


def test_the_later_of_two_pools_with_one_identity_wins(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    view = load(tmp_path, providers, NODE_POOL, NODE_POOL.replace("computeClass: spot", "computeClass: default"))
    assert view.pools is not None
    assert [pool.capacity for pool in view.pools] == [CapacityType.ON_DEMAND]


@pytest.mark.parametrize(
    ("documents", "complete", "known"),
    [((), True, True), ((), False, False), ((POOL,), False, True), ((node("node-1"),), False, False)],
)
def test_pools_are_known_if_the_files_are_complete_or_contain_one(
    tmp_path: Path, providers: Mapping[str, Provider], documents: tuple[str, ...], *, complete: bool, known: bool
) -> None:
    view = load(tmp_path, providers, *documents, complete=complete)
    assert (view.pools is not None) == known
    assert "--state" in view.remedy


def test_namespaces_have_their_labels_and_the_name_label(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    view = load(
        tmp_path, providers, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {a: b, c: null}}\n"
    )
    assert view.namespaces == {"team-a": {"a": "b", "c": "", "kubernetes.io/metadata.name": "team-a"}}


@pytest.mark.parametrize(
    ("spec", "first"),
    [("{ordinals: {start: 5}}", 5), ("{}", 0), ("{ordinals: null}", 0), ("{ordinals: {start: x}}", None), ("[]", 0)],
)
def test_a_stateful_set_has_a_first_ordinal(
    tmp_path: Path, providers: Mapping[str, Provider], spec: str, first: int | None
) -> None:
    view = load(tmp_path, providers, f"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec: {spec}\n")
    assert view.ordinal_starts.get("default/db") == first


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ("{compute.coreweave.com/node-pool: x}", {"cks"}),
        ('{other.io/spot: "true"}', {"other"}),
        ('{other.io/spot: "false"}', {"other"}),
        ('{other.io/pool: x, compute.coreweave.com/node-pool: "y"}', {"cks", "other"}),
        ("{}", set()),
    ],
)
def test_pool_and_spot_labels_of_nodes_reveal_providers(
    tmp_path: Path, providers: Mapping[str, Provider], labels: str, shown: set[str]
) -> None:
    assert load(tmp_path, providers, node("node-1", labels)).providers == shown


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        ((), None),
        (("v1.31.4-gke.100",), (1, 31)),
        (("v1.9.3", "v1.31.4", "v1.30.0"), (1, 9)),
        (("unknown", "v1.33.0"), (1, 33)),
    ],
)
def test_the_oldest_kubelet_is_the_lowest_version_among_nodes(
    tmp_path: Path, providers: Mapping[str, Provider], versions: tuple[str, ...], oldest: tuple[int, int] | None
) -> None:
    nodes = [node(f"node-{number}", version=version) for number, version in enumerate(versions)]
    assert load(tmp_path, providers, *nodes).oldest_kubelet == oldest


@pytest.mark.parametrize("status", ["", "status:\n"])
def test_a_node_without_a_kubelet_version_is_ignored(
    tmp_path: Path, providers: Mapping[str, Provider], status: str
) -> None:
    assert (
        load(tmp_path, providers, f"apiVersion: v1\nkind: Node\nmetadata: {{name: node-1}}\n{status}").oldest_kubelet
        is None
    )


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ("[]", "status"),
        ("{nodeInfo: 5}", "status.nodeInfo"),
        ("{nodeInfo: {kubeletVersion: 5}}", "status.nodeInfo.kubeletVersion"),
        ("{nodeInfo: {kubeletVersion: {}}}", "status.nodeInfo.kubeletVersion"),
    ],
)
def test_a_node_whose_fields_have_wrong_types_is_a_problem(tmp_path: Path, status: str, field: str) -> None:
    (tmp_path / "state.yaml").write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: a}}\nstatus: {status}\n")
    assert [problem.field for problem in read_manifests([tmp_path]).problems] == [field]


async def test_file_state_is_known_and_dated_when_it_was_read(
    tmp_path: Path, providers: Mapping[str, Provider]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pool.yaml").write_text(NODE_POOL)
    (tmp_path / "b.yml").write_text(node("node-1"))
    state: ClusterState = FileState([tmp_path / "a", tmp_path / "b.yml"], providers)
    view = state.view()
    assert await state.fresh() is view
    assert (view.pools is not None, view.oldest_kubelet) == (True, (1, 34))


def test_empty_folder_is_a_cluster_without_pools(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    assert FileState([tmp_path], providers).view().pools == ()


def test_unreadable_state_is_rejected_with_all_problems(tmp_path: Path, providers: Mapping[str, Provider]) -> None:
    (tmp_path / "1.yaml").write_text("apiVersion: v1\nkind: ConfigMap\na: {")
    (tmp_path / "2.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: 5}\n")
    with pytest.raises(StateErrors) as caught:
        FileState([tmp_path, tmp_path / "nowhere"], providers)
    places = [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == ["1.yaml:4:1", "2.yaml:3:12", "nowhere"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "spec", "size", "spot"]), inner)
    ),
    max_leaves=8,
)


@given(spec=JSON, status=JSON)
def test_no_object_breaks_the_view(providers: Mapping[str, Provider], spec: object, status: object) -> None:
    import json  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    kinds = [
        ("other.io/v1", "Pool"),
        ("v1", "Node"),
        ("v1", "Namespace"),
        ("compute.coreweave.com/v1alpha1", "NodePool"),
    ]
    objects = [{"apiVersion": version, "kind": kind, "spec": spec, "status": status} for version, kind in kinds]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write("\n".join(json.dumps(item) for item in objects).encode())
        file.flush()
        manifests = read_manifests([Path(file.name)])
    assert {problem.line for problem in manifests.problems} <= {2}, "only of the Node, whose fields are typed"
    assert len(view_of(manifests.objects, providers, complete=True).pools or ()) == 2
