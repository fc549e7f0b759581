"""Encode and decode recorded reviews: each is a line of JSON with an AdmissionReview and the context of its decision.

A line contains the inputs of a decision, so that `replay` can evaluate it with other policies: the parts of the request
that the engine reads, the response, and under ``spotgate``, the phase, the time, the findings, and the view of the
cluster. Values that may be secret are redacted. If an object has some, the engine decides on the redacted object again,
so that no finding quotes a secret.
"""

from __future__ import annotations

import re
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.nodes import HOSTNAME_LABEL
from webhook.capacity.view import ClusterView  # noqa: TC001 - as above
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.kube.references import CLUSTER_SCOPED, KINDS, key_of
from webhook.model.patch import Operation
from webhook.model.review import Request, is_null
from webhook.rules.context import Phase  # noqa: TC001

if TYPE_CHECKING:
    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision
    from webhook.rules.context import Context

SUFFIX: Final = ".jsonl"

REDACTED: Final = "(not recorded)"
"""The replacement for a value that may be secret."""

_NAME: Final = re.compile(rb'"([a-z0-9][-.a-z0-9]*)"')
"""A string that can be the name of an object."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that contains the whole manifest as text."""

_SECRET_RESOURCES: Final = frozenset({("", "secrets"), ("", "configmaps"), ("authentication.k8s.io", "tokenreviews")})
_SECRET_MEMBERS: Final = frozenset({"data", "stringData", "binaryData"})
"""Fields of Secrets and ConfigMaps. They are redacted in any object, because items of a list have no kind."""

_SECRET_PATHS: Final = frozenset({"serviceaccounts/token"})


class RecordedFinding(msgspec.Struct, frozen=True):
    """The parts of a finding that `replay` compares."""

    policy: str
    id: str
    outcome: str
    reason: str
    field: str = ""


class Notes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The context of a decision, and its findings.

    Attributes:
        time: the time of the decision, UTC.
        bundle: the hash of the policies.
        view: the view of the cluster, with all node pools and the namespace of the request.
    """

    phase: Phase
    time: datetime
    bundle: str
    findings: tuple[RecordedFinding, ...]
    view: ClusterView


class Response(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of the response that `replay` compares. ``patch`` is JSON."""

    allowed: bool
    patch: bytes = b""

    @property
    def operations(self) -> list[dict[str, Any]]:
        """Return the operations of the patch. Raise MsgspecError if the patch is malformed."""
        return [operation.as_json() for operation in _patch_decoder.decode(self.patch)] if self.patch else []


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded line without its request, which `webhook.model.review.decode_review` decodes."""

    response: Response
    spotgate: Notes


def is_secret(request: Request) -> bool:
    """Return whether the request may contain secrets, so that no part of it can be recorded.

    CONNECT contains the command lines of ``kubectl exec``, a token request returns a token, and a ConfigMap can contain
    any data.
    """
    resource = request.resource
    return (
        (resource.group, resource.resource) in _SECRET_RESOURCES
        or request.path in _SECRET_PATHS
        or request.operation == "CONNECT"
        or request.kind.kind == "Secret"
    )


def recorded_findings(decision: Decision) -> tuple[RecordedFinding, ...]:
    """Return the findings of a decision in their recorded form."""
    return tuple(
        RecordedFinding(finding.policy, finding.id, str(finding.outcome), finding.reason, finding.field)
        for finding in decision.findings
    )


def encode_line(request: Request, decision: Decision, context: Context, bundle: Bundle, answer: bytes) -> bytes:
    """Encode a decision as a line that ends with a newline.

    Args:
        request: a request for which `is_secret` is False.
        decision: the decision on the request.
        context: the context of the decision.
        bundle: the policies of the decision.
        answer: the AdmissionReview that was sent as the response.
    """
    shown = replace(request, object=_redacted(request.object), old_object=_redacted(request.old_object))
    if shown != request:
        decision = decide(shown, bundle.index, context)
        answer = respond(request.uid, decision, context.phase)
    notes = Notes(
        phase=context.phase,
        time=context.now,
        bundle=bundle.hash,
        findings=recorded_findings(decision),
        view=_as_seen_from(request, context.view),
    )
    return b'%b,"request":%b,"spotgate":%b}\n' % (answer[:-1], _encoder.encode(shown), _encoder.encode(notes))


def decode_notes(data: bytes) -> Recorded:
    """Decode the response and the notes of a recorded line.

    Raises:
        msgspec.MsgspecError: the response or the notes are missing or malformed.
    """
    recorded = _decoder.decode(data)
    _ = recorded.response.operations
    return recorded


def _as_seen_from(request: Request, view: ClusterView) -> ClusterView:
    """Return the view without other namespaces, and without Nodes and other objects that the object doesn't name.

    The decision on the request doesn't depend on these.
    """
    namespace, text = request.namespace, bytes(request.object)
    labels = view.namespaces.get(namespace)
    budgets = None if view.budgets is None else {namespace: view.budgets.get(namespace, ())}
    naming = HOSTNAME_LABEL.encode() in text or b"matchFields" in text
    nodes = {name: place for name, place in view.nodes.items() if name.encode() in text} if naming else {}
    autoscalers = {namespace: known} if (known := view.autoscalers.get(namespace)) else {}
    namespaces = {} if labels is None else {namespace: labels}
    names = {match.decode() for match in _NAME.findall(text)}
    keys = {key_of(kind, "" if kind in CLUSTER_SCOPED else namespace, name) for kind in KINDS for name in names}
    named = {key: found for key in keys if (found := view.references.get(key)) is not None}
    volumes = {key_of("PersistentVolume", "", claim.volume) for claim in named.values()}
    references = named | {key: volume for key in volumes if (volume := view.references.get(key)) is not None}
    return replace(
        view, namespaces=namespaces, budgets=budgets, nodes=nodes, autoscalers=autoscalers, references=references
    )


def _redacted(raw: msgspec.Raw) -> msgspec.Raw:
    """Return the object with values that may be secret redacted."""
    if is_null(raw):
        return raw
    value = msgspec.json.decode(raw)
    redacted = _redact(value)
    return raw if redacted == value else msgspec.Raw(msgspec.json.encode(redacted))


def _redact(value: Any, key: str = "") -> Any:
    """Return the value of this key, with redacted secrets."""
    if key == _LAST_APPLIED:
        return REDACTED
    if key in _SECRET_MEMBERS:
        return dict.fromkeys(value, REDACTED) if isinstance(value, dict) else REDACTED
    if isinstance(value, list):
        return [_redact(item, key) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {name: _redact(member, name) for name, member in value.items() if name != "managedFields"}
    return {**shown, "value": REDACTED} if key == "env" and "value" in shown else shown


_patch_decoder: Final = msgspec.json.Decoder(list[Operation])
_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Recorded)
