"""Decode Pods and pod templates. Skip the fields that spotgate doesn't read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base import bounds
from webhook.kube.containers import quantities_of
from webhook.kube.pod import NodeAffinity, Pod
from webhook.model.review import MalformedObjectError, decoded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


_decoder: Final = msgspec.json.Decoder(Pod)


def decode_pod(raw: msgspec.Raw | bytes) -> Pod:
    """Decode a Pod from JSON.

    Raises:
        MalformedObjectError: a field has the wrong type.
        OverBoundError: the Pod is larger than a bound.
    """
    bounds.expect_decodable(raw, bounds.DECODED_AT_MOST)
    pod = decoded(_decoder, raw, value=raw)
    if not _is_small(pod):
        bounds.Counts().add(counted(pod), "")
    return pod


def pod_from_template(template: object, field: str, counts: bounds.Counts | None = None) -> Pod:
    """Convert the plain JSON of the pod template at ``field`` to a Pod.

    Add the Pod's items to ``counts``, the total of all templates of the object.

    Raises:
        MalformedObjectError: a field has the wrong type.
        OverBoundError: the Pod is larger than a bound.
    """
    try:
        try:
            pod = msgspec.convert(template, Pod)
        except msgspec.ValidationError:
            # If the CRD's schema has the field, the API server drops nulls in custom resources. Otherwise, the
            # controller drops them when it decodes the object.
            pod = msgspec.convert(_without_nulls(template), Pod)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedObjectError.of(error, field, template) from None
    (counts or bounds.Counts()).add(counted(pod), field)
    return pod


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _is_small(pod: Pod) -> bool:
    """Return whether the Pod is clearly within every bound. This check takes a fifth of the time of `counted`."""
    spec, metadata = pod.spec, pod.metadata
    if spec.affinity is not None:
        return False
    members = spec.all_containers
    if len(members) > bounds.LEAST:
        return False
    lists: list[Collection[object] | None] = [metadata.labels, metadata.annotations, spec.nodeSelector]
    lists += [spec.tolerations, spec.volumes, members]
    for resources in (spec.resources, *[container.resources for container in members]):
        if resources is not None:
            lists += (resources.limits, resources.requests)
    return sum(map(len, filter(None, lists))) <= bounds.LEAST


def counted(pod: Pod) -> Iterator[tuple[bounds.Bound, int]]:
    """Yield each bound that applies to the Pod, with the Pod's number of items."""
    spec, metadata = pod.spec, pod.metadata
    yield bounds.LABELS, len(metadata.labels or ())
    yield bounds.ANNOTATIONS, len(metadata.annotations or ())
    if spec.nodeSelector:
        yield bounds.SELECTOR_KEYS, len(spec.nodeSelector)
    if spec.tolerations:
        yield bounds.TOLERATIONS, len(spec.tolerations)
    if spec.volumes:
        yield bounds.VOLUMES, len(spec.volumes)
    yield bounds.CONTAINERS, len(spec.all_containers)
    yield bounds.RESOURCES, len(quantities_of(spec))
    if spec.affinity is not None and (affinity := spec.affinity.nodeAffinity) is not None:
        yield from _counted_affinity(affinity, len(spec.nodeSelector or ()))


def _counted_affinity(affinity: NodeAffinity, selected: int) -> Iterator[tuple[bounds.Bound, int]]:
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution
    terms = required.nodeSelectorTerms if required is not None else []
    preferred = [weighted.preference for weighted in affinity.preferredDuringSchedulingIgnoredDuringExecution or ()]
    parts = [part for term in (*terms, *preferred) for part in (term.matchExpressions, term.matchFields) if part]
    # A term without requirements costs as much as a term with one requirement.
    yield bounds.REQUIREMENTS, len(terms) * (selected + 1) + len(preferred) + sum(map(len, parts))
    yield bounds.VALUES, sum(len(requirement.values or ()) for requirements in parts for requirement in requirements)
