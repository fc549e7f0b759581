"""Compute the changes of all Pods that differ only in what a table can hold.

CEL can't look at node pools. But what SpotPlacement and GracefulTermination answer depends, for one state of the
pools, on a few things of a Pod. Each combination of them is a `PodShape`, of which a sample is put to the rules
themselves; the policy then only has to recognise the shape of a Pod. A Pod that differs in anything else has no shape.
"""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.globs import is_glob
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.capacity.placement.target import (
    CAPACITY_LABEL,
    KEEP_ANNOTATION,
    NODE_POOL_ANNOTATION,
    SPOT,
    SPOT_PREFERRED,
    Target,
)
from webhook.kube.containers import ARCH_LABEL, OS_LABEL
from webhook.kube.edit import PodEditor, as_json
from webhook.kube.tolerations import HARD_EFFECTS, any_covers, toleration_for
from webhook.model.decision import NO_TRACE
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.registration.cel import JSON, literal
from webhook.rules.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.placement.supply import Supply
    from webhook.capacity.providers.pool import Taint
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Toleration
    from webhook.rules.context import Context
    from webhook.rules.graceful_termination.rule import GracefulTermination
    from webhook.rules.spot_placement.rule import SpotPlacement

ASKED: Final = {"": "n", SPOT: "s", SPOT_PREFERRED: "p"}
"""The letter of each capacity that a Pod or its namespace asks for; none: neither does."""

KEEPS: Final = {"": (), "n": ("node-selector",), "t": ("tolerations",), "nt": ("node-selector", "tolerations")}
"""The parts of placement that a Pod may ask to keep."""

SHAPES_AT_MOST: Final = 2_000
"""Entries of the table, of some 20 characters each: the API server parses no expression of more than 100,000."""

ANSWERS_AT_MOST: Final = 80_000
"""Characters of all answers, of some 1,000 each, for the same reason: those of some 80 spot pools."""

_PLATFORMS: Final = ((OS_LABEL, "linux"), (ARCH_LABEL, "amd64"), (ARCH_LABEL, "arm64"))


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The values by which shapes differ.

    Attributes:
        selectors: a nodeSelector of one label that may tell spot pools apart, or a platform.
        names: what an annotation may name a spot pool by.
        resources: accelerators that a Pod may request.
        taints: taints that keep Pods off spot pools, unless they tolerate them.
        accelerators: globs of the names of all accelerators.
    """

    selectors: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    resources: tuple[str, ...]
    taints: tuple[Taint, ...]
    accelerators: tuple[str, ...]


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a Pod that the answer depends on; each may be absent."""

    asked: str = ""
    selector: tuple[str, str] | None = None
    named: str = ""
    requested: str = ""
    tolerated: Taint | None = None

    def key(self, words: Vocabulary) -> str:
        """Return the key of the table: numbers of `Vocabulary`, with a point between them."""
        parts = (
            "" if self.selector is None else words.selectors.index(self.selector),
            words.names.index(self.named) if self.named else "",
            words.resources.index(self.requested) if self.requested else "",
            "" if self.tolerated is None else words.taints.index(self.tolerated),
        )
        return ASKED[self.asked] + ".".join(map(str, parts))

    def pod(self, keeps: Iterable[str]) -> JSON:
        """Return a Pod of this shape."""
        container: JSON = {"name": "main", "image": "image"}
        if self.requested:
            container["resources"] = {"limits": {self.requested: "1"}}
        annotations = {KEEP_ANNOTATION: ",".join(keeps)}
        if self.named:
            annotations[NODE_POOL_ANNOTATION] = self.named
        spec: JSON = {"containers": [container]}
        if self.selector is not None:
            spec["nodeSelector"] = dict([self.selector])
        if self.tolerated is not None and (toleration := toleration_for(self.tolerated)) is not None:
            spec["tolerations"] = [as_json(toleration)]
        labels = {CAPACITY_LABEL: self.asked} if self.asked else {}
        return {"metadata": {"name": "sample", "labels": labels, "annotations": annotations}, "spec": spec}


class Answers(msgspec.Struct, frozen=True):
    """The answers for the shapes.

    Attributes:
        table: the number of the answer by the key of each shape that is changed.
        answers: JSON: ``placements`` by `KEEPS`, ``budget`` (0: the grace period is left alone) and ``gpu``.
        left_out: the number of shapes that there was no room for.
    """

    table: dict[str, int]
    answers: list[JSON]
    left_out: int


