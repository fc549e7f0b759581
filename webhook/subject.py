"""What a rule is shown: the object of a request, or the Pod that a pod template in it will become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.kube.defaults import complete_pod
from webhook.kube.pod import MIRROR_ANNOTATION, Pod, decode_pod
from webhook.patch import apply_all
from webhook.review import MalformedObjectError, decode_object, is_null

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.decision import Trace
    from webhook.patch import Operation
    from webhook.review import Request


NODES: Final = "system:nodes"
"""The group of kubelets."""


class Judged:
    """The object of the request, or one pod template in it, decoded when a rule first asks: a rule's `Subject`.

    Attributes:
        path: where in the object the pod template is.
        kept: an UPDATE leaves the pod template as it is.
        changes: what the mutating policies do to the pod template, for `shown`.
    """

    __slots__ = (
        *("_object", "_old_object", "_old_pod", "_pod", "changes"),
        *("kept", "memo", "operation", "path", "request", "template", "trace"),
    )

    def __init__(self, request: Request, trace: Trace) -> None:
        self.request = request
        self.trace = trace
        self.operation = request.operation
        self.template = False
        self.kept = False
        self.path: tuple[str | int, ...] = ()
        self.memo: dict[str, Any] = {}
        self.changes: list[Operation] = []
        self._pod: Pod | None = None
        self._old_pod: Pod | None = None
        self._object: dict[str, Any] | None = None
        self._old_object: dict[str, Any] | None = None

    @classmethod
    def of_template(
        cls, request: Request, trace: Trace, pod: Pod, old_pod: Pod | None, *, path: tuple[str | int, ...]
    ) -> Judged:
        """The Pod that the template at ``path`` will become, on its CREATE."""
        subject = cls(request, trace)
        subject.operation = "CREATE"
        subject.template = True
        subject.path = path
        subject._pod = pod
        subject._old_pod = old_pod
        return subject

    @property
    def pod(self) -> Pod:
        """The Pod, or the one of the template."""
        if self._pod is None:
            self._pod = decode_pod(self.request.object)
        return self._pod

    @property
    def is_mirror_pod(self) -> bool:
        """Does a node show a Pod that its kubelet runs without the API server? Anybody can write the annotation."""
        request = self.request
        is_pod = (request.resource.group, request.path) == ("", "pods") and not is_null(request.object)
        by_node = NODES in (request.user_info.groups or ())
        return is_pod and by_node and MIRROR_ANNOTATION in self.pod.annotations

    @property
    def old_pod(self) -> Pod | None:
        """The Pod before an UPDATE."""
        if self._old_pod is None and not self.template and not is_null(self.request.old_object):
            self._old_pod = decode_pod(self.request.old_object)
        return self._old_pod

    @property
    def object(self) -> dict[str, Any] | None:
        """The object of the request; None on DELETE."""
        if self._object is None and not is_null(self.request.object):
            self._object = decode_object(self.request.object)
        return self._object

    @property
    def old_object(self) -> dict[str, Any] | None:
        """The object before the request; None on CREATE."""
        if self._old_object is None and not is_null(self.request.old_object):
            self._old_object = decode_object(self.request.old_object)
        return self._old_object

    @property
    def shown(self) -> dict[str, Any] | None:
        """The object, or the template as a Pod with its defaults and all that is injected into it, as JSON."""
        if not self.template:
            return self.object
        value: Any = self.object
        for part in self.path:
            value = value[part]
        value = msgspec.to_builtins(value)  # a copy: the object is shown to others, too
        metadata = self.pod.metadata
        owners = msgspec.to_builtins(metadata.ownerReferences)
        own = {"namespace": metadata.namespace, "ownerReferences": owners}
        pod = {**value, "apiVersion": "v1", "kind": "Pod", "metadata": {**(value.get("metadata") or {}), **own}}
        pod = apply_all(self.changes, pod)
        complete_pod(pod)
        return pod

    def labels(self) -> Iterator[Mapping[str, str]]:
        """Labels of the object and of the old one, as an object selector sees them; of a CONNECT there are none."""
        if self.template:
            yield self.pod.labels
            return
        if self.operation == "CONNECT":
            return
        for raw in (self.request.object, self.request.old_object):
            if not is_null(raw):
                yield decode_metadata(raw).labels or {}


class Metadata(msgspec.Struct):
    """The part of an object's metadata that a decision may need without knowing the kind."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _WithMetadata(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


_metadata_decoder: Final = msgspec.json.Decoder(_WithMetadata)


def decode_metadata(raw: msgspec.Raw) -> Metadata:
    """The metadata of any object.

    Raises:
        MalformedObjectError: it can't be read.
    """
    try:
        return _metadata_decoder.decode(raw).metadata
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedObjectError.of(error) from None
