"""Write the CEL of a MutatingAdmissionPolicy: recognize a Pod's shape, look up the answer, and apply it.

`variables.yaml` has the text of the variables, and the ``.cel`` files have the mutation. This module fills in what
depends on policies, providers, and node pools.

The mutation is a JSONPatch: an ApplyConfiguration can't change tolerations, which are an atomic list. It is a single
expression because a mutation reads the changes of earlier ones.

Source: https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.bounds import LEAST
from webhook.capacity.placement.workload_class import TRAINING_OPERATORS
from webhook.kube.containers import DEVICE_CLASS_RESOURCES
from webhook.kube.edit import as_json, exec_sleep
from webhook.kube.pod import COMPLETING, DEFAULT_GRACE_SECONDS
from webhook.registration.cel import any_glob_matches, literal, quoted
from webhook.rules.reclaim_notice.rule import NOTICE_MOUNT, NOTICE_VOLUME

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.commands.export.mutating_policy.shapes import Answers
    from webhook.commands.export.mutating_policy.traits import Traits
    from webhook.rules.graceful_termination.rule import GracefulTermination
    from webhook.rules.reclaim_notice.rule import ReclaimNotice

_HERE: Final = Path(__file__).parent
_TEXTS: Final = msgspec.yaml.decode((_HERE / "variables.yaml").read_bytes(), type=dict[str, dict[str, str]])
_ALL_OF_BUDGET: Final = -1

MUTATION: Final = (_HERE / "mutation.cel").read_text(encoding="utf-8").rstrip()
"""The mutation, which reads the variables."""

NOTICE: Final = (_HERE / "notice.cel").read_text(encoding="utf-8").rstrip() % {
    "volume": literal(as_json(NOTICE_VOLUME)),
    "mount": literal(as_json(NOTICE_MOUNT)),
}
"""The operations of the notice, which read the variables."""


def placement_variables(
    traits: Traits, answers: Answers, providers: Collection[Provider], matching: str
) -> dict[str, str]:
    """Return the variables for the Pod's shape and its placement. Each one follows the variables that it reads.

    ``answers`` has the changes of the shapes. ``matching`` is an expression that is true if the policy matches the Pod.
    """
    devices = [glob for provider in providers for glob in provider.gpu.resources.patterns]
    schedulers = [glob for provider in providers for glob in provider.hands_off_schedulers.patterns]
    foreign = any_glob_matches("object.spec.?schedulerName.orValue('')", schedulers) if schedulers else ""
    return _filled(
        "placement",
        **traits.values,
        opening=_part("opening", taints=literal(traits.taints)) if traits.taints else "[]",
        size_at_most=LEAST,
        accelerators=literal(traits.accelerators),
        is_device=any_glob_matches("name", [*devices, DEVICE_CLASS_RESOURCES]),
        no_foreign_scheduler=foreign and f" &&\n!({foreign})",
        table=literal(answers.table),
        answers=literal(answers.answers),
        matches_placement=matching,
        default_grace=DEFAULT_GRACE_SECONDS,
    )


def termination_variables(rule: GracefulTermination | None, matching: str) -> dict[str, str]:
    """Return the variables for the grace period, and for the sleep of containers without preStop.

    ``matching`` is an expression that is true if the policy matches the Pod.
    """
    if rule is None:
        return _filled("no_termination")
    spec = rule.spec
    classes = {
        name: {
            "grace": _ALL_OF_BUDGET if class_.grace_seconds == "budget" else class_.grace_seconds,
            "sleep": class_.pre_stop_seconds,
        }
        for name, class_ in spec.classes.items()
    }
    # Every kubelet of a cluster that serves these policies supports the native sleep.
    hook = "dyn({'sleep': {'seconds': variables.sleep}})"
    if spec.method == "exec":
        *command, _ = as_json(exec_sleep(1))["exec"]["command"]
        shown = ", ".join(map(quoted, command))
        hook = f"dyn({{'exec': {{'command': [{shown}, 'sleep ' + string(variables.sleep)]}}}})"
    over_budget = " : variables.before > variables.budget ? variables.budget"
    return _filled(
        "termination",
        matches_termination=matching,
        classes=literal(classes),
        class_names=literal(list(classes)),
        derived_class=_derived_class(spec.training_operators.patterns),
        default_grace=DEFAULT_GRACE_SECONDS,
        least_grace=DEFAULT_GRACE_SECONDS if spec.untuned == "raise-only" else 0,
        clamped=over_budget if spec.over_budget == "clamp" else "",
        hook=hook,
    )


def notice_variables(rule: ReclaimNotice, matching: str) -> dict[str, str]:
    """Return the variables of the notice. ``matching`` is an expression that is true if the policy matches the Pod.

    A Pod's own label decides even if the Pod doesn't ask for spot. Pods that are left to the webhook get nothing.
    """
    actions = dict(rule.spec.action)
    derived = _derived_class(TRAINING_OPERATORS.patterns)
    names = literal(list(actions))
    of_class = _part("action_of_class", actions=literal(actions), action_classes=names, derived_class=derived)
    action = of_class if actions else "'none'"
    return _filled("notice", matches_notice=matching, action_of_class=action, is_mounted=_part("is_mounted"))


def _derived_class(operators: Sequence[str]) -> str:
    """Return an expression for the class of a Pod without a class label. ``operators`` are globs of owners."""
    group_kind = "(each.kind + (each.apiVersion.contains('/') ? '.' + each.apiVersion.split('/')[0] : ''))"
    is_operator = any_glob_matches(group_kind, operators or ("",))
    return _part("derived_class", completing=literal(list(COMPLETING)), is_operator=is_operator)


def _filled(section: str, **values: Any) -> dict[str, str]:
    """Return the variables of a section of `variables.yaml`, filled with these values."""
    return {name: text % values for name, text in _TEXTS[section].items()}


def _part(name: str, **values: str) -> str:
    return _TEXTS["parts"][name] % values
