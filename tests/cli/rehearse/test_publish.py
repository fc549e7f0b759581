"""What is published of rehearsals, without a control plane: tests/rehearse/test_nightly.py has one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.rehearse.test_rehearse import node
from tests.objects import BUNDLE
from webhook.base.exits import CannotJudgeError
from webhook.commands import command_parser, main
from webhook.commands.rehearse import publish as module
from webhook.commands.rehearse.publish import publish, spot_pools
from webhook.offline.options import options_of
from webhook.rehearse.inputs.nodes import read_node
from webhook.rehearse.options import RehearseOptions

if TYPE_CHECKING:
    from webhook.rehearse.result import Rehearsal


def spot_node(name: str, **labels: str) -> Any:
    value = node(name, "", **labels)
    del value["metadata"]["labels"]["compute.coreweave.com/node-pool"]
    return read_node(value, (), BUNDLE.providers)


def test_each_pool_with_spot_nodes_is_lost_once() -> None:
    karpenter = {"karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "a"}
    nodes = [
        spot_node("1", **karpenter),
        spot_node("2", **karpenter),
        spot_node("3", **{"eks.amazonaws.com/capacityType": "SPOT"}),
        spot_node("4", **{"karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": "b"}),
    ]
    assert spot_pools(nodes) == ["a", "provider:eks"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--publish=y"], "names no ConfigMap; write NAMESPACE/NAME"),
        (["--publish=x/y", "--with-fixes"], "not allowed with argument"),
    ],
)
def test_flags_that_contradict_each_other_are_an_error(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["rehearse", *flags])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_where_a_pool_can_not_be_rehearsed_the_last_result_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_on_cluster", lambda *_: pytest.fail("nothing may be published"))

    def run(_: object, pool: str) -> Rehearsal:
        raise CannotJudgeError(f"{pool} has no nodes")

    flags = command_parser("spotgate", "rehearse").parse_args(["--lose=a", "--lose=b", "--publish=x/y"])
    options = options_of(RehearseOptions, flags)
    rehearsing: Any = SimpleNamespace(options=options, loss=lambda _, lost: lost[0], run=run)
    nothing: Any = None
    with pytest.raises(CannotJudgeError, match="a has no nodes"):
        publish(rehearsing, ("x", "y"), nothing)
