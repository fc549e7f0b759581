"""Helpers for tests of rules: the shipped providers, Pods as JSON, and a minimal subject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jsonpatch
import msgspec

from webhook.base.field_paths import field_path
from webhook.engine.bundle import load_bundle
from webhook.kube.edit import PodEditor
from webhook.kube.pod import OwnerReference, Pod
from webhook.kube.pod_decoding import decode_pod
from webhook.model.decision import NO_TRACE, Trace
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.rules.subject import Subject

if TYPE_CHECKING:
    from webhook.capacity.providers.provider import Provider

PROVIDERS = Path(__file__).parents[2] / "policies" / "providers"

M = TypeVar("M", bound="msgspec.Struct")

PODS = GroupVersionResource("", "v1", "pods")


def shipped_provider(name: str) -> Provider:
    """Return a shipped provider."""
    return load_bundle().providers[name]


def with_fields(model: M, **changes: Any) -> M:
    """Return a provider, or a part of one, with changed fields or readers."""
    fields = {name: changes.get(name, getattr(model, name)) for name in model.__struct_fields__}
    other = type(model)(**fields)
    if others := {name: value for name, value in changes.items() if name not in fields}:
        vars(other).update(others)
    return other


def request_for(namespace: str = "team-a", operation: str = "CREATE", **changes: Any) -> Request:
    """Return a request for a Pod, without a body, which rules don't read."""
    return Request(
        uid="u",
        operation=operation,
        kind=GroupVersionKind("", "v1", "Pod"),
        namespace=namespace,
        **{"resource": PODS, **changes},
    )


class FakeSubject(Subject):
    """A subject with a decoded object or Pod."""

    def __init__(
        self,
        pod: Pod,
        request: Request | None = None,
        operation: str = "CREATE",
        *,
        trace: Trace = NO_TRACE,
        object: dict[str, Any] | None = None,  # noqa: A002 - the subject's name for it
        old_object: dict[str, Any] | None = None,
        old_pod: Pod | None = None,
        **changes: Any,
    ) -> None:
        super().__init__(request or request_for(), trace)
        self.pod, self.old_pod, self.object, self.old_object = pod, old_pod, object, old_object
        self.but(operation=operation, **changes)

    def but(self, **changes: Any) -> FakeSubject:
        """Change the subject, and return it."""
        for name, value in changes.items():
            setattr(self, name, value)
        return self

    def field(self, text: str) -> str:
        return ".".join(filter(None, (field_path(self.path), text)))


def change_of(
    resource: tuple[str, str], new: dict[str, Any] | None, old: dict[str, Any] | None = None, sub_resource: str = ""
) -> FakeSubject:
    """Return the request that changes ``old`` to ``new``, for a resource (group and plural) other than Pods."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    kind = GroupVersionResource(resource[0], "v1", resource[1])
    request = request_for("", operation, resource=kind, sub_resource=sub_resource)
    return FakeSubject(Pod(), request, operation, object=new, old_object=old)


def subject_of(value: dict[str, Any], **changes: Any) -> FakeSubject:
    """Return the subject for a Pod in JSON."""
    return FakeSubject(pod=decode_pod(msgspec.json.encode(value)), **changes)


def owned_by(kind: str, api_version: str) -> list[dict[str, Any]]:
    """Return ``metadata.ownerReferences`` with one controller."""
    return [msgspec.to_builtins(OwnerReference(kind, "owner", api_version, controller=True))]


def patched(value: dict[str, Any], subject: FakeSubject, mutate: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a Pod after the patch of ``mutate(subject, editor)``, and the patch.

    Assert that the edited Pod and the patched JSON are equal.
    """
    editor = PodEditor(subject.pod)
    mutate(subject, editor)
    patch = [operation.as_json() for operation in editor.operations]
    result: dict[str, Any] = jsonpatch.apply_patch(value, patch)
    assert decode_pod(msgspec.json.encode(result)) == subject.pod
    return result, patch
