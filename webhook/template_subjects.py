"""Find the pod templates of a request that are to be judged, and build their subjects."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.bounds import Counts, OverBoundError
from webhook.kube.pod_decoding import pod_from_template
from webhook.kube.templates import TEMPLATES_AT_MOST, pod_of
from webhook.review import MalformedObjectError
from webhook.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Pod
    from webhook.kube.templates import FoundTemplate, Workload

_encoder: Final = msgspec.json.Encoder(order="deterministic")


def template_subjects(
    whole: Subject, workload: Workload, *, recounting: bool
) -> Iterator[tuple[FoundTemplate, Subject | MalformedObjectError | None]]:
    """Yield each pod template with the subject of the Pod that it will become.

    Yield None for a template that an UPDATE does not change, and the error for one that can't be read as a Pod.

    Args:
        whole: the subject of the object that the templates are in.
        workload: the kind of that object.
        recounting: judge unchanged templates, too, if the request leaves fewer Pods of them.

    Raises:
        OverBoundError: there are too many templates, or their Pods are larger than a bound.
    """
    templates = _find_templates(workload, whole.object)
    there = [] if whole.old_object is None else _find_templates(workload, whole.old_object)
    recounted = recounting and bool(there) and _has_fewer_replicas(whole)
    before = {found.identity: found.value for found in there}
    # Wherever it was: templates without names are numbered, and removing one moves those behind it.
    known = {_encoder.encode(found.value) for found in there}
    counts = Counts()
    for found in templates:
        unchanged = bool(there) and _encoder.encode(found.value) in known
        if unchanged and not recounted:
            yield found, None
            continue
        try:
            pod = pod_of(found, workload, whole.request, counts)
        except MalformedObjectError as error:
            yield found, error
            continue
        old_pod = _parse_old_template(before.get(found.identity))
        subject = Subject.of_template(whole, pod, old_pod, found)
        subject.unchanged = unchanged
        yield found, subject


def _find_templates(workload: Workload, value: dict[str, Any] | None) -> list[FoundTemplate]:
    found = list(islice(workload.templates(value or {}), TEMPLATES_AT_MOST + 1))
    if len(found) > TEMPLATES_AT_MOST:
        reason = f"there are more than the {TEMPLATES_AT_MOST} pod templates that are judged"
        raise OverBoundError(workload.paths[-1].text, reason)
    return found


def _has_fewer_replicas(whole: Subject) -> bool:
    """Return whether the request lowers the number of replicas, or raises it from zero.

    With more of them, too few would have been too few before.
    """
    specs = (workload.spec for workload in (whole.old_workload, whole.workload))
    before, after = (1 if spec.replicas is None else spec.replicas for spec in specs)
    return after < before or before == 0 < after


def _parse_old_template(template: object) -> Pod | None:
    """Return the Pod of a template before the update, or None if it was missing or could not be parsed."""
    if template is None:
        return None
    try:
        return pod_from_template(template, "")
    except (MalformedObjectError, OverBoundError):
        return None
