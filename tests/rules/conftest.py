"""What tests of rules share: the shipped providers, Pods as JSON, and the smallest subject a rule can be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonpatch
import msgspec
import yaml

from webhook.capacity.placement.target import target_of
from webhook.capacity.providers.compile import compile_provider
from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.decision import NO_TRACE, Trace
from webhook.documents import field_path
from webhook.kube.edit import PodEditor
from webhook.kube.pod import OwnerReference, Pod
from webhook.kube.pod_decoding import decode_pod
from webhook.kube.workload import WorkloadFields, workload_fields_of
from webhook.patch import PatchRecorder
from webhook.review import GroupVersionKind, GroupVersionResource, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.placement.target import NotTargeting, Target
    from webhook.capacity.providers.provider import Provider
    from webhook.cluster.protocol import ClusterView

PROVIDERS = Path(__file__).parents[2] / "policies" / "providers"

PODS = GroupVersionResource("", "v1", "pods")


def shipped_provider(name: str) -> Provider:
    """Return a provider as its shipped document has it."""
    document = yaml.safe_load((PROVIDERS / f"{name}.yaml").read_text())
    return compile_provider(name, CapacityProviderSpec.model_validate(document["spec"]))


def request_for(namespace: str = "team-a", operation: str = "CREATE", **changes: Any) -> Request:
    """Return a request for a Pod; its body does not matter to rules."""
    return Request(
        uid="u",
        operation=operation,
        kind=GroupVersionKind("", "v1", "Pod"),
        namespace=namespace,
        **{"resource": PODS, **changes},
    )


@dataclass
class FakeSubject:
    """A Pod as a rule sees it."""

    pod: Pod
    request: Request = field(default_factory=request_for)
    operation: str = "CREATE"
    trace: Trace = NO_TRACE
    template: bool = False
    unchanged: bool = False
    labels_only: bool = False
    path: tuple[str | int, ...] = ()
    old_pod: Pod | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    def target(
        self, view: ClusterView, providers: Mapping[str, Provider], *, provider: str, tolerating: bool
    ) -> Target | NotTargeting:
        """How it targets spot."""
        labels = view.namespaces.get(self.request.namespace, {})
        return target_of(self.pod, labels, view, providers, provider=provider, tolerating=tolerating)

    @property
    def workload(self) -> WorkloadFields:
        """What the workload says around its pod templates."""
        return workload_fields_of(self.request.object)

    @property
    def old_workload(self) -> WorkloadFields:
        """The same before the request."""
        return workload_fields_of(self.request.old_object)

    def field(self, text: str) -> str:
        """Return the path of a field of the object."""
        return ".".join(filter(None, (field_path(self.path), text)))

    @property
    def shown(self) -> dict[str, Any] | None:
        """What is judged as plain JSON."""
        return self.object


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
    recorder = PatchRecorder()
    mutate(subject, PodEditor(subject.pod, recorder))
    patch = [operation.as_json() for operation in recorder.operations]
    result: dict[str, Any] = jsonpatch.apply_patch(value, patch)
    assert decode_pod(msgspec.json.encode(result)) == subject.pod
    return result, patch
