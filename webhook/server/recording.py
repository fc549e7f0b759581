"""Encode and decode recorded reviews: a line of JSON with an AdmissionReview and what it was decided with.

A line holds what a decision depends on and no more, so that it can be replayed with other policies: the request as far
as the engine reads it, the response, and under ``spotgate`` the phase, the time, the findings and the view of the
cluster. Values that may be secret are redacted first, and then the object is decided again: so no finding in the line
can quote a value that was redacted.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.nodes import HOSTNAME_LABEL
from webhook.capacity.view import ClusterView  # noqa: TC001 - as above
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.kube.selectors import LabelSelector
from webhook.model.patch import Operation
from webhook.model.review import Request, is_null
from webhook.rules.context import Phase  # noqa: TC001

if TYPE_CHECKING:
    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision
    from webhook.rules.context import Context

SUFFIX: Final = ".jsonl"

REDACTED: Final = "(not recorded)"
"""Replaces a value that may be secret."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole manifest, as text."""

_SECRET_RESOURCES: Final = frozenset({("", "secrets"), ("", "configmaps"), ("authentication.k8s.io", "tokenreviews")})
_SECRET_MEMBERS: Final = frozenset({"data", "stringData", "binaryData"})
"""Of Secrets and ConfigMaps, wherever they are: in a list their items say no kind."""

_SECRET_PATHS: Final = frozenset({"serviceaccounts/token"})
_SUSPICIOUS: Final = (
    *(f'"{member}"'.encode() for member in ("env", "managedFields", _LAST_APPLIED, *_SECRET_MEMBERS)),
    rb"\u00",
)
"""An object in which none of these is written need not be read: it is recorded as it is."""


class RecordedFinding(msgspec.Struct, frozen=True):
    """The parts of a finding by which `replay` compares two responses."""

    policy: str
    id: str
    outcome: str
    reason: str
    field: str = ""


class Notes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The context in which a review was decided, and its findings.

    Attributes:
        time: of the decision, UTC.
        bundle: the hash of the policies.
        view: of the cluster: all node pools, the request's own namespace.
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
        """Return the operations of the patch. Raise MsgspecError if it has none that can be read."""
        return [operation.as_json() for operation in _patch_decoder.decode(self.patch)] if self.patch else []


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded line without its request, which `webhook.model.review.decode_review` decodes."""

    response: Response
    spotgate: Notes


def is_secret(request: Request) -> bool:
    """Return whether nothing of the request may be written anywhere.

    CONNECT carries the command lines of ``kubectl exec``, a token request ends in a token, and ConfigMaps hold
    arbitrary data.
    """
    resource = request.resource
    return (
        (resource.group, resource.resource) in _SECRET_RESOURCES
        or request.path in _SECRET_PATHS
        or request.operation == "CONNECT"
        or request.kind.kind == "Secret"
    )


def recorded_findings(decision: Decision) -> tuple[RecordedFinding, ...]:
    """Return the findings of a decision, as they are recorded."""
    return tuple(
        RecordedFinding(finding.policy, finding.id, str(finding.outcome), finding.reason, finding.field)
        for finding in decision.findings
    )


def encode_line(request: Request, decision: Decision, context: Context, bundle: Bundle, answer: bytes) -> bytes:
    """Encode a decision as a line, with its line end.

    Args:
        request: not one that `is_secret`.
        decision: on the request.
        context: what it was decided with.
        bundle: the policies that decided.
        answer: the AdmissionReview that was sent back.
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
        msgspec.MsgspecError: there are none, or they are malformed.
    """
    recorded = _decoder.decode(data)
    _ = recorded.response.operations
    return recorded


def _as_seen_from(request: Request, view: ClusterView) -> ClusterView:
    """Return the view without other namespaces, and without Nodes that the object can't name.

    No decision on the request depends on them.
    """
    namespace, text = request.namespace, bytes(request.object)
    labels = view.namespaces.get(namespace)
    budgets = None if view.budgets is None else {namespace: view.budgets.get(namespace, ())}
    naming = HOSTNAME_LABEL.encode() in text or b"matchFields" in text
    nodes = {name: place for name, place in view.nodes.items() if name.encode() in text} if naming else {}
    autoscalers = {namespace: known} if (known := view.autoscalers.get(namespace)) else {}
    namespaces = {} if labels is None else {namespace: labels}
    return replace(view, namespaces=namespaces, budgets=budgets, nodes=nodes, autoscalers=autoscalers)


def _redacted(raw: msgspec.Raw) -> msgspec.Raw:
    """Return the object with values that may be secret redacted."""
    if is_null(raw) or not any(word in bytes(raw) for word in _SUSPICIOUS):
        return raw
    return msgspec.Raw(msgspec.json.encode(_redact(msgspec.json.decode(raw))))


def _redact(value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a value, which is below this key, with values that may be secret redacted."""
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


def _as_json(value: Any) -> Any:  # noqa: ANN401 - msgspec's signature
    if isinstance(value, LabelSelector):
        return [(key, operator, sorted(values)) for key, operator, values in value.requirements]
    raise NotImplementedError(f"{type(value).__name__} can't be recorded")


def _from_json(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's signature
    if kind is LabelSelector:
        return LabelSelector(msgspec.convert(value, list[tuple[str, str, list[str]]]))
    raise NotImplementedError(f"{kind.__name__} is not recorded")


_patch_decoder: Final = msgspec.json.Decoder(list[Operation])
_encoder: Final = msgspec.json.Encoder(enc_hook=_as_json, order="deterministic")
_decoder: Final = msgspec.json.Decoder(Recorded, dec_hook=_from_json)
