"""Write the CEL of ReclaimNotice: the action of a Pod, and the volume, the mounts, and the label that are missing.

A Pod's own label decides even if the Pod doesn't ask for spot. Nothing is added to Pods that are left to the webhook.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.target import KEEP_RECLAIM_NOTICE
from webhook.capacity.placement.workload_class import CLASS_LABEL, TRAINING_OPERATORS
from webhook.commands.export.mutating_policy.expressions import derived_class
from webhook.kube.edit import as_json
from webhook.kube.notice import EVICT, FILE, INFORM, NONE, ON_RECLAIM, VOLUME
from webhook.registration.cel import literal, quoted
from webhook.rules.reclaim_notice.rule import ANNOTATION_FIELD, NOTICE_MOUNT, NOTICE_VOLUME

if TYPE_CHECKING:
    from webhook.rules.reclaim_notice.rule import ReclaimNotice

_LABEL: Final = quoted(ON_RECLAIM)

# As in `webhook.rules.reclaim_notice.rule`: a mount in place of the notice's, and a volume with its contents.
_WITHIN: Final = "^/*(var/+)?run/+spotgate(/.*)?$"
_ABOVE: Final = "^/*((var/+)?run|var)/*$"
_IN_PLACE: Final = (
    f"each.?volumeMounts.orValue([]).exists(mount, mount.name == {quoted(VOLUME)} || "
    f"mount.mountPath.matches({quoted(_WITHIN)}) || "
    f"(mount.?readOnly.orValue(false) && mount.mountPath.matches({quoted(_ABOVE)})))"
)
_HAS_NOTICE: Final = (
    "volume.?downwardAPI.?items.orValue([]).exists(item, "
    f"item.path == {quoted(FILE)} && item.?fieldRef.?fieldPath.orValue('') == {quoted(ANNOTATION_FIELD)})"
)

NOTICE: Final = Path(__file__).with_name("notice.cel").read_text(encoding="utf-8").rstrip() % {
    "volume": literal(as_json(NOTICE_VOLUME)),
    "mount": literal(as_json(NOTICE_MOUNT)),
    "label": _LABEL,
}
"""The operations of the notice, which read the variables below."""


def notice_variables(rule: ReclaimNotice, matching: str) -> dict[str, str]:
    """Return the variables of the notice. ``matching`` is an expression that is true if the policy matches the Pod."""
    actions = dict(rule.spec.action)
    label = quoted(CLASS_LABEL)
    of_class = (
        f"{literal(actions)}[?variables.labels[?{label}].orValue('') in {literal(list(actions))} ? "
        f"variables.labels[{label}] : {derived_class(TRAINING_OPERATORS.patterns)}].orValue({quoted(NONE)})"
    )
    inherited = f"namespaceObject.?metadata.?labels[?{_LABEL}]"
    return {
        "action": f"{_LABEL} in variables.labels ? variables.labels[{_LABEL}] : "
        f"variables.silent ? {quoted(NONE)} : {inherited}.orValue({of_class if actions else quoted(NONE)})",
        "left": "!variables.expressible || (!variables.silent && variables.answer.size() == 0) || "
        "(variables.grace < variables.before && variables.hooks)",
        "told": f"{matching} && !variables.left && variables.action in {literal([INFORM, EVICT])} && "
        f"!({quoted(KEEP_RECLAIM_NOTICE)} in variables.keeps)",
        "volumes": "object.spec.?volumes.orValue([])",
        "declared": f"variables.volumes.filter(volume, volume.name == {quoted(VOLUME)})",
        "mounts": f"!variables.told || variables.declared.exists(volume, !{_HAS_NOTICE}) ? [] :\n"
        f"{_mounts('containers')} +\n" + _mounts("initContainers", "each.?restartPolicy.orValue('') == 'Always' && "),
    }


def _mounts(members: str, condition: str = "") -> str:
    """Return an expression for the JSON pointers of the mounts that are missing in these containers."""
    return (
        f"object.spec.?{members}.orValue([]).transformList(index, each, {condition}!{_IN_PLACE},\n"
        f"  '/spec/{members}/' + string(index) + '/volumeMounts' + "
        "(each.?volumeMounts.orValue([]).size() > 0 ? '/-' : ''))"
    )
