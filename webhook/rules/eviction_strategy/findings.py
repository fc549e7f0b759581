"""Build the violations of EvictionStrategy, worded for whoever applies the workload.

Each states the risk in its reason, and the remedy as YAML below one line that says what to do with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.decision import Violation
from webhook.documents.yaml_writer import UNBROKEN, dump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.capacity.providers.schema import LabelSpec, TaintPatternSpec, TaintSpec
    from webhook.kube.pod import Pod, Toleration
    from webhook.rules.eviction_strategy.spec import EvictionStrategySpec

_GRACE = "spec.terminationGracePeriodSeconds"
_SHOWN = 63
"""Characters of a label's key or value that a finding repeats."""
_LISTED = 8
"""Tolerations that a remedy lists."""


def contradiction(spec: EvictionStrategySpec) -> Violation:
    """Return the violation for a Pod with both eviction labels."""
    interruptible, graceful = spec.interruptible.key, spec.graceful.key
    return Violation(
        id="contradiction",
        reason="two eviction strategies contradict each other: which of them a node action follows is not defined",
        field=_label(interruptible),
        detail=f"{interruptible} lets the Pod be deleted at once, {graceful} makes the node wait for its grace period.",
        fix=f"keep one label, without {interruptible} or without this one",
        yaml=_labels(spec.graceful),
    )


def bypassed(spec: EvictionStrategySpec, pod: Pod, index: int, taint: TaintPatternSpec) -> Violation:
    """Return the violation for a toleration that makes the label without effect."""
    tolerations = pod.spec.tolerations or []
    stay = [_toleration(each) for number, each in enumerate(tolerations) if number != index][:_LISTED]
    broad = not tolerations[index].key
    where = f"tolerating everything includes {taint.key}" if broad else f"it tolerates {taint.key}"
    lead = "name each taint that it is to tolerate" if broad else "tolerate only what is needed"
    if broad:
        stay.append({"key": "KEY", "operator": "Exists"})
    return Violation(
        id="bypassed",
        reason=f"{where}: the Pod may be evicted without its grace period",
        field=f"spec.tolerations[{index}]",
        detail=f"CoreWeave ignores {spec.graceful.key} for Pods that tolerate {_taint(taint)}.",
        fix=f"{lead}, without `{_inline(_toleration(tolerations[index]))}`",
        yaml=_tolerations(stay),
    )


def interrupted_state(spec: EvictionStrategySpec, held: str) -> Violation:
    """Return the violation for an interruptible Pod that can't be interrupted without harm."""
    return Violation(
        id="interrupted-state",
        reason=f"{held}, and interruptible Pods are deleted without their grace period",
        field=_label(spec.interruptible.key),
        detail="CoreWeave says never to make distributed training, single-instance databases or stateful services "
        "interruptible. Without either label they are never evicted.",
        fix=f"set no label, or, if it can save its work, this instead of {spec.interruptible.key}",
        yaml=_labels(spec.graceful),
    )


def grace_period(spec: EvictionStrategySpec, seconds: int) -> Violation:
    """Return the violation for a grace period longer than the strategy gives."""
    return Violation(
        id="grace-period",
        reason=f"a grace period of {seconds} s is not granted to interruptible Pods: what is not saved is lost",
        field=_GRACE,
        detail=f"CoreWeave does not wait for the full grace period of interruptible Pods, and a drain ends after "
        f"{spec.drain_timeout_seconds} s.",
        fix=f"make it gracefully interruptible, without {spec.interruptible.key}",
        yaml=_labels(spec.graceful),
    )


def sunk_tolerations(missing: Sequence[TaintSpec]) -> Violation:
    """Return the violation for a DaemonSet that is evicted from SUNK nodes or never scheduled there."""
    return Violation(
        id="sunk-tolerations",
        reason="a DaemonSet on SUNK nodes lacks their tolerations: its Pods are evicted there, or never start",
        field="spec.tolerations",
        detail=f"Missing: {', '.join(map(_taint, missing))}. A Slurm job does not start before every Pod is gone that "
        "does not tolerate SUNK's lock.",
        fix="add these",
        yaml=_tolerations([_tolerating(taint) for taint in missing]),
    )


def other_value(label: LabelSpec, value: str) -> Violation:
    """Return the violation for a label with a value that has no meaning."""
    return Violation(
        id="no-effect",
        reason=f"{label.key} says {json.dumps(value[:_SHOWN])}, not {json.dumps(label.value)}: it may have no effect",
        field=_label(label.key),
        detail=f"CoreWeave documents {json.dumps(label.value)} alone. A Pod without a strategy holds up its node.",
        fix="remove it, or write",
        yaml=_labels(label),
    )


def annotation(label: LabelSpec) -> Violation:
    """Return the violation for a label that was written as an annotation."""
    return Violation(
        id="no-effect",
        reason=f"{label.key} has no effect as an annotation: the Pod is never evicted, and holds up its node",
        field=f'metadata.annotations["{label.key}"]',
        detail="CoreWeave reads it among the labels.",
        fix="move it to the labels",
        yaml=_labels(label),
    )


def misspelt(key: str, meant: LabelSpec) -> Violation:
    """Return the violation for a label that resembles one of the eviction labels."""
    return Violation(
        id="no-effect",
        reason=f"label {key[:_SHOWN]} has no effect: the Pod is never evicted, and holds up its node",
        field=_label(key),
        detail=f"CoreWeave reads {meant.key}.",
        fix=f"write this instead of {key[:_SHOWN]}",
        yaml=_labels(meant),
    )


def on_the_workload(label: LabelSpec, kind: str) -> Violation:
    """Return the violation for a label on the workload that its Pods do not get."""
    return Violation(
        id="no-effect",
        reason=f"{label.key} is on the {kind} and not on its Pods: they are never evicted",
        field="metadata.labels",
        detail="CoreWeave reads the labels of Pods, which come from the pod template. Pods without one hold up their "
        "node.",
        fix="set it on the pod template",
        yaml=_labels(label),
    )


def _label(key: str) -> str:
    return f'metadata.labels["{key}"]'


def _labels(label: LabelSpec) -> str:
    return _yaml({"metadata": {"labels": {label.key: label.value}}})


def _tolerations(items: Sequence[dict[str, Any]]) -> str:
    return _yaml({"spec": {"tolerations": items}})


def _taint(taint: TaintPatternSpec | TaintSpec) -> str:
    value = f"={taint.value}" if taint.value else ""
    effect = f":{taint.effect}" if taint.effect else ""
    return f"{taint.key}{value}{effect}"


def _tolerating(taint: TaintSpec) -> dict[str, Any]:
    if taint.value:
        return {"key": taint.key, "operator": "Equal", "value": taint.value}
    return {"key": taint.key, "operator": "Exists"}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(toleration).items() if value not in ("", None)}


def _inline(value: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {each}" for name, each in value.items()) + "}"


def _yaml(value: dict[str, Any]) -> str:
    return dump(value, width=UNBROKEN, short_in_brackets=True)
