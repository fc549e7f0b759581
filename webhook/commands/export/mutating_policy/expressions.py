"""Write the CEL of a MutatingAdmissionPolicy: recognise a Pod's shape, look up the answer, and apply it.

A JSONPatch, and not an ApplyConfiguration: a Pod's tolerations are an atomic list for server-side apply, which an
ApplyConfiguration may not change. Everything is one expression, as one mutation sees what the one before it has done.

Source: https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.bounds import LEAST
from webhook.capacity.placement.floor import FLOOR_ANNOTATION
from webhook.capacity.placement.target import (
    CAPACITY_LABEL,
    KEEP_ANNOTATION,
    NODE_POOL_ANNOTATION,
    SPOT,
    SPOT_PREFERRED,
)
from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, CLASS_LABEL, QUEUE_WORKER, STATELESS
from webhook.commands.export.mutating_policy.shapes import ASKED
from webhook.kube.containers import DEVICE_CLASS_RESOURCES
from webhook.kube.edit import as_json, exec_sleep
from webhook.kube.pod import DEFAULT_GRACE_SECONDS
from webhook.registration.cel import any_glob_matches, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.commands.export.mutating_policy.shapes import Answers, Vocabulary
    from webhook.rules.graceful_termination.rule import GracefulTermination

_NO_SHAPE: Final = "x"
"""A part of a key that is in no table."""

_NOT_ZERO: Final = "^[-+0.]*[1-9]"
_ALL_OF_BUDGET: Final = -1

_POD: Final = {
    "labels": "object.?metadata.?labels.orValue({})",
    "annotations": "object.?metadata.?annotations.orValue({})",
    "containers": "object.spec.containers + object.spec.?initContainers.orValue([]) + "
    "object.spec.?ephemeralContainers.orValue([])",
    "tolerations": "object.spec.?tolerations.orValue([])",
    "selector": "object.spec.?nodeSelector.orValue({})",
    "owner": "object.?metadata.?ownerReferences.orValue([]).filter(each, each.?controller.orValue(false))",
    "keeps": f"variables.annotations[?{quoted(KEEP_ANNOTATION)}].orValue('').split(',').map(each, each.trim())",
}

_HAS_HOOK: Final = (
    "variables.containers.exists(each, has(each.lifecycle) && "
    "(has(each.lifecycle.preStop) || has(each.lifecycle.postStart)))"
)

_EFFECT: Final = "each.?effect.orValue('')"
_OPERATOR: Final = "each.?operator.orValue('')"
_KEY: Final = "each.?key.orValue('')"
_VALUE: Final = "each.?value.orValue('')"
_EQUALS: Final = f"({_OPERATOR} == '' || {_OPERATOR} == 'Equal')"

# As `webhook.kube.tolerations` has it: whether `each` covers the wanted toleration, and whether it tolerates the taint.
_COVERS: Final = (
    f"({_EFFECT} == '' || {_EFFECT} == wanted.effect) && !has(each.tolerationSeconds) && "
    f"({_OPERATOR} == 'Exists' ? ({_KEY} == '' || {_KEY} == wanted.key) : "
    f"{_EQUALS} && wanted.operator == 'Equal' && {_KEY} == wanted.key && {_VALUE} == wanted.?value.orValue(''))"
)
_TOLERATES: Final = (
    f"({_EFFECT} == '' || {_EFFECT} == taint.effect) && "
    f"({_OPERATOR} == 'Exists' ? ({_KEY} == '' || {_KEY} == taint.key) : "
    f"{_EQUALS} && {_KEY} == taint.key && {_VALUE} == taint.value)"
)

_MISSING: Final = (
    f"variables.placement.?tolerations.orValue([]).filter(wanted, !variables.tolerations.exists(each, {_COVERS}))"
)

MUTATION: Final = """\
variables.silent || !variables.expressible || variables.answer.size() == 0 ||
(variables.grace < variables.before && variables.hooks) ? [] : (
  variables.missing.size() == 0 ? [] :
  variables.tolerations.size() > 0 ?
  variables.missing.map(each, JSONPatch{op: 'add', path: '/spec/tolerations/-', value: each}) :
  [JSONPatch{op: 'add', path: '/spec/tolerations', value: variables.missing}]
) + (
  variables.selecting.size() == 0 ? [] :
  variables.selector.size() > 0 ?
  variables.selecting.map(key, JSONPatch{
    op: 'add', path: '/spec/nodeSelector/' + jsonpatch.escapeKey(key), value: variables.selecting[key]
  }) :
  [JSONPatch{op: 'add', path: '/spec/nodeSelector', value: variables.selecting}]
) + (
  variables.affinity.size() == 0 ? [] :
  has(object.spec.affinity) ?
  [JSONPatch{op: 'add', path: '/spec/affinity/nodeAffinity', value: variables.affinity}] :
  [JSONPatch{op: 'add', path: '/spec/affinity', value: {'nodeAffinity': variables.affinity}}]
) + (
  variables.grace == variables.before ? [] :
  [JSONPatch{op: 'add', path: '/spec/terminationGracePeriodSeconds', value: variables.grace}]
) + (
  !(variables.sleep > 0 && variables.sleep < variables.grace) ? [] :
  object.spec.containers.transformList(
    index, each, !has(each.lifecycle) || !has(each.lifecycle.preStop),
    JSONPatch{
      op: 'add',
      path: '/spec/containers/' + string(index) + '/lifecycle' + (has(each.lifecycle) ? '/preStop' : ''),
      value: has(each.lifecycle) ? variables.hook : dyn({'preStop': variables.hook})
    }
  )
)"""
"""The mutation, by the variables below."""


def variables(
    words: Vocabulary,
    answers: Answers,
    *,
    schedulers: Collection[str],
    placing: str,
    termination: GracefulTermination | None,
    stopping: str,
) -> dict[str, str]:
    """Return the variables of the policy, each after those that it reads.

    ``answers`` are what becomes of the shapes. ``placing`` and ``stopping`` are expressions: whether the policies match
    the Pod.
    """
    return {
        **_POD,
        "expressible": _expressible(words, schedulers),
        **_key(words),
        "number": f"{literal(answers.table)}[?variables.key].orValue(-1)",
        "answer": f"variables.number < 0 ? dyn({{}}) : dyn({literal(answers.answers)}[variables.number])",
        "kept": "('node-selector' in variables.keeps ? 'n' : '') + ('tolerations' in variables.keeps ? 't' : '')",
        "placement": f"variables.answer.size() > 0 && {placing} ? "
        "dyn(variables.answer.placements[variables.kept]) : dyn({})",
        "missing": _MISSING,
        "selecting": "variables.placement.?nodeSelector.orValue({})",
        "affinity": "variables.placement.?nodeAffinity.orValue({})",
        **_termination(termination, stopping),
    }


def _expressible(words: Vocabulary, schedulers: Collection[str]) -> str:
    """Return an expression that is true if nothing of the Pod matters that no shape has, and it is of ordinary size."""
    known, devices = literal(list(words.resources)), (*words.accelerators, DEVICE_CLASS_RESOURCES)
    others = f"!(name in {known}) && {any_glob_matches('name', devices)} && {_more_than_zero('some[name]')}"
    maps = "[each.?resources.?limits.orValue({}), each.?resources.?requests.orValue({})]"
    sizes = [
        *(f"variables.{name}.size()" for name in ("labels", "annotations", "containers", "tolerations", "selector")),
        "object.spec.?volumes.orValue([]).size()",
        f"variables.containers.map(each, {maps}.map(some, some.size()).sum()).sum()",
    ]
    lines = [
        "object.spec.?nodeName.orValue('') == ''",
        "!variables.owner.exists(each, each.kind == 'DaemonSet')",
        f"!({quoted(FLOOR_ANNOTATION)} in variables.annotations)",
        "!has(object.spec.os)",
        "object.spec.?resourceClaims.orValue([]).size() == 0",
        "(!has(object.spec.affinity) || !has(object.spec.affinity.nodeAffinity))",
        f"{' + '.join(sizes)} <= {LEAST}",
        f"!variables.containers.exists(each, {maps}.exists(some, some.exists(name, {others})))",
    ]
    if schedulers:
        scheduler = "object.spec.?schedulerName.orValue('')"
        lines.append(f"!({any_glob_matches(scheduler, schedulers)})")
    return " &&\n".join(lines)


def _more_than_zero(quantity: str) -> str:
    return f"string({quantity}).matches({quoted(_NOT_ZERO)})"


def _key(words: Vocabulary) -> dict[str, str]:
    """Return variables for the key of the Pod's shape, as `PodShape.key` makes it."""
    letters = {each: ASKED[each] for each in (SPOT, SPOT_PREFERRED)}
    label = quoted(CAPACITY_LABEL)
    inherited = f"namespaceObject.?metadata.?labels[?{label}].orValue('')"
    selectors = {f"{key}={value}": str(index) for index, (key, value) in enumerate(words.selectors)}
    known = {name: str(index) for index, name in enumerate(words.names)}
    annotation = quoted(NODE_POOL_ANNOTATION)
    requested = [
        f"variables.containers.exists(each, {' || '.join(map(_more_than_zero, members))}) ? [{quoted(str(index))}] : []"
        for index, each in enumerate(words.resources)
        for members in [[f"each.?resources.?{of}[?{quoted(each)}].orValue('0')" for of in ("limits", "requests")]]
    ]
    taints = [
        {"key": each.key, "value": each.value, "effect": each.effect, "number": str(index)}
        for index, each in enumerate(words.taints)
    ]
    tolerated = f"{literal(taints)}.filter(taint, variables.tolerations.exists(each, {_TOLERATES}))"
    return {
        "asked": f"{label} in variables.labels ? "
        f"{literal(letters)}[?variables.labels[{label}]].orValue({quoted(_NO_SHAPE)}) : "
        f"{literal(letters)}[?{inherited}].orValue({quoted(ASKED[''])})",
        "selected": f"variables.selector.size() == 0 ? '' : variables.selector.size() > 1 ? {quoted(_NO_SHAPE)} : "
        f"{literal(selectors)}[?variables.selector.map(key, key + '=' + variables.selector[key])[0]]"
        f".orValue({quoted(_NO_SHAPE)})",
        "named": f"!({annotation} in variables.annotations) ? '' : "
        f"{literal(known or {'': ''})}[?variables.annotations[{annotation}]].orValue({quoted(_NO_SHAPE)})",
        "silent": f"variables.asked == {quoted(ASKED[''])} && variables.selected == '' && variables.named == ''",
        "requests": " + ".join(f"({each})" for each in requested) or "[]",
        "requested": _only("variables.requests"),
        "opening": f"{tolerated}.map(taint, taint.number)" if taints else "[]",
        "tolerated": _only("variables.opening"),
        "key": "variables.asked + [variables.selected, variables.named, variables.requested, variables.tolerated]"
        ".join('.')",
    }


