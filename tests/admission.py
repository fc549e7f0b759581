"""The shipped policies at work on plain objects, from the bytes of a review to those of its answer."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import jsonpatch

from webhook.bundle import load_bundle
from webhook.cluster.protocol import ClusterView
from webhook.context import Context, Phase
from webhook.engine import decide
from webhook.kube.defaults import default_pod, default_tolerations
from webhook.response import respond
from webhook.review import decode_review

JSON = dict[str, Any]

BUNDLE: Final = load_bundle()
NAMESPACE: Final = "team-a"
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)


def cluster(pools: list[JSON], namespace_labels: JSON) -> ClusterView:
    """Return a CKS cluster with these node pools, and one namespace."""
    (reader,) = BUNDLE.providers["cks"].readers
    return ClusterView(
        pools=tuple(map(reader.read, pools)),
        providers=frozenset({"cks"}),
        namespaces={NAMESPACE: namespace_labels},
    )


def defaulted(pod: JSON) -> JSON:
    """Return a copy of a Pod as the API server hands it to a webhook."""
    copy: JSON = json.loads(json.dumps(pod))
    default_pod(copy)
    default_tolerations(copy)
    return copy


def review(
    value: Any,
    resource: str = "pods",
    *,
    kind: str = "X",
    operation: str = "CREATE",
    user: str = "alice@acme.example",
    old: Any = None,
    subresource: str = "",
    name: str = "x",
) -> bytes:
    """Return an AdmissionReview; the resource is ``group/plural``, or the plural alone of the core group."""
    group, _, plural = resource.rpartition("/")
    namespaced = plural not in {"nodes", "nodepools"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": plural},
        "subResource": subresource,
        "name": name,
        "namespace": NAMESPACE if namespaced else "",
        "operation": operation,
        "userInfo": {"username": user, "groups": ["acme:developers", "system:authenticated"]},
        "object": value,
        "oldObject": old,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def answered(body: bytes, phase: Phase, view: ClusterView) -> bytes:
    """Return the answer to a review."""
    request = decode_review(body)
    decision = decide(request, BUNDLE.index, Context(phase=phase, now=NOW, view=view))
    return respond(request.uid, decision, phase)


def response(body: bytes, phase: Phase, view: ClusterView) -> JSON:
    """Return the ``response`` in it."""
    found: JSON = json.loads(answered(body, phase, view))["response"]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A Pod that went through both phases, as an API server sends it through.

    Attributes:
        before: the Pod as it came.
        after: the Pod with the patch.
        patch: what the mutating webhook said.
        validation: the response of the validating one, to the Pod with the patch.
        view: the cluster.
    """

    before: JSON
    after: JSON
    patch: list[JSON]
    validation: JSON
    view: ClusterView

    @classmethod
    def of(cls, pod: JSON, pools: list[JSON], namespace_labels: JSON) -> Admission:
        """Send it through."""
        view = cluster(pools, namespace_labels)
        mutation = response(review(pod), Phase.MUTATE, view)
        patch: list[JSON] = json.loads(base64.b64decode(mutation["patch"])) if "patch" in mutation else []
        after = jsonpatch.apply_patch(pod, patch)
        validation = response(review(after), Phase.VALIDATE, view)
        return cls(before=pod, after=after, patch=patch, validation=validation, view=view)

    @property
    def grace(self) -> int:
        """The grace period at the end, in seconds."""
        seconds: int = self.after["spec"]["terminationGracePeriodSeconds"]
        return seconds

    @property
    def complaint(self) -> str:
        """What placement has to say."""
        said: str = self.validation.get("auditAnnotations", {}).get("spot-placement", "")
        return said
