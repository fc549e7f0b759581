"""Check the requirements of Karpenter's NodePools together.

Source: "Spot in production" (6 instance types over 2 generations and 3 zones).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.bounds import POOL_ITEMS
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.requirements import Requirements, read_requirements
from webhook.model.decision import Violation
from webhook.rules.node_pool_rules.budgets import BUDGETS, judge_budgets
from webhook.rules.node_pool_rules.checks import as_yaml, same
from webhook.rules.node_pool_rules.message import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.rules.node_pool_rules.spec import DiversificationSpec

NODE_POOLS: Final = ("karpenter.sh", "nodepools")
"""The API group and the resource of Karpenter's pools."""

_ZONE_ID_LABEL: Final = "topology.k8s.aws/zone-id"
_REQUIREMENTS: Final = Query("spec.template.spec.requirements")
_LABELS: Final = Query("spec.template.metadata.labels")
_CLASS_GROUP: Final = Query("spec.template.spec.nodeClassRef.group")

_AWS_DOMAINS: Final = ("karpenter.k8s.aws", "eks.amazonaws.com")
"""API groups of the AWS node classes, which are also the domains of the labels that describe AWS machines."""

_AWS_TYPE: Final = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?P<generation>[0-9]+)[a-z0-9-]*)(\.(?P<size>[a-z0-9-]+))?"
)
"""``m6i.xlarge``, or only the family: ``m6i``."""


class Diversity(msgspec.Struct, frozen=True):
    """The maximum number of instance types, generations, and zones of a pool; None if unknown."""

    types: int | None
    generations: int | None
    zones: int | None


def judge_karpenter(
    value: Mapping[str, Any], old: Mapping[str, Any] | None, pool: Pool, wanted: DiversificationSpec
) -> Iterator[Violation]:
    """Yield the violations of a NodePool, read as ``pool``, in the fields that the request changes.

    ``wanted`` is the minimum diversity of a spot pool.
    """
    if old is None or not (same(_REQUIREMENTS(value), _REQUIREMENTS(old)) and same(_LABELS(value), _LABELS(old))):
        yield from _judge_requirements(value, pool, wanted)
    budgets = BUDGETS(value)
    if old is None or not same(budgets, BUDGETS(old)):
        yield from judge_budgets(budgets)


def _judge_requirements(value: Mapping[str, Any], pool: Pool, wanted: DiversificationSpec) -> Iterator[Violation]:
    labels = _LABELS(value)
    readable = labels if isinstance(labels, dict) and len(labels) <= POOL_ITEMS else {}
    given = {key: text for key, text in readable.items() if isinstance(text, str)}
    requirements = read_requirements(_REQUIREMENTS(value), _REQUIREMENTS.text, given)
    if key := on_one_line(requirements.impossible) if requirements.impossible else "":
        yield Violation(
            id="contradicting-requirements",
            reason=f"no node can meet the requirements on {key}",
            field=_REQUIREMENTS.text,
            detail="A node must meet all requirements on a label. No machine can, so Karpenter never launches a node.",
            fix="keep only one requirement on the label, for example:\n"
            + as_yaml(_REQUIREMENTS.text, [{"key": key, "operator": "In", "values": ["<the intended value>"]}]),
        )
    elif pool.spot:
        group = _CLASS_GROUP(value) or _AWS_DOMAINS[0]
        yield from _judge_diversity(requirements, group if group in _AWS_DOMAINS else "", wanted)


def _judge_diversity(requirements: Requirements, domain: str, wanted: DiversificationSpec) -> Iterator[Violation]:
    has = diversity_of(requirements, domain)
    short = {
        noun: f"{have} of at least {want} {noun}s"
        for noun, have, want in (
            ("instance type", has.types, wanted.instance_types),
            ("generation", has.generations, wanted.generations),
            ("zone", has.zones, wanted.zones),
        )
        if have is not None and have < want
    }
    if not short:
        return
    fix = f"admit more {'s and '.join(short)}s: list more values, or remove the requirement"
    if domain and list(short) != ["zone"]:
        listed = requirements.of(TYPE_LABEL).values or requirements.of(f"{domain}/instance-family").values or ()
        categories = {match["category"] for name in listed if (match := _AWS_TYPE.fullmatch(name)) is not None}
        lines = [
            {"key": f"{domain}/instance-category", "operator": "In", "values": sorted(categories) or ["c", "m", "r"]},
            {"key": f"{domain}/instance-generation", "operator": "Gt", "values": ["4"]},
        ]
        fix += f". For example, by category and generation:\n{as_yaml(_REQUIREMENTS.text, lines)}"
    yield Violation(
        id="diversification",
        reason=f"the spot pool is too narrow, so one reclaim can take all its nodes: {', '.join(short.values())}",
        field=_REQUIREMENTS.text,
        detail="Providers reclaim spot capacity by instance type and zone.",
        fix=fix,
    )


def diversity_of(requirements: Requirements, domain: str) -> Diversity:
    """Return the maximum number of instance types, generations, and zones that the requirements admit.

    ``domain`` is the domain of the AWS machine labels; empty for other providers, whose type names have no generation.
    """
    listed = requirements.of(TYPE_LABEL).values
    types = generations = None
    if listed is not None:
        parsed = [(name, _AWS_TYPE.fullmatch(name) if domain else None) for name in listed]
        admitted = [(name, match) for name, match in parsed if match is None or _admits(requirements, domain, match)]
        types = len(admitted)
        if all(match is not None for _, match in admitted):
            generations = len({match["generation"] for _, match in admitted if match is not None})
    elif domain:
        types, generations = _of_families(requirements, domain)
    zones = [
        listed_zones
        for key in (ZONE_LABEL, _ZONE_ID_LABEL)
        if (listed_zones := requirements.of(key).values) is not None
    ]
    return Diversity(types, generations, min(map(len, zones), default=None))


def _of_families(requirements: Requirements, domain: str) -> tuple[int | None, int | None]:
    listed = requirements.of(f"{domain}/instance-family").values
    sizes = requirements.of(f"{domain}/instance-size").values
    generations = requirements.of(f"{domain}/instance-generation").values
    if listed is None:
        return None, len(generations) if generations is not None else None
    families = [match for name in listed if (match := _AWS_TYPE.fullmatch(name)) is not None]
    if len(families) < len(listed):
        return None, None
    admitted = [match for match in families if _admits(requirements, domain, match)]
    types = len(admitted) * len(sizes) if sizes is not None else None
    return types, len({match["generation"] for match in admitted})


def _admits(requirements: Requirements, domain: str, machine: re.Match[str]) -> bool:
    return all(
        requirements.of(f"{domain}/instance-{part}").admits(text) for part, text in machine.groupdict().items() if text
    )