def _only(numbers: str) -> str:
    """Return an expression for the only item of a list; empty if there is none; no shape has several."""
    return f"{numbers}.size() == 0 ? '' : {numbers}.size() > 1 ? {quoted(_NO_SHAPE)} : string({numbers}[0])"


def _termination(rule: GracefulTermination | None, stopping: str) -> dict[str, str]:
    """Return variables for the grace period, and for the sleep of containers without preStop."""
    before = f"object.spec.?terminationGracePeriodSeconds.orValue({DEFAULT_GRACE_SECONDS})"
    found = {"before": before, "hooks": _HAS_HOOK}
    if rule is None:
        return {**found, "grace": "variables.before", "sleep": "0", "hook": "dyn({})"}
    spec = rule.spec
    classes = {
        name: {
            "grace": _ALL_OF_BUDGET if each.grace_seconds == "budget" else each.grace_seconds,
            "sleep": each.pre_stop_seconds,
        }
        for name, each in rule.spec.classes.items()
    }
    group_kind = "(variables.owner[0].kind + (variables.owner[0].apiVersion.contains('/') ? "
    group_kind += "'.' + variables.owner[0].apiVersion.split('/')[0] : ''))"
    operators = rule.training_operators.patterns
    trains = f" || {any_glob_matches(group_kind, operators)}" if operators else ""
    label = quoted(CLASS_LABEL)
    least = DEFAULT_GRACE_SECONDS if spec.untuned == "raise-only" else 0
    longest = "variables.class.grace == -1 || variables.class.grace > variables.budget ? variables.budget : "
    longest += "variables.class.grace"
    over = " : variables.before > variables.budget ? variables.budget" if spec.over_budget == "clamp" else ""
    # Every kubelet of a cluster that serves these policies has the native sleep.
    hook = "dyn({'sleep': {'seconds': variables.sleep}})"
    if spec.method == "exec":
        *command, _ = as_json(exec_sleep(1))["exec"]["command"]
        shown = ", ".join(map(quoted, command))
        hook = f"dyn({{'exec': {{'command': [{shown}, 'sleep ' + string(variables.sleep)]}}}})"
    sleeps = "'pre-stop' in variables.keeps || variables.budget == 0 ? 0 : variables.class.sleep"
    return {
        **found,
        "budget": f"{stopping} ? int(variables.answer.?budget.orValue(0)) : 0",
        "class": f"{literal(classes)}["
        f"variables.labels[?{label}].orValue('') in {literal(list(classes))} ? variables.labels[{label}] : "
        f"variables.owner.size() == 0 ? {quoted(STATELESS)} : "
        f"variables.answer.?gpu.orValue(false) && (variables.owner[0].kind == 'Job'{trains}) ? "
        f"{quoted(CHECKPOINTING)} : "
        f"variables.owner[0].kind == 'Job' ? {quoted(BATCH)} : "
        "variables.owner[0].kind == 'ReplicaSet' && "
        "!variables.containers.exists(each, each.?ports.orValue([]).size() > 0) ? "
        f"{quoted(QUEUE_WORKER)} : {quoted(STATELESS)}]",
        "fitting": f"{longest}",
        "grace": "variables.budget == 0 || 'grace-period' in variables.keeps ? variables.before : "
        f"variables.before == {DEFAULT_GRACE_SECONDS} ? "
        f"(variables.fitting < {least} ? {least} : variables.fitting){over} : variables.before",
        "sleep": sleeps,
        "hook": hook,
    }
