"""The nodes that `--lose` selects, their names, and the errors for invalid values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.builders import BUNDLE, node_pool
from tests.cli.rehearse.test_rehearse import node
from webhook.base.exits import CannotJudgeError
from webhook.commands import main
from webhook.rehearse.inputs.resources import manifest_of
from webhook.rehearse.inputs.selection import loss_of
from webhook.rehearse.inputs.snapshot import snapshot_of
from webhook.rehearse.inputs.source import ClusterSource

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.rehearse.result import DrainedBy

TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
SPOT = {"eks.amazonaws.com/capacityType": "SPOT"}
CLUSTER = (
    *(node(f"spot-{number}", "spot", **SPOT, **{ZONE: "ab"[number % 2], TYPE: "big"}) for number in range(10)),
    node("paid-0", "paid", **{ZONE: "a", TYPE: "big", "rack": "r1"}),
    node("paid-1", "paid", **{ZONE: "c", TYPE: "small", "rack": "r2"}),
    node_pool("odd", computeClass="spot", instanceType="odd", autoscaling=False),
)
ALLOCATABLE = {"odd": {"cpu": "8"}}
SPOT_NODES = {f"spot-{number}" for number in range(10)}
OF_POOL = {"odd-0", "odd-1"}


def lost(*wanted: str) -> tuple[tuple[str, ...], set[str]]:
    snapshot = snapshot_of(
        ClusterSource(manifests=[manifest_of("here", item) for item in CLUSTER]), BUNDLE, ALLOCATABLE
    )
    loss = loss_of(wanted, snapshot)
    assert sum(len(window.nodes) for window in loss.windows) == len(loss.nodes)  # no node counts twice
    return loss.named, set(loss.nodes)


@pytest.mark.parametrize(
    ("wanted", "named", "nodes"),
    [
        (["spot"], ["NodePool/spot"], SPOT_NODES),
        (["100%"], ["100% of the spot nodes"], SPOT_NODES | OF_POOL),
        (["type:big"], ["instance type big"], SPOT_NODES),
        (["type:small"], ["instance type small"], {"paid-1"}),
        (["type:odd"], ["instance type odd"], OF_POOL),
        (["zone:a"], ["zone a"], {f"spot-{number}" for number in (0, 2, 4, 6, 8)}),
        (["zone:c"], ["zone c"], {"paid-1"}),
        (["provider:cks"], ["provider cks"], SPOT_NODES | OF_POOL),
        (["selector:rack=r1"], ["label rack=r1"], {"paid-0"}),
        ([f"selector:{ZONE}=a"], [f"label {ZONE}=a"], {"paid-0", *(f"spot-{number}" for number in (0, 2, 4, 6, 8))}),
        (["selector:kubernetes.io/hostname=spot-3"], ["label kubernetes.io/hostname=spot-3"], {"spot-3"}),
        (["100%of:zone:c", "paid"], ["100% of zone c", "NodePool/paid"], {"paid-0", "paid-1"}),
        (
            ["spot", "100%", "spot", "zone:a"],
            ["NodePool/spot", "100% of the spot nodes", "zone a"],
            SPOT_NODES | OF_POOL,
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_values_select_nodes(wanted: list[str], named: list[str], nodes: set[str]) -> None:
    assert lost(*wanted) == (tuple(named), nodes)


@pytest.mark.parametrize(
    ("labels", "drained_by", "notice", "granted"),
    [
        pytest.param({"compute.coreweave.com/node-pool": "spot"}, None, 0, 390, id="CoreWeave"),
        pytest.param({"compute.coreweave.com/node-pool": "spot"}, "nobody", None, None, id="nobody marks the node"),
        pytest.param({"compute.coreweave.com/node-pool": "spot"}, "kubelet", None, None, id="a shutdown"),
        pytest.param({"eks.amazonaws.com/nodegroup": "spot"}, None, None, None, id="a drain at the notice"),
        pytest.param({"karpenter.sh/nodepool": "spot"}, None, None, None, id="no signal"),
        pytest.param({}, None, None, None, id="no provider"),
    ],
)
def test_a_window_has_a_notice_if_the_node_shows_it_before_the_drain(
    labels: dict[str, str], drained_by: DrainedBy | None, notice: float | None, granted: int | None
) -> None:
    value = {**node("a", ""), "metadata": {"name": "a", "labels": {"rack": "r1", **labels}}}
    snapshot = snapshot_of(ClusterSource(manifests=[manifest_of("here", value)]), BUNDLE, {})
    (window,) = loss_of(["selector:rack=r1"], snapshot, drained_by).windows
    assert (window.notice, window.granted(0, 389)) == (notice, granted)
    assert window.granted(0, 390) is None
    assert window.granted(window.drain, 30) is None


def test_a_share_is_sampled_with_a_fixed_seed() -> None:
    named, few = lost("30%of:spot")
    assert named == ("30% of NodePool/spot",)
    assert few == {"spot-3", "spot-4", "spot-9"}
    assert few < lost("31%of:spot")[1]
    assert len(lost("31%of:spot")[1]) == 4  # rounded up
    assert lost("30%of:spot", "31%of:spot")[1] == lost("31%of:spot")[1]


def test_an_ambiguous_pool_name_is_rejected() -> None:
    other = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "odd"},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "x", "name": "x"}}}},
    }
    manifests = [manifest_of("here", value) for value in (*CLUSTER, other)]
    snapshot = snapshot_of(ClusterSource(manifests=manifests), BUNDLE, ALLOCATABLE)
    with pytest.raises(CannotJudgeError, match="--lose odd: 2 pools have this name: NodePool odd, NodePool odd"):
        loss_of(["odd"], snapshot)


WRITE = (
    "write POOL, provider:NAME, selector:KEY=VALUE, type:NAME or zone:NAME, or a share: 1% to 100% of all spot nodes"
)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        *((wanted, WRITE) for wanted in ("0%", "101%", "%", "%of:spot", "30%of:", "30%spot", "0%of:spot", "12.5%")),
        *((wanted, WRITE) for wanted in ("-1%", "\u0663%", "50%of:50%of:spot", "spot%", "1% ")),
        *((wanted, WRITE) for wanted in ("", ":", ":spot", "zones:a", "zone:", "type:", "provider:", "selector:")),
        *(
            (wanted, WRITE)
            for wanted in ("zone:a:b", "50%of:zone:", "zone:zone:a", "selector:a=b:c", "selector:a", "selector:=a")
        ),
        (
            "selector:rak=r1",
            "no Node has this label, did you mean `rack=r1`?; labels: compute.coreweave.com/node-pool=",
        ),
        ("selector:rack=r3", "no Node has this label, did you mean `rack=r2`?; labels: rack=r1, rack=r2"),
        ("selector:rack==r1", "no Node has this label, did you mean `rack=r1`?; labels: rack=r1, rack=r2"),
        ("type:bigg", "no Node has this instance type, did you mean `big`?; instance types: big, odd, small"),
        ("25%of:zone:x", "no Node has this zone; zones: a, b, c"),
        ("spto", "no Node has this pool, did you mean `spot`?; pools: odd, paid, spot"),
        ("50%of:spto", "no Node has this pool, did you mean `spot`?"),
    ],
)
def test_errors_suggest_a_valid_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str, error: str
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    assert main(["rehearse", str(file), "--allocatable=odd=cpu=8", f"--lose={wanted}"]) == 2
    output = capsys.readouterr()
    line, *others = output.err.splitlines()
    assert line.startswith(f"spotgate rehearse: --lose {wanted or repr(wanted)}: {error}")
    assert not others
    assert output.out == ""


def test_long_lists_are_truncated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.json"
    nodes = [node(f"node-{number:02}", "spot") for number in range(30)]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    assert main(["rehearse", str(file), "--lose=selector:kubernetes.io/hostname=x"]) == 2
    assert capsys.readouterr().err.endswith("=node-18, kubernetes.io/hostname=node-19 and 10 more\n")
