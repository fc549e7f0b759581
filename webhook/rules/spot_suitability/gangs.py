"""Find gangs with one part on spot and another part not. The Pods of a gang work only together.

The leader (a launcher, a driver, a head) doesn't count as a part of the gang, because it belongs on demand.

Source: https://kueue.sigs.k8s.io/docs/concepts/workload/ (admitted as a whole);
https://jobset.sigs.k8s.io/docs/concepts/ (a failed Job recreates all);
https://lws.sigs.k8s.io/docs/concepts/ (RecreateGroupOnPodRestart by default);
https://scheduler-plugins.sigs.k8s.io/docs/plugins/coscheduling/ (the label of a PodGroup);
https://kubernetes.io/docs/concepts/workloads/pods/scheduling-group/ (Kubernetes' own PodGroup).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.bounds import OverBoundError
from webhook.base.field_paths import field_path
from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT_PREFERRED, NotTargeting, Target
from webhook.kube.layouts import FoundTemplate, Steps, member
from webhook.kube.templates import TEMPLATES_AT_MOST, Workload, pod_of
from webhook.model.decision import Violation
from webhook.model.review import MalformedObjectError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.base.globs import Globs
    from webhook.capacity.view import ClusterView
    from webhook.rules.spot_suitability.spec import GangSpec
    from webhook.rules.subject import Subject
    from webhook.rules.targeting import Targeting

_SCHEDULING_GROUP: Final = "spec.schedulingGroup"
"""The field of a Pod with the name of its PodGroup in Kubernetes, whose Pods can start together."""
_SHOWN: Final = 120
"""Characters of a field path that a finding repeats: members of a map may have long names."""


class Gangs(msgspec.Struct, frozen=True, kw_only=True):
    """The gangs of a policy: Pods of one object that work only together.

    Attributes:
        specs: the gangs, each with the globs of its kinds and the path of its elastic field.
        leaders: lowercase globs for the names of parts that lead the others.
    """

    specs: tuple[tuple[GangSpec, Globs, Steps], ...]
    leaders: Globs
    workloads: Mapping[tuple[str, str], Workload]

    def violations(
        self, subject: Subject, target: Target, targeting: Targeting, view: ClusterView
    ) -> Iterator[Violation]:
        """Yield a violation if the Pod is part of a gang on spot, and another part isn't on spot, or may not be."""
        kind = subject.request.kind
        workload = self.workloads.get((kind.group, kind.kind))
        gang = self._gang(subject) if subject.template and workload is not None else None
        if gang is None or workload is None:
            return
        templates = islice(workload.templates(subject.object or {}), TEMPLATES_AT_MOST)
        parts = [template for template in templates if not self._leads(template)]
        part = next((template for template in parts if template.path == subject.path), None)
        if part is None:
            return
        if target.preferred:
            if gang.restarts:
                yield Violation(
                    id="gang-split",
                    reason=f"{SPOT_PREFERRED} can split one gang between spot and on-demand nodes",
                    field=target.field,
                    detail=f"They work only together ({gang.name}), so a reclaimed node also stops those on demand.",
                    fix="run the whole gang on spot, or all of it on demand",
                    yaml={"metadata": {"labels": {CAPACITY_LABEL: "spot"}}},
                )
            return
        # Compare the first part with all others, and the others only with the first: report each pair once.
        for other in parts[1:] if part is parts[0] else parts[:1]:
            if _is_off_spot(other, workload, subject, targeting, view):
                yield Violation(
                    id="gang-split",
                    reason=f"this part of the gang is on spot, and part {field_path(other.path)[:_SHOWN]} isn't",
                    field=target.field,
                    detail=f"While one part waits for spot nodes, the other part can't work ({gang.name}).",
                    fix=f"give all parts the same label `{CAPACITY_LABEL}`; only the leader can stay on demand",
                )
                return

    def _gang(self, subject: Subject) -> GangSpec | None:
        metadata = subject.workload.metadata
        native = (_SCHEDULING_GROUP,) if subject.pod.spec.schedulingGroup else ()
        maps = (metadata.labels or {}, metadata.annotations or {}, subject.pod.labels, subject.pod.annotations, native)
        for spec, kinds, elastic_path in self.specs:
            named = kinds.match(subject.request.kind.group_kind) or (
                spec.key and any(spec.key in keys for keys in maps)
            )
            elastic = elastic_path and member(subject.object, elastic_path) is not None
            if named and not elastic:
                return spec
        return None

    def _leads(self, part: FoundTemplate) -> bool:
        return any(isinstance(step, str) and self.leaders.match(step.lower()) for step in part.identity)


def _is_off_spot(
    part: FoundTemplate, workload: Workload, subject: Subject, targeting: Targeting, view: ClusterView
) -> bool:
    try:
        pod = pod_of(part, workload, subject.request)
    except (MalformedObjectError, OverBoundError):
        return False
    target = targeting.target_of_pod(pod, subject.request.namespace, view)
    return isinstance(target, NotTargeting) and not (target.unknown or target.untouchable)
