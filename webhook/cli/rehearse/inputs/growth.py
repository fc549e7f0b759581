"""Nodes that an autoscaler adds: modelled, as many as ``--grow`` says, when it says."""

from __future__ import annotations

import copy
import uuid
from typing import TYPE_CHECKING

from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.nodes import HOSTNAME, check_number, node_of_pool, pool_of_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot


def grown_nodes(
    growth: Iterable[tuple[str, int, float]],
    snapshot: ClusterSnapshot,
    providers: Mapping[str, Provider],
    allocatable: Mapping[str, Mapping[str, str]],
) -> list[tuple[float, JSON]]:
    """Return the Nodes that come, each with its second. They are as the pool's others, or as the pool says.

    Raises:
        CannotJudgeError: there is no such pool, it is unknown what its nodes offer, or too many come.
    """
    found: list[tuple[float, JSON]] = []
    for name, number, seconds in growth:
        check_number(number, f"--grow {name}")
        pool = next((each for each in snapshot.pools if each.is_named(name)), None)
        names = {name} if pool is None else {name, pool.name, pool.pool_name}
        like = next(
            (
                node
                for node in snapshot.nodes
                if (of := pool_of_node(node["metadata"]["labels"], providers)) and of[0] in names
            ),
            None,
        )
        if pool is None and like is None:
            of_nodes = (pool_of_node(node["metadata"]["labels"], providers) for node in snapshot.nodes)
            known = {each.name for each in snapshot.pools} | {each[0] for each in of_nodes if each and each[0]}
            there = ", ".join(sorted(known)) or "none is known"
            raise CannotJudgeError(f"spotgate rehearse: --grow {name}: the pool is not there; pools: {there}")
        for index in range(number):
            if like is not None:
                node = copy.deepcopy(like)
            elif pool is not None:
                node = node_of_pool(pool, index, providers, allocatable)
            node["metadata"] |= {"name": f"{name}-grown-{index}", "uid": str(uuid.uuid4())}
            node["metadata"]["labels"][HOSTNAME] = f"{name}-grown-{index}"
            node["spec"].pop("unschedulable", None)
            node["spec"].pop("providerID", None)
            found.append((seconds, node))
    return found
