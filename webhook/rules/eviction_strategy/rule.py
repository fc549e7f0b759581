"""EvictionStrategy: the labels by which CoreWeave evicts Pods have the effect that their author expects.

Intent
    CoreWeave empties a node that is rebooted, repaired or scaled down by the labels of its Pods. Pods without a label
    are never evicted, ``interruptable`` ones are deleted without their grace period, ``graceful-interruptible`` ones
    get it. A label that allows too much loses work; a label without effect holds up the node.
Reads
    Pods, on CREATE, and on UPDATE if these fields change: the two labels, keys that resemble them, and the same keys as
    annotations; tolerations; ``spec.terminationGracePeriodSeconds``; the controlling owner. Of the workload around a
    pod template: its labels, ``spec.replicas``, ``completionMode``, ``parallelism``. Of DaemonSets: tolerations and
    node constraints. Misspelt labels in a reserved domain are left to a ReservedLabels policy that covers them.
Writes
    Nothing.
Finds
    contradiction, bypassed, interrupted-state, grace-period, sunk-tolerations, no-effect
Source
    https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling, eviction policies, SUNK.
"""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.bounds import HINTED_AT_MOST
from webhook.decision import Outcome
from webhook.globs import Globs
from webhook.kube.affinity import terms_of
from webhook.kube.volumes import writable_claim
from webhook.policy.errors import SpecError
from webhook.policy.match import ResourceRule
from webhook.rules.concern import EVERYTHING, Concern, Keys
from webhook.rules.eviction_strategy import findings
from webhook.rules.eviction_strategy.spec import EvictionStrategySpec
from webhook.rules.protocol import Levels, PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec, TaintSpec
    from webhook.context import Context
    from webhook.decision import Violation
    from webhook.kube.pod import Pod, Toleration
    from webhook.rules.protocol import Facts, Subject

_ALIKE: Final = "rupt"
"""A part of every key that may be an eviction label, misspelt or not: only such keys are compared."""
_CLOSE: Final = 0.85
"""The least similarity of a misspelt name: ``interruptible`` and ``interruptable`` have 0.92."""
_COMPARED_AT_MOST: Final = 32
"""Keys of one Pod that are compared: each takes 50 us, and a Pod may have tens of thousands of labels."""
_VENDOR: Final = "coreweave"
"""A part of every prefix of CoreWeave's, misspelt or not: a team may have an ``interruptible`` label of its own."""
_EXISTS: Final = "Exists"


class EvictionStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the compiled rule.

    Attributes:
        keys: the keys of the eviction labels.
        names: the part of each key behind its prefix -> the label.
        left: domains, and suffixes of domains, that a ReservedLabels policy judges.
    """

    spec: EvictionStrategySpec
    levels: Levels
    keys: frozenset[str]
    names: Mapping[str, LabelSpec]
    left: tuple[str, ...]
    stateful: Globs
    distributed: Globs
    replicated: Globs

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the findings that are not off."""
        return self.levels.parts

    def concern(self, group: str, resource: str) -> Concern:
        """Return the eviction labels and similar keys; of DaemonSets also what schedules them on SUNK nodes."""
        of_labels = Concern(
            labels=Keys(self.keys, frozenset({_ALIKE})),
            annotations=Keys(self.keys),
            changes=frozenset({"tolerations"}),
        )
        if (group, resource) != ("apps", "daemonsets"):
            return of_labels
        if self.spec.sunk_nodes != "named":
            return EVERYTHING
        sunk = Keys(containing=frozenset({f"{self.spec.sunk_domain}/"}))
        return of_labels | Concern(selectors=True, tolerations=sunk)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:  # noqa: ARG002 - the Pod says it all
        """Yield a violation for each eviction label that has no effect, or more effect than was meant."""
        if self._is_unchanged(subject):
            subject.trace.say("the request changes nothing about how the Pod may be evicted")
            return
        yield from self.levels.lowered(self._find(subject))

    def _is_unchanged(self, subject: Subject) -> bool:
        """Return whether an UPDATE changes nothing that is judged here."""
        old = subject.old_pod if subject.operation == "UPDATE" else None
        return old is not None and (
            self._similar_labels(old.labels) == self._similar_labels(subject.pod.labels)
            and self.keys.intersection(old.annotations) == self.keys.intersection(subject.pod.annotations)
            and old.spec.tolerations == subject.pod.spec.tolerations
        )

    def _find(self, subject: Subject) -> Iterator[Violation]:
        pod = subject.pod
        alike = self._similar_labels(pod.labels)
        interruptible = self._is_set(self.spec.interruptible, alike)
        graceful = self._is_set(self.spec.graceful, alike)
        yield from self._without_effect(subject, alike)
        if subject.template and subject.request.kind.kind == "DaemonSet":
            yield from self._on_sunk(pod, graceful=graceful)
        if not (interruptible or graceful):
            subject.trace.say("no label of CoreWeave's allows it to be evicted")
            return
        if interruptible and graceful:
            yield findings.contradiction(self.spec)
        if graceful:
            yield from self._bypassed(pod)
        elif held := self._why_not_interruptible(subject):
            yield findings.interrupted_state(self.spec, held)
        elif pod.grace_seconds > self.spec.drain_timeout_seconds:
            yield findings.grace_period(self.spec, pod.grace_seconds)

    def _similar_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the eviction labels, and the labels that may be misspelt ones."""
        return {key: value for key, value in labels.items() if _ALIKE in key or key in self.keys}

    @staticmethod
    def _is_set(label: LabelSpec, labels: Mapping[str, str]) -> bool:
        return labels.get(label.key) == label.value

    def _without_effect(self, subject: Subject, alike: Mapping[str, str]) -> Iterator[Violation]:
        pod = subject.pod
        for label in (self.spec.interruptible, self.spec.graceful):
            value = alike.get(label.key)
            if value is not None and value != label.value:
                yield findings.other_value(label, value)
            if value is None and label.key in pod.annotations:
                yield findings.annotation(label)
        for key in islice(alike, _COMPARED_AT_MOST):
            if key not in self.keys and (meant := self._intended_label(key)) is not None:
                yield findings.misspelt(key, meant)
        if subject.template and not alike:
            labels = subject.workload.labels
            for label in (self.spec.interruptible, self.spec.graceful):
                if label.key in labels:
                    yield findings.on_the_workload(label, subject.request.kind.kind)

    def _intended_label(self, key: str) -> LabelSpec | None:
        """Return the eviction label that a key was meant to be, or None if it is another policy's or another label."""
        prefix, slash, name = key.rpartition("/")
        if f".{prefix}".endswith(self.left):
            return None
        if not slash:
            return self.names.get(name)
        if _VENDOR not in prefix or len(name) > HINTED_AT_MOST:
            return None
        close = difflib.get_close_matches(name, self.names, n=1, cutoff=_CLOSE)
        return self.names[close[0]] if close else None

    def _bypassed(self, pod: Pod) -> Iterator[Violation]:
        for index, toleration in enumerate(pod.spec.tolerations or ()):
            taint = next((taint for taint in self.spec.bypassing_taints if _reaches(toleration, taint)), None)
            if taint is not None:
                yield findings.bypassed(self.spec, pod, index, taint)

    def _why_not_interruptible(self, subject: Subject) -> str:
        """Return why deleting the Pod does harm, as a phrase: it belongs to stateful or distributed work."""
        kinds = _kinds(subject)
        for kind in kinds:
            shown = kind.partition(".")[0]
            if self.distributed.match(kind):
                return f"the Pods of a {shown} work in step"
            if self.stateful.match(kind):
                return f"the Pods of a {shown} hold state"
        if not subject.template:
            return ""
        workload = subject.workload
        if workload.indexed:
            return "the Pods of an indexed Job work in step"
        if any(map(self.replicated.match, kinds)) and workload.spec.replicas in {None, 1}:
            claim = writable_claim(subject.pod)
            return f"its only replica writes to the claim `{claim}`" if claim else ""
        return ""

    def _on_sunk(self, pod: Pod, *, graceful: bool) -> Iterator[Violation]:
        if self.spec.sunk_nodes == "named" and not self._names_sunk(pod):
            return
        tolerations = pod.spec.tolerations or ()
        missing = [
            taint
            for taint in self.spec.sunk_taints
            if not any(_reaches(each, taint) for each in tolerations)
            # Tolerating these would undo the label: that is not asked for.
            and not (graceful and any(taint.key == each.key for each in self.spec.bypassing_taints))
        ]
        if missing:
            yield findings.sunk_tolerations(missing)

    def _names_sunk(self, pod: Pod) -> bool:
        prefix = f"{self.spec.sunk_domain}/"
        keys = [each.key for each in pod.spec.tolerations or ()]
        keys += [each.key for term in terms_of(pod.spec) for each in term.requirements]
        return any(key.startswith(prefix) for key in keys)


def _reaches(toleration: Toleration, taint: TaintPatternSpec | TaintSpec) -> bool:
    """Return whether the toleration tolerates such a taint; a pattern without a value stands for every value."""
    if toleration.effect and taint.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == _EXISTS:
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and (not taint.value or toleration.value == taint.value)


def _kinds(subject: Subject) -> tuple[str, ...]:
    """Return the kinds of the Pod's controller and of its template's workload, as ``Kind.group``."""
    owner = subject.pod.controller
    kinds = [] if owner is None else [owner.group_kind]
    if subject.template:
        kinds.append(subject.request.kind.group_kind)
    return tuple(kinds)


def _compile(spec: EvictionStrategySpec, facts: Facts) -> EvictionStrategy:  # noqa: ARG001 - the spec says it all
    if spec.interruptible.key == spec.graceful.key:
        text = f"{spec.graceful.key} is the key of `interruptible` too: what one of them means, the other contradicts"
        raise SpecError(("graceful", "key"), text)
    labels = (spec.interruptible, spec.graceful)
    return EvictionStrategy(
        spec=spec,
        levels=Levels.of(vars(spec.findings)),
        keys=frozenset(label.key for label in labels),
        names={label.key.rpartition("/")[2]: label for label in labels},
        left=tuple(f".{domain}" for domain in spec.left_to_reserved_labels),
        stateful=Globs(spec.stateful),
        distributed=Globs(spec.distributed),
        replicated=Globs(spec.replicated),
    )


KIND: Final = PolicyKind(
    name="EvictionStrategy",
    spec=EvictionStrategySpec,
    not_exported="it asks who owns a Pod, and where it can land",
    compile=_compile,
    rules=lambda _: (ResourceRule(api_groups=("",), resources=("pods",), operations=("CREATE", "UPDATE")),),
    order=2,
    template_outcome=Outcome.DENY,
    pods_only=True,
)
