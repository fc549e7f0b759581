"""Write the CEL of a MutatingAdmissionPolicy: recognize a Pod's shape, look up the answer, and apply it.

The mutation is a JSONPatch: an ApplyConfiguration can't change tolerations, which are an atomic list. It is a single
expression because a mutation reads the changes of earlier ones.

Source: https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.bounds import LEAST
from webhook.capacity.placement.floor import FLOOR_ANNOTATION
from webhook.capacity.placement.target import KEEP_ANNOTATION
from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, CLASS_LABEL, QUEUE_WORKER, STATELESS
from webhook.commands.export.mutating_policy.traits import COVERS, Trait, more_than_zero
from webhook.kube.containers import DEVICE_CLASS_RESOURCES
from webhook.kube.edit import as_json, exec_sleep
from webhook.kube.pod import COMPLETING, DEFAULT_GRACE_SECONDS
from webhook.registration.cel import any_glob_matches, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.commands.export.mutating_policy.shapes import Answers
    from webhook.rules.graceful_termination.rule import GracefulTermination

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

_MISSING: Final = (
    f"variables.placement.?tolerations.orValue([]).filter(wanted, !variables.tolerations.exists(each, {COVERS}))"
)

MUTATION: Final = Path(__file__).with_name("mutation.cel").read_text(encoding="utf-8").rstrip()
"""The mutation, which reads the variables below."""


def placement_variables(
    traits: Iterable[Trait], answers: Answers, accelerators: list[str], providers: Collection[Provider], matching: str
) -> dict[str, str]:
    """Return the variables for the Pod's shape and its placement. Each one follows the variables that it reads.

    ``answers`` has the changes of the shapes. ``matching`` is an expression that is true if the policy matches the Pod.
    """
    return {
        **_POD,
        "expressible": _expressible(accelerators, providers),
        **{name: text for trait in traits for name, text in trait.variables.items()},
        "key": "variables.asked + [variables.selected, variables.named, variables.requested, variables.tolerated]"
        ".join('.')",
        "number": f"{literal(answers.table)}[?variables.key].orValue(-1)",
        "answer": f"variables.number < 0 ? dyn({{}}) : dyn({literal(answers.answers)}[variables.number])",
        "kept": "('node-selector' in variables.keeps ? 'n' : '') + ('tolerations' in variables.keeps ? 't' : '')",
        "placement": f"variables.answer.size() > 0 && {matching} ? "
        "dyn(variables.answer.placements[variables.kept]) : dyn({})",
        "missing": _MISSING,
        "selecting": "variables.placement.?nodeSelector.orValue({})",
        "affinity": "variables.placement.?nodeAffinity.orValue({})",
        "gpu": "variables.answer.?gpu.orValue(false)",
    }


def _expressible(known: list[str], providers: Collection[Provider]) -> str:
    """Return an expression that is true if the shapes express the Pod, and it has an ordinary size."""
    devices = [glob for provider in providers for glob in provider.gpu.resources.patterns]
    devices.append(DEVICE_CLASS_RESOURCES)
    schedulers = [glob for provider in providers for glob in provider.hands_off_schedulers.patterns]
    others = f"!(name in {literal(known)}) && {any_glob_matches('name', devices)} && {more_than_zero('some[name]')}"
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


def termination_variables(rule: GracefulTermination | None, matching: str) -> dict[str, str]:
    """Return the variables for the grace period, and for the sleep of containers without preStop.

    ``matching`` is an expression that is true if the policy matches the Pod.
    """
    before = f"object.spec.?terminationGracePeriodSeconds.orValue({DEFAULT_GRACE_SECONDS})"
    of_pod = {"before": before, "hooks": _HAS_HOOK}
    if rule is None:
        return {**of_pod, "grace": "variables.before", "sleep": "0", "hook": "dyn({})"}
    spec = rule.spec
    classes = {
        name: {
            "grace": _ALL_OF_BUDGET if class_.grace_seconds == "budget" else class_.grace_seconds,
            "sleep": class_.pre_stop_seconds,
        }
        for name, class_ in rule.spec.classes.items()
    }
    label = quoted(CLASS_LABEL)
    least = DEFAULT_GRACE_SECONDS if spec.untuned == "raise-only" else 0
    longest = "variables.class.grace == -1 || variables.class.grace > variables.budget ? variables.budget : "
    longest += "variables.class.grace"
    over = " : variables.before > variables.budget ? variables.budget" if spec.over_budget == "clamp" else ""
    # Every kubelet of a cluster that serves these policies supports the native sleep.
    hook = "dyn({'sleep': {'seconds': variables.sleep}})"
    if spec.method == "exec":
        *command, _ = as_json(exec_sleep(1))["exec"]["command"]
        shown = ", ".join(map(quoted, command))
        hook = f"dyn({{'exec': {{'command': [{shown}, 'sleep ' + string(variables.sleep)]}}}})"
    sleeps = "'pre-stop' in variables.keeps || variables.budget == 0 ? 0 : variables.class.sleep"
    return {
        **of_pod,
        "budget": f"{matching} ? int(variables.answer.?budget.orValue(0)) : 0",
        "class": f"{literal(classes)}["
        f"variables.labels[?{label}].orValue('') in {literal(list(classes))} ? variables.labels[{label}] : "
        f"{derived_class(spec.training_operators.patterns)}]",
        "fitting": longest,
        "grace": "variables.budget == 0 || 'grace-period' in variables.keeps ? variables.before : "
        f"variables.before == {DEFAULT_GRACE_SECONDS} ? "
        f"(variables.fitting < {least} ? {least} : variables.fitting){over} : variables.before",
        "sleep": sleeps,
        "hook": hook,
    }


def derived_class(operators: Sequence[str]) -> str:
    """Return an expression for the class of a Pod without a class label. ``operators`` are globs of owners."""
    group_kind = "(each.kind + (each.apiVersion.contains('/') ? '.' + each.apiVersion.split('/')[0] : ''))"
    return (
        f"object.spec.?restartPolicy.orValue('') in {literal(list(COMPLETING))} ? "
        f"(variables.gpu ? {quoted(CHECKPOINTING)} : {quoted(BATCH)}) : variables.gpu && "
        f"variables.owner.exists(each, {any_glob_matches(group_kind, operators or ('',))}) ? {quoted(CHECKPOINTING)} : "
        "variables.owner.exists(each, each.kind == 'ReplicaSet') && "
        "!variables.containers.exists(each, each.?ports.orValue([]).size() > 0) ? "
        f"{quoted(QUEUE_WORKER)} : {quoted(STATELESS)}"
    )
