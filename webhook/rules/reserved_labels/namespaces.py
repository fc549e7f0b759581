"""Find Namespaces that claim to belong to a provider by name or label, because spotgate skips these namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.globs import Globs
from webhook.capacity.placement.supply import in_play
from webhook.kube.filling import mapping
from webhook.model.decision import Violation

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.rules.subject import Subject

_GENERATED: Final = "xxxxx"
"""A placeholder for the suffix that the API server appends to a ``generateName``."""


def claims(
    subject: Subject, providers: Mapping[str, Provider], view: ClusterView, denied: Container[str]
) -> Iterator[Violation]:
    """Yield a violation for each name (on CREATE) or label that marks the Namespace as a provider's.

    Only a provider in use owns namespaces. Skip the labels in ``denied``, which other violations deny.
    """
    metadata, before = (mapping(value, "metadata") for value in (subject.object, subject.old_object))
    labels, old_labels = mapping(metadata, "labels"), mapping(before, "labels")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{_GENERATED}"
    providers_in_play = in_play(view, providers)
    for provider in providers.values():
        owned: list[tuple[str, str]] = []
        if subject.operation == "CREATE":
            named = (glob for glob in provider.system_namespaces.names.patterns if Globs((glob,)).match(str(name)))
            owned += ((f"a name that matches {glob}", "metadata.name") for glob in named)
        owned += (
            (f"the label {label.key}: {label.value}", f'metadata.labels["{label.key}"]')
            for label in provider.system_namespaces.labels
            if labels.get(label.key) == label.value != old_labels.get(label.key) and label.key not in denied
        )
        for what, field in owned:
            if provider.name in providers_in_play:
                yield Violation(
                    id="provider-namespace",
                    reason=f"{what} is reserved for namespaces of {provider.title}",
                    field=field,
                    detail="spotgate doesn't evaluate objects in these namespaces.",
                    fix="choose another name" if field == "metadata.name" else "remove the label",
                )
            elif view.pools is None:
                yield Violation(
                    id="provider-namespace-unknown",
                    reason=f"can't tell whether {what} is reserved for namespaces of {provider.title}",
                    field=field,
                    detail=view.why_unknown,
                    fix=view.remedy,
                    unknown=True,
                )
