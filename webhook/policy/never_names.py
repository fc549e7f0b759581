"""Names that are nearly those of kinds, classes and fields that are known: written so, they find nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.workload_class import CHECKPOINTING, QUEUE_WORKER, STATELESS
from webhook.globs import is_glob
from webhook.kube.resources import plural_of
from webhook.policy.never import LONG, Never, are_alike, is_misspelt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from webhook.kube.templates import Workload
    from webhook.policy.facts import WorkloadTemplatesSpec

_KINDS: Final = {
    "distributed": "distributed",
    "replicated": "replicated",
    "stateful": "stateful",
    "training_operators": "trainingOperators",
}
"""Fields of policies that list kinds as ``Kind.group``, and how they are written."""

_CLASSES: Final = (CHECKPOINTING, QUEUE_WORKER, STATELESS)
"""The long ones; of a short name a letter makes another."""


def nearly_known(spec: Any, workloads: Collection[Workload]) -> Iterator[Never]:  # noqa: ANN401 - of any policy kind
    """What of a policy is nearly a kind of workload, a class or a member of a template's path that is known."""
    for name, written in _KINDS.items():
        for number, pattern in enumerate(getattr(spec, name, ())):
            if meant := _kind_meant(pattern, workloads):
                yield Never((written, number), f"matches nothing that is known, did you mean `{meant}`?")
    for name in getattr(spec, "classes", ()):
        if meant := next((each for each in _CLASSES if is_misspelt(name.rstrip("0123456789"), each)), ""):
            yield Never(("classes", name), f"makes another class beside `{meant}`, did you mean that one?")
    members = {each for workload in workloads for path in workload.paths for each in path.members}
    for number, driver in enumerate(getattr(spec, "drivers", ())):
        if meant := _member_meant(driver.member, members):
            text = f"no template path that is known has a member {driver.member}, did you mean `{meant}`?"
            yield Never(("drivers", number, "member"), text)


def _kind_meant(pattern: str, workloads: Iterable[Workload]) -> str:
    """The kind that is nearly written so: as a plural, in other letters, or in a group that is like its own."""
    kind, _, group = pattern.partition(".")
    if is_glob(pattern) or any((kind, group) == (each.kind, each.group) for each in workloads):
        return ""
    for each in workloads:
        same = kind.lower() in {each.kind.lower(), each.resource}
        misspelt = group == each.group and len(kind) >= LONG and is_misspelt(kind, each.kind)
        if misspelt or (same and (group == each.group or are_alike(group, each.group))):
            return f"{each.kind}.{each.group}"
    return ""


def _member_meant(member: str, members: Collection[str]) -> str:
    if len(member) < LONG or member in members:
        return ""
    return next((each for each in sorted(members) if each.startswith(member) or is_misspelt(member, each)), "")


def unlikely_resources(spec: WorkloadTemplatesSpec) -> Iterator[Never]:
    """Resources that are named in the singular, or not quite as their kind: the API server asks about the plural."""
    for number, item in enumerate(spec.workloads):
        plural = plural_of(item.kind)
        singular = item.resource == item.kind.lower() and not item.resource.endswith("s")
        misspelt = len(plural) >= LONG and is_misspelt(item.resource, plural) and item.resource != f"{plural[:-1]}es"
        if singular or misspelt:
            text = f"a resource is named in the plural: that of kind {item.kind} is likely `{plural}`"
            yield Never(("workloads", number, "resource"), text)
