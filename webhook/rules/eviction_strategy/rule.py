"""EvictionStrategy: the labels that control CoreWeave's evictions have the effect that their author expects.

Intent
    To reboot, repair, or remove a node, CoreWeave drains it according to the labels of its Pods. It never evicts Pods
    without a label. It deletes ``interruptable`` Pods without their grace period, and ``graceful-interruptible`` Pods
    after it. A label that allows too much loses work; a label without effect blocks the node.
Reads
    Pods, on CREATE, and on UPDATE if these fields change: the two labels, keys that resemble them, and the same keys as
    annotations; tolerations; ``spec.terminationGracePeriodSeconds``; the controlling owner. The workload of a pod
    template: its labels, ``spec.replicas``, ``completionMode``, ``parallelism``. DaemonSets: tolerations and node
    constraints. The rule skips misspelled labels in a reserved domain that a ReservedLabels policy covers.
Writes
    Nothing.
Finds
    contradiction, bypassed, interrupted-state, grace-period, sunk-tolerations, no-effect
Source
    https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling, eviction policies, SUNK.
"""

from __future__ import annotations

import difflib
import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import asdict

from webhook.base.bounds import HINTED_AT_MOST
from webhook.capacity.providers.pool import Taint
from webhook.kube.affinity import terms_of
from webhook.kube.containers import writable_claim
from webhook.kube.tolerations import tolerates
from webhook.model.decision import Violation
from webhook.policy.errors import SpecError
from webhook.policy.match import rules_for
from webhook.rules.eviction_strategy.spec import EvictionStrategySpec
from webhook.rules.protocol import EVERYTHING, Concern, Facts, Keys, Levels, PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec, TaintSpec
    from webhook.kube.pod import Pod, Toleration
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_ALIKE: Final = "rupt"
"""A part of every key that may be an eviction label, misspelled or not. The rule compares only these keys."""
_CLOSE: Final = 0.85
"""The minimum similarity of a misspelled name: ``interruptible`` and ``interruptable`` have 0.92."""
_COMPARED_AT_MOST: Final = 32
"""Keys of one Pod to compare. Each takes 50 us, and a Pod can have tens of thousands of labels."""
_VENDOR: Final = "coreweave"
"""A part of every CoreWeave prefix, misspelled or not: a team can have another ``interruptible`` label."""
_EXISTS: Final = "Exists"
_SHOWN: Final = 63
"""Characters of a label's key or value that a finding repeats."""
_LISTED: Final = 8
"""Tolerations that a fix lists."""


class EvictionStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled rule.

    Attributes:
        labels: the eviction labels: interruptible and gracefully interruptible.
        keys: the keys of these labels.
        left: suffixes of domains that a ReservedLabels policy covers.
    """

    spec: EvictionStrategySpec
    levels: Levels
    labels: tuple[LabelSpec, LabelSpec]
    keys: frozenset[str]
    left: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the findings that are not off."""
        return self.levels.parts

    def concern(self, group: str, resource: str) -> Concern:
        """Return the eviction labels and similar keys, and for DaemonSets the fields that schedule on SUNK nodes."""
        of_labels = Concern(labels=Keys(self.keys, frozenset({_ALIKE})), annotations=Keys(self.keys))
        if (group, resource) != ("apps", "daemonsets"):
            return of_labels
        if self.spec.sunk_nodes != "named":
            return EVERYTHING
        sunk = Keys(containing=frozenset({f"{self.spec.sunk_domain}/"}))
        return of_labels | Concern(selectors=True, tolerations=sunk)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:  # noqa: ARG002 - the Pod is enough
        """Yield a violation for each eviction label that has no effect, or more effect than its author expects."""
        if self._is_unchanged(subject):
            subject.trace.say("the request doesn't change how the Pod can be evicted")
            return
        yield from self.levels.lowered(self._find(subject))

    def _is_unchanged(self, subject: Subject) -> bool:
        """Return whether an UPDATE changes none of the fields that the rule reads."""
        old = subject.old_pod if subject.operation == "UPDATE" else None
        return old is not None and (
            self._similar_labels(old.labels) == self._similar_labels(subject.pod.labels)
            and self.keys.intersection(old.annotations) == self.keys.intersection(subject.pod.annotations)
            and old.spec.tolerations == subject.pod.spec.tolerations
        )

    def _find(self, subject: Subject) -> Iterator[Violation]:
        pod = subject.pod
        alike = self._similar_labels(pod.labels)
        interruptible, graceful = (alike.get(label.key) == label.value for label in self.labels)
        yield from self._without_effect(subject, alike)
        if subject.template and subject.request.kind.kind == "DaemonSet":
            yield from self._on_sunk(pod, graceful=graceful)
        if not (interruptible or graceful):
            subject.trace.say("no CoreWeave label allows its eviction")
            return
        keys = self.spec.interruptible.key, self.spec.graceful.key
        if interruptible and graceful:
            yield Violation(
                id="contradiction",
                reason="two eviction strategies contradict each other, and CoreWeave doesn't define which one applies",
                field=_label(keys[0]),
                detail=f"With {keys[0]}, CoreWeave deletes the Pod at once; with {keys[1]}, after its grace period.",
                fix=f"keep only one of the labels: remove {keys[0]}, or remove this one",
                yaml=_labels(self.spec.graceful),
            )
        if graceful:
            yield from self._bypassed(pod)
        elif why := self._why_not_interruptible(subject):
            yield Violation(
                id="interrupted-state",
                reason=f"{why}, and CoreWeave deletes interruptible Pods without their grace period",
                field=_label(keys[0]),
                detail="CoreWeave advises against interruptible Pods for such work. It never evicts Pods "
                "without an eviction label.",
                fix=f"remove {keys[0]}; if the Pod can save its work, use this label instead",
                yaml=_labels(self.spec.graceful),
            )
        elif (seconds := pod.grace_seconds) > self.spec.drain_timeout_seconds:
            yield Violation(
                id="grace-period",
                reason=f"the Pod is interruptible, so it doesn't get its grace period of {seconds} s: unsaved "
                "work is lost",
                field="spec.terminationGracePeriodSeconds",
                detail=f"CoreWeave doesn't wait for interruptible Pods, and its drain ends after "
                f"{self.spec.drain_timeout_seconds} s.",
                fix=f"replace label {keys[0]} with this label",
                yaml=_labels(self.spec.graceful),
            )

    def _similar_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the eviction labels, and the labels that may be misspellings of them."""
        return {key: value for key, value in labels.items() if _ALIKE in key or key in self.keys}

    def _without_effect(self, subject: Subject, alike: Mapping[str, str]) -> Iterator[Violation]:
        pod = subject.pod
        for label in self.labels:
            value, right = alike.get(label.key), json.dumps(label.value)
            if value is not None and value != label.value:
                yield _no_effect(
                    label,
                    f"label {label.key} is {json.dumps(value[:_SHOWN])}, not {right}, and may have no effect",
                    _label(label.key),
                    "remove the label, or write",
                )
            if value is None and label.key in pod.annotations:
                yield _no_effect(
                    label,
                    f"{label.key} has no effect as an annotation: CoreWeave never evicts the Pod, which blocks "
                    "its node's drain",
                    f'metadata.annotations["{label.key}"]',
                    "move it to the labels",
                )
        for key in islice(alike, _COMPARED_AT_MOST):
            if key not in self.keys and (meant := self._intended_label(key)) is not None:
                yield _no_effect(
                    meant,
                    f"{key[:_SHOWN]} has no effect: CoreWeave never evicts the Pod, which blocks its node's drain",
                    _label(key),
                    f"replace {key[:_SHOWN]} with",
                )
        for label in self.labels if subject.template and not alike else ():
            if label.key in subject.workload.labels:
                yield _no_effect(
                    label,
                    f"{label.key} is on the {subject.request.kind.kind}, not on its Pods: CoreWeave never evicts them",
                    "metadata.labels",
                    "set it on the pod template",
                )

    def _intended_label(self, key: str) -> LabelSpec | None:
        """Return the eviction label that the key misspells, or None for other labels and those of another policy."""
        names = {label.key.rpartition("/")[2]: label for label in self.labels}
        prefix, slash, name = key.rpartition("/")
        if f".{prefix}".endswith(self.left):
            return None
        if not slash:
            return names.get(name)
        if _VENDOR not in prefix or len(name) > HINTED_AT_MOST:
            return None
        close = difflib.get_close_matches(name, names, n=1, cutoff=_CLOSE)
        return names[close[0]] if close else None

    def _bypassed(self, pod: Pod) -> Iterator[Violation]:
        tolerations = pod.spec.tolerations or []
        for index, toleration in enumerate(tolerations):
            taint = next((taint for taint in self.spec.bypassing_taints if _reaches(toleration, taint)), None)
            if taint is None:
                continue
            rest = [msgspec.to_builtins(other) for number, other in enumerate(tolerations) if number != index][:_LISTED]
            where, lead = f"the Pod tolerates {taint.key}", "keep only those that the Pod needs"
            if not toleration.key:
                where = f"the Pod tolerates every taint, including {taint.key}"
                lead = "write one for each taint that the Pod must tolerate"
                rest.append({"key": "KEY", "operator": _EXISTS})
            this = ", ".join(f"{name}: {value}" for name, value in msgspec.to_builtins(toleration).items())
            yield Violation(
                id="bypassed",
                reason=f"{where}, so CoreWeave may evict it without its grace period",
                field=f"spec.tolerations[{index}]",
                detail=f"CoreWeave ignores {self.spec.graceful.key} for Pods that tolerate {_shown(taint)}.",
                fix=f"remove toleration `{{{this}}}`, and {lead}",
                yaml={"spec": {"tolerations": rest}},
            )

    def _why_not_interruptible(self, subject: Subject) -> str:
        """Return why an immediate deletion would harm the Pod, as a phrase, or an empty string."""
        owner = subject.pod.controller
        kinds = [] if owner is None else [owner.group_kind]
        if subject.template:
            kinds.append(subject.request.kind.group_kind)
        for kind in kinds:
            shown = kind.partition(".")[0]
            if self.spec.distributed.match(kind):
                return f"the Pods of a {shown} run in lockstep"
            if self.spec.stateful.match(kind):
                return f"the Pods of a {shown} hold state"
        if not subject.template:
            return ""
        workload = subject.workload
        if workload.indexed:
            return "the Pods of an indexed Job run in lockstep"
        if any(map(self.spec.replicated.match, kinds)) and workload.replicas == 1:
            claim = writable_claim(subject.pod)
            return f"its only replica writes to claim `{claim}`" if claim else ""
        return ""

    def _on_sunk(self, pod: Pod, *, graceful: bool) -> Iterator[Violation]:
        if self.spec.sunk_nodes == "named" and not self._names_sunk(pod):
            return
        tolerations = pod.spec.tolerations or ()
        missing = [
            taint
            for taint in self.spec.sunk_taints
            if not any(_reaches(toleration, taint) for toleration in tolerations)
            # Tolerating these would defeat the label, so don't require it.
            and not (graceful and any(taint.key == pattern.key for pattern in self.spec.bypassing_taints))
        ]
        if missing:
            yield Violation(
                id="sunk-tolerations",
                reason="the DaemonSet doesn't tolerate the taints of SUNK nodes: its Pods are evicted there, or "
                "never start",
                field="spec.tolerations",
                detail=f"It lacks tolerations for {', '.join(map(_shown, missing))}. A Slurm job waits until the "
                "DaemonSet's Pods are gone.",
                fix="add these tolerations",
                yaml={"spec": {"tolerations": list(map(_tolerating, missing))}},
            )

    def _names_sunk(self, pod: Pod) -> bool:
        prefix = f"{self.spec.sunk_domain}/"
        keys = [toleration.key for toleration in pod.spec.tolerations or ()]
        keys += [requirement.key for term in terms_of(pod.spec) for requirement in term.requirements]
        return any(key.startswith(prefix) for key in keys)


def _no_effect(meant: LabelSpec, reason: str, field: str, lead: str) -> Violation:
    detail = f"CoreWeave reads only the Pod label `{meant.key}: {meant.value}`, and never evicts a Pod without a label."
    return Violation(id="no-effect", reason=reason, field=field, detail=detail, fix=lead, yaml=_labels(meant))


def _label(key: str) -> str:
    return f'metadata.labels["{key}"]'


def _labels(label: LabelSpec) -> dict[str, Any]:
    return {"metadata": {"labels": {label.key: label.value}}}


def _shown(taint: TaintPatternSpec | TaintSpec) -> str:
    value = f"={taint.value}" if taint.value else ""
    effect = f":{taint.effect}" if taint.effect else ""
    return f"{taint.key}{value}{effect}"


def _tolerating(taint: TaintSpec) -> dict[str, Any]:
    equal = {"key": taint.key, "operator": "Equal", "value": taint.value}
    return equal if taint.value else {"key": taint.key, "operator": _EXISTS}


def _reaches(toleration: Toleration, taint: TaintPatternSpec | TaintSpec) -> bool:
    """Return whether the toleration tolerates the taint. A pattern without a value or an effect matches all."""
    return tolerates(toleration, Taint(taint.key, taint.value or toleration.value, taint.effect or toleration.effect))


def _compile(spec: EvictionStrategySpec, facts: Facts) -> EvictionStrategy:  # noqa: ARG001 - the spec is enough
    if spec.interruptible.key == spec.graceful.key:
        text = f"{spec.graceful.key} is also the key of `interruptible`, which contradicts this label"
        raise SpecError(("graceful", "key"), text)
    labels = (spec.interruptible, spec.graceful)
    return EvictionStrategy(
        spec=spec,
        levels=Levels.of(asdict(spec.findings)),
        labels=labels,
        keys=frozenset(label.key for label in labels),
        left=tuple(f".{domain}" for domain in spec.left_to_reserved_labels),
    )


KIND: Final = PolicyKind(
    name="EvictionStrategy",
    spec=EvictionStrategySpec,
    not_exported="it checks the owner of a Pod, and the nodes that it can run on",
    compile=_compile,
    rules=lambda _: rules_for([("", "pods")], "CREATE", "UPDATE"),
    order=2,
    pods_only=True,
)
