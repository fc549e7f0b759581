"""What tests of rules share: the shipped providers, Pods as JSON, and the smallest subject a rule can be shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jsonpatch
import msgspec

from webhook.documents import field_path
from webhook.engine.bundle import load_bundle
from webhook.kube.edit import PodEditor
from webhook.kube.pod import OwnerReference, Pod
from webhook.kube.pod_decoding import decode_pod
from webhook.model.decision import NO_TRACE, Trace
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.rules.subject import Subject

if TYPE_CHECKING:
    from pydantic import BaseModel

    from webhook.capacity.providers.provider import Provider

PROVIDERS = Path(__file__).parents[2] / "policies" / "providers"

M = TypeVar("M", bound="BaseModel")

PODS = GroupVersionResource("", "v1", "pods")


def shipped_provider(name: str) -> Provider:
    """Return a shipped provider."""
    return load_bundle().providers[name]


def with_fields(model: M, **changes: Any) -> M:
    """Return the provider, or its part, with other fields, or with other readers."""
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    other = type(model).model_construct(**fields | changes)
    vars(other).update({name: each for name, each in changes.items() if name not in fields})
    return other


def request_for(namespace: str = "team-a", operation: str = "CREATE", **changes: Any) -> Request:
    """Return a request for a Pod; its body does not matter to rules."""
    return Request(
        uid="u",
        operation=operation,
        kind=GroupVersionKind("", "v1", "Pod"),
        namespace=namespace,
        **{"resource": PODS, **changes},
    )


class FakeSubject(Subject):
    """A subject whose object, or Pod, is given already decoded."""

    def __init__(
        self,
        pod: Pod,
        request: Request | None = None,
        operation: str = "CREATE",
        *,
        trace: Trace = NO_TRACE,
        object: dict[str, Any] | None = None,  # noqa: A002 - as the subject has it
        old_object: dict[str, Any] | None = None,
        old_pod: Pod | None = None,
        **changes: Any,
    ) -> None:
        super().__init__(request or request_for(), trace)
        self.pod, self.old_pod, self.object, self.old_object = pod, old_pod, object, old_object
        self.but(operation=operation, **changes)

    def but(self, **changes: Any) -> FakeSubject:
        """Return the subject after these changes."""
        for name, value in changes.items():
            setattr(self, name, value)
        return self

    def field(self, text: str) -> str:
        return ".".join(filter(None, (field_path(self.path), text)))


def change_of(
    resource: tuple[str, str], new: dict[str, Any] | None, old: dict[str, Any] | None = None, sub_resource: str = ""
) -> FakeSubject:
    """Return the request that makes ``new`` of ``old``, of a resource that is no Pod: its group and plural."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    kind = GroupVersionResource(resource[0], "v1", resource[1])
    request = request_for("", operation, resource=kind, sub_resource=sub_resource)
    return FakeSubject(Pod(), request, operation, object=new, old_object=old)


def subject_of(value: dict[str, Any], **changes: Any) -> FakeSubject:
    """Return the subject that a Pod in JSON is."""
    return FakeSubject(pod=decode_pod(msgspec.json.encode(value)), **changes)


def owned_by(kind: str, api_version: str) -> list[dict[str, Any]]:
    """``metadata.ownerReferences`` with one controller."""
    return [msgspec.to_builtins(OwnerReference(kind, "owner", api_version, controller=True))]


def patched(value: dict[str, Any], subject: FakeSubject, mutate: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what ``mutate(subject, editor)`` makes of a Pod, by way of its patch, and the patch.

    The editor's own view of the Pod and the independently patched JSON are the same.
    """
    editor = PodEditor(subject.pod)
    mutate(subject, editor)
    patch = [operation.as_json() for operation in editor.operations]
    result: dict[str, Any] = jsonpatch.apply_patch(value, patch)
    assert decode_pod(msgspec.json.encode(result)) == subject.pod
    return result, patch
