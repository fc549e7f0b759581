"""Compute the changes of all Pods that differ only in traits that a table can list.

CEL can't read node pools. But for one state of the pools, the changes of SpotPlacement and GracefulTermination
depend on a few traits of a Pod. Each combination of traits is a shape. The rules compute the changes of a sample of
each shape, and the policy recognizes the shape of a Pod. A Pod with any other trait has no shape.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import KEEP_ANNOTATION, Target
from webhook.commands.export.mutating_policy.traits import NOT_ASKED, Traits
from webhook.kube.edit import PodEditor, as_json
from webhook.kube.tolerations import any_covers
from webhook.model.decision import NO_TRACE
from webhook.model.patch import merge_patch
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.registration.cel import JSON, literal
from webhook.rules.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.kube.pod import Toleration
    from webhook.rules.context import Context
    from webhook.rules.graceful_termination.rule import GracefulTermination
    from webhook.rules.spot_placement.rule import SpotPlacement

_KEEPS: Final = {"": (), "n": ("node-selector",), "t": ("tolerations",), "nt": ("node-selector", "tolerations")}
"""The parts of placement that a Pod can opt out of."""

_SAMPLE: Final = {"metadata": {"name": "sample"}, "spec": {"containers": [{"name": "main", "image": "image"}]}}

SHAPES_AT_MOST: Final = 2_000
"""The maximum number of entries, of about 20 characters each: the API server parses at most 100,000 characters."""

ANSWERS_AT_MOST: Final = 80_000
"""The maximum size of all answers in characters, for the same reason: those of about 80 spot pools."""


class Answers(msgspec.Struct, frozen=True):
    """The changes of the shapes.

    Attributes:
        table: the number of the answer by shape key, for each changed shape.
        answers: JSON: ``placements`` by `_KEEPS`, ``budget`` (0: keep the grace period), and ``gpu``.
        left_out: the number of shapes that don't fit.
    """

    table: dict[str, int]
    answers: list[JSON]
    left_out: int


def _shapes(traits: Traits) -> Iterator[tuple[str, JSON]]:
    """Yield the key and sample of all shapes. Shapes without a selector, a named pool, and a toleration come first."""
    asked, selected, named, requested, tolerated = traits.samples
    places = [place for place in product(selected, named) if "" in place]
    for taint, (label, pool) in product(tolerated, places):
        for capacity, resource in product(asked, requested):
            if capacity != NOT_ASKED or label or pool:
                patches = (asked[capacity], selected[label], named[pool], requested[resource], tolerated[taint])
                yield f"{capacity}{label}.{pool}.{resource}.{taint}", reduce(merge_patch, patches, _SAMPLE)


def answers_of(
    traits: Traits, placement: SpotPlacement | None, termination: GracefulTermination | None, context: Context
) -> Answers:
    """Return the changes that the rules make to each shape."""
    table: dict[str, int] = {}
    numbers: dict[bytes, int] = {}
    answers: list[JSON] = []
    left_out = written = 0
    for key, sample in _shapes(traits):
        answer = _answer(sample, placement, termination, context)
        if not answer:
            continue
        encoded = msgspec.json.encode(answer)
        more = 0 if encoded in numbers else len(literal(answer))
        if len(table) == SHAPES_AT_MOST or written + more > ANSWERS_AT_MOST:
            left_out += 1
            continue
        if encoded not in numbers:
            numbers[encoded] = len(answers)
            answers.append(answer)
            written += more
        table[key] = numbers[encoded]
    return Answers(table, answers, left_out)


def _answer(
    sample: JSON, placement: SpotPlacement | None, termination: GracefulTermination | None, context: Context
) -> JSON:
    """Return the changes of a sample, or an empty answer."""
    placements = {
        name: _placed(sample, keeps, placement, context) if placement else {} for name, keeps in _KEEPS.items()
    }
    budget, gpu = _budget(sample, termination, context) if termination else (0, False)
    if not any(placements.values()) and not budget:
        return {}
    return {"placements": placements, "budget": budget, "gpu": gpu}


def _placed(sample: JSON, keeps: Iterable[str], rule: SpotPlacement, context: Context) -> JSON:
    """Return the fields that SpotPlacement adds: the required tolerations, nodeSelector, and node affinity."""
    subject = _subject(sample, keeps)
    plan = rule.plan(subject, context)
    target = rule.targeting.target(subject, context.view)
    if not isinstance(target, Target) or not plan.because:
        return {}
    rule.mutate(subject, PodEditor(subject.pod), context)
    spec, own = subject.pod.spec, sample["spec"].get("nodeSelector", {})
    placed: JSON = {}
    wanted: list[Toleration] = []
    for toleration in target.tolerations:
        if not any_covers(wanted, toleration):
            wanted.append(toleration)
    if "tolerations" not in keeps and wanted:
        placed["tolerations"] = [as_json(toleration) for toleration in wanted]
    if added := {key: value for key, value in (spec.nodeSelector or {}).items() if key not in own}:
        placed["nodeSelector"] = added
    if spec.affinity is not None and spec.affinity.nodeAffinity is not None:
        placed["nodeAffinity"] = as_json(spec.affinity.nodeAffinity)
    return placed


def _budget(sample: JSON, rule: GracefulTermination, context: Context) -> tuple[int, bool]:
    """Return the seconds that a Pod has to stop (0: keep its grace period), and whether it requests GPUs."""
    subject = _subject(sample, ())
    target = rule.targeting.target(subject, context.view)
    if not isinstance(target, Target) or (target.pools is not None and not target.nodes):
        return 0, False
    budget = rule.budgets.of(target)
    return (0, False) if budget is None else (budget.seconds, target.gpu is True)


def _subject(sample: JSON, keeps: Iterable[str]) -> Subject:
    kept = {KEEP_ANNOTATION: ",".join(keeps)}
    request = Request(
        uid="",
        operation="CREATE",
        kind=GroupVersionKind("", "v1", "Pod"),
        resource=GroupVersionResource("", "v1", "pods"),
        namespace="sample",
        object=msgspec.Raw(msgspec.json.encode(merge_patch(sample, {"metadata": {"annotations": kept}}))),
    )
    return Subject(request, NO_TRACE)