def vocabulary(context: Context, providers: Mapping[str, Provider], named: Iterable[str]) -> Vocabulary:
    """Return the values by which Pods differ, in a cluster in this state."""
    supply = supply_of(context.view, providers)
    names_in_play = in_play(context.view, providers).union(named) & providers.keys() or set(providers)
    unseen = (each for each in supply.unseen if each.provider.name in names_in_play)
    labels = chain.from_iterable(each.labels.items() for each in (*supply.spot, *unseen))
    selectors = dict.fromkeys([*(item for item in labels if item[0] in supply.telling), *_PLATFORMS])
    names = (name for each in supply.spot if each.pool for name in (each.pool.name, each.pool.pool_name) if name)
    globs = dict.fromkeys(glob for each in providers.values() for glob in each.gpu.resources.patterns)
    return Vocabulary(
        selectors=tuple(selectors),
        names=tuple(dict.fromkeys(names)),
        resources=tuple(
            each
            for each in globs
            if not is_glob(each) and any(providers[name].gpu.resources.match(each) for name in names_in_play)
        ),
        taints=tuple(_taints(supply)),
        accelerators=tuple(globs),
    )


def _taints(supply: Supply) -> Iterator[Taint]:
    seen: set[Taint] = set()
    for nodes in supply.spot:
        for taint in (*nodes.dedicated, *nodes.guards):
            if taint.effect in HARD_EFFECTS and taint not in seen and toleration_for(taint) is not None:
                seen.add(taint)
                yield taint


def _shapes(words: Vocabulary) -> Iterator[PodShape]:
    """Yield all shapes, the common ones first: those without an own selector, name and toleration."""
    places: list[JSON] = [
        {},
        *({"named": each} for each in words.names),
        *({"selector": each} for each in words.selectors),
    ]
    for tolerated, place in product((None, *words.taints), places):
        for asked, requested in product(ASKED, ("", *words.resources)):
            if asked or place:
                yield PodShape(asked=asked, requested=requested, tolerated=tolerated, **place)


def answers_of(
    words: Vocabulary, placement: SpotPlacement | None, termination: GracefulTermination | None, context: Context
) -> Answers:
    """Return the answers of the rules for each shape."""
    table: dict[str, int] = {}
    numbers: dict[bytes, int] = {}
    answers: list[JSON] = []
    left_out = written = 0
    for shape in _shapes(words):
        answer = _answer(shape, placement, termination, context)
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
        table[shape.key(words)] = numbers[encoded]
    return Answers(table, answers, left_out)


def _answer(
    shape: PodShape, placement: SpotPlacement | None, termination: GracefulTermination | None, context: Context
) -> JSON:
    """Return the answer for a shape; empty if it is not changed."""
    placements = {name: _placed(shape, keeps, placement, context) if placement else {} for name, keeps in KEEPS.items()}
    budget, gpu = _budget(shape, termination, context) if termination else (0, False)
    if not any(placements.values()) and not budget:
        return {}
    return {"placements": placements, "budget": budget, "gpu": gpu}


def _placed(shape: PodShape, keeps: Iterable[str], rule: SpotPlacement, context: Context) -> JSON:
    """Return what SpotPlacement adds: all tolerations that are needed, nodeSelector and node affinity."""
    subject = _subject(shape, keeps)
    plan = rule.plan(subject, context)
    target = rule.targeting.target(subject, context.view)
    if not isinstance(target, Target) or not plan.because:
        return {}
    rule.mutate(subject, PodEditor(subject.pod), context)
    spec = subject.pod.spec
    own = dict([shape.selector] if shape.selector else [])
    found: JSON = {}
    wanted: list[Toleration] = []
    for each in target.tolerations:
        if not any_covers(wanted, each):
            wanted.append(each)
    if "tolerations" not in keeps and wanted:
        found["tolerations"] = [as_json(each) for each in wanted]
    if added := {key: value for key, value in (spec.nodeSelector or {}).items() if key not in own}:
        found["nodeSelector"] = added
    if spec.affinity is not None and spec.affinity.nodeAffinity is not None:
        found["nodeAffinity"] = as_json(spec.affinity.nodeAffinity)
    return found


def _budget(shape: PodShape, rule: GracefulTermination, context: Context) -> tuple[int, bool]:
    """Return the seconds that a Pod has to stop, and whether it requests GPUs; 0: it is left alone."""
    subject = _subject(shape, ())
    target = rule.targeting.target(subject, context.view)
    if not isinstance(target, Target) or (target.pools is not None and not target.nodes):
        return 0, False
    budget = rule.budgets.of(target)
    return (0, False) if budget is None else (budget.seconds, target.gpu is True)


def _subject(shape: PodShape, keeps: Iterable[str]) -> Subject:
    request = Request(
        uid="",
        operation="CREATE",
        kind=GroupVersionKind("", "v1", "Pod"),
        resource=GroupVersionResource("", "v1", "pods"),
        namespace="sample",
        object=msgspec.Raw(msgspec.json.encode(shape.pod(keeps))),
    )
    return Subject(request, NO_TRACE)
