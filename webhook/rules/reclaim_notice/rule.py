"""ReclaimNotice: a Pod knows the deadline of its node, and can use all of the time until then.

Intent
    Most providers announce a reclaim before they drain the node, and Pods learn nothing until the drain: an application
    can't see the labels of its Node. A file tells it, or an early eviction gives it a longer grace period.
Reads
    Pods, on CREATE: label ``spotgate.dev/on-reclaim``, annotation ``spotgate.dev/keep``, volumes, and mounts. For Pods
    without the label that target spot (`capacity.placement.target`): the same label of the namespace; otherwise, the
    policy's ``action`` for the Pod's class (label ``spotgate.dev/workload-class``, restart policy, GPU requests, owner,
    and ports). The Pod's own label works on any node, because the Node annotation ``spotgate.dev/reclaim-at`` does.
Writes
    For ``inform`` and ``evict``, if missing: a downward API volume with the Pod's annotation
    ``spotgate.dev/reclaim-at``, which ``spotgate controller`` sets; its read-only mount in each app container and
    sidecar that has no mount there; the label, because the controller watches only Pods that have it.
Finds
    unknown-action, volume-taken, path-taken, not-injected
Source
    https://kubernetes.io/docs/concepts/storage/volumes/#downwardapi (the kubelet updates the file, except with
    ``subPath``); https://docs.coreweave.com/products/cks/nodes/spot-node-pools (the time before the drain).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import KEEP_ANNOTATION, KEEP_RECLAIM_NOTICE, NotTargeting, kept_fields
from webhook.capacity.placement.workload_class import CLASS_LABEL, CLASSES, TRAINING_OPERATORS, derive_class
from webhook.capacity.providers.pool import Gpu
from webhook.kube.notice import ACTIONS, EVICT, INFORM, NONE, ON_RECLAIM, VOLUME
from webhook.model.decision import Outcome, Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Concern, Facts, Keys, PolicyKind, SpecWarning, hint_for
from webhook.rules.reclaim_notice.plan import NoticePlan
from webhook.rules.reclaim_notice.spec import ReclaimNoticeSpec
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.kube.edit import PodEditor
    from webhook.kube.templates import Workload
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_CONTAINERS: Final = '.spec["containers", "initContainers"][]?'
_LONGEST: Final = 63  # of a label's value; in a file, it can be longer


class ReclaimNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled rule. ``acting`` has the actions by class, without ``none``."""

    acting: Mapping[str, str]
    spec: ReclaimNoticeSpec
    targeting: Targeting

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the label, and the fields that make a Pod target spot: the label of its namespace applies to these."""
        return self.targeting.concern() | Concern(labels=Keys(frozenset({ON_RECLAIM})))

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Add the volume, its mounts, and the label, as far as they are missing."""
        if (plan := self.plan(subject, context)) is not None:
            plan.apply(editor)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield a violation for an unknown label value, or those of the plan."""
        action, field = self._action(subject, context)
        if action not in ACTIONS:
            whose, shown = "the label" if field else "the namespace's label", action[:_LONGEST]
            yield warning(
                id="unknown-action",
                reason=f"{whose} {ON_RECLAIM} has the unknown value `{shown}`{did_you_mean(shown, ACTIONS)}",
                field=field,
                detail=f"The label has no effect. Known values: {', '.join(ACTIONS)}.",
                fix="set one of the known values, or remove the label",
            )
        elif (plan := _plan(subject, action)) is not None:
            yield from plan.violations(subject)

    def plan(self, subject: Subject, context: Context) -> NoticePlan | None:
        """Return the plan for a Pod, or None if the Pod stays unchanged. The trace records why."""
        return _plan(subject, self._action(subject, context)[0])

    def _action(self, subject: Subject, context: Context) -> tuple[str, str]:
        """Return the action, or an unknown value of a label, and the field of the Pod's label if that decides."""
        pod, trace = subject.pod, subject.trace
        if (own := pod.labels.get(ON_RECLAIM)) is not None:
            trace.say("action %s: its label", own[:_LONGEST])
            return own, f'metadata.labels["{ON_RECLAIM}"]'
        namespace = pod.metadata.namespace if subject.template else subject.request.namespace
        inherited = (context.view.namespaces.get(namespace) or {}).get(ON_RECLAIM)
        if inherited is None and not self.acting:
            trace.skip("no action: neither a label nor the policy asks for one")
            return NONE, ""
        target = self.targeting.target(subject, context.view)
        if isinstance(target, NotTargeting) and not target.chosen:
            trace.skip("no action: %s", target.because)
            return NONE, ""
        if inherited is not None:
            trace.say("action %s: the label of its namespace", inherited)
            return inherited, ""
        if isinstance(target, NotTargeting):
            gpu = any(pool.gpu is Gpu.YES for pool in target.chosen)
        else:
            gpu = target.gpu is True
        return self._of_class(subject, gpu=gpu), ""

    def _of_class(self, subject: Subject, *, gpu: bool) -> str:
        """Return the policy's action for the Pod's class."""
        name, because = subject.pod.labels.get(CLASS_LABEL, ""), "its label"
        if name not in self.spec.action:
            name, because = derive_class(subject.pod, TRAINING_OPERATORS, gpu=gpu)
        action = self.acting.get(name, NONE)
        subject.trace.say("action %s of class %s: %s", action, name, because)
        return action


def _plan(subject: Subject, action: str) -> NoticePlan | None:
    """Return the plan for a Pod with this action, or None if the Pod stays unchanged."""
    if action not in {INFORM, EVICT}:
        return None
    if KEEP_RECLAIM_NOTICE in kept_fields(subject.pod):
        subject.trace.say("unchanged: annotation %s", KEEP_ANNOTATION)
        return None
    return NoticePlan.of(subject.pod, action)


def _compile(spec: ReclaimNoticeSpec, facts: Facts) -> ReclaimNotice:
    return ReclaimNotice(
        acting={name: action for name, action in spec.action.items() if action != NONE},
        spec=spec,
        targeting=Targeting.of_policy(spec, facts),
    )


def _lint(spec: ReclaimNoticeSpec, _workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield a warning for each class with a misspelled name."""
    for name in spec.action:
        if hint := hint_for(name, CLASSES):
            yield SpecWarning(("action", name), f"is the action of a new class{hint}")


KIND: Final = PolicyKind(
    name="ReclaimNotice",
    spec=ReclaimNoticeSpec,
    writes=(
        # If the volume or the mount is the only item, ignore the whole list: Git has no empty list.
        f'.spec | select(.volumes // [] | all(.name == "{VOLUME}")) | .volumes',
        f'.spec.volumes[]? | select(.name == "{VOLUME}")',
        f'{_CONTAINERS} | select(.volumeMounts // [] | all(.name == "{VOLUME}")) | .volumeMounts',
        f'{_CONTAINERS} | .volumeMounts[]? | select(.name == "{VOLUME}")',
        f'.metadata.labels["{ON_RECLAIM}"]',
    ),
    not_exported="it changes Pods",
    compile=_compile,
    lint=_lint,
    rules=lambda _: (PODS_CREATE,),
    template_outcome=Outcome.WARN,
)
