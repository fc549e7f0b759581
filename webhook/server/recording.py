"""A recorded review: one line of JSON that is an AdmissionReview, and beside it what it was decided with.

It holds what a decision depends on and no more, so that other policies can be asked the same: the request as far as the
engine reads it, the answer, and under ``spotgate`` the phase, the time, the findings and the cluster as it was seen.
What may be secret in an object is blotted out first, and then the object is decided again: so nothing in the line,
whatever a policy makes of a value, comes of more than the object that is in it.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.cluster.protocol import ClusterView  # noqa: TC001 - as above
from webhook.context import Phase  # noqa: TC001
from webhook.engine import decide
from webhook.kube.selectors import LabelSelector
from webhook.response import respond
from webhook.review import API_VERSION, KIND, Request, is_null

if TYPE_CHECKING:
    from webhook.bundle import Bundle
    from webhook.context import Context
    from webhook.decision import Decision

SUFFIX: Final = ".jsonl"

BLOT: Final = "(not recorded)"
"""Stands for a value that may be secret."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""It repeats the whole manifest, as text."""

_SECRET_RESOURCES: Final = frozenset({("", "secrets"), ("", "configmaps"), ("authentication.k8s.io", "tokenreviews")})
_SECRET_MEMBERS: Final = frozenset({"data", "stringData", "binaryData"})
"""Of Secrets and ConfigMaps, wherever they are: in a list their items say no kind."""

_SECRET_PATHS: Final = frozenset({"serviceaccounts/token"})
_SUSPICIOUS: Final = (
    *(f'"{member}"'.encode() for member in ("env", "managedFields", _LAST_APPLIED, *_SECRET_MEMBERS)),
    rb"\u00",
)
"""An object in which none of these is written need not be read: it is recorded as it is."""


class Found(msgspec.Struct, frozen=True):
    """A finding, as far as it tells two answers apart."""

    policy: str
    id: str
    outcome: str
    reason: str
    field: str = ""


class Notes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a review was decided with, and what was found.

    Attributes:
        time: of the decision, UTC.
        bundle: the hash of the policies.
        view: of the cluster: all node pools, the request's own namespace.
    """

    phase: Phase
    time: datetime
    bundle: str
    findings: tuple[Found, ...]
    view: ClusterView


class Response(msgspec.Struct, frozen=True, rename="camel"):
    """What was answered, as far as it matters for the request; ``patch`` is base64."""

    allowed: bool
    patch: str = ""


class Recorded(msgspec.Struct, frozen=True, rename="camel"):
    """A line, as it is read again; the review in it is read by `webhook.review.decode_review`."""

    response: Response
    spotgate: Notes


class _Answer(msgspec.Struct):
    response: msgspec.Raw


class _Line(msgspec.Struct, rename="camel", kw_only=True):
    api_version: str = API_VERSION
    kind: str = KIND
    request: Request
    response: msgspec.Raw
    spotgate: Notes


def is_secret(request: Request) -> bool:
    """Must nothing of the request be written anywhere?

    CONNECT carries the command lines of ``kubectl exec``, a token request ends in a token, and ConfigMaps hold whatever
    somebody put there.
    """
    resource = request.resource
    return (
        (resource.group, resource.resource) in _SECRET_RESOURCES
        or request.path in _SECRET_PATHS
        or request.operation == "CONNECT"
        or request.kind.kind == "Secret"
    )


def found_in(decision: Decision) -> tuple[Found, ...]:
    """The findings of a decision."""
    return tuple(Found(each.policy, each.id, str(each.outcome), each.reason, each.field) for each in decision.findings)


def encode_line(request: Request, decision: Decision, context: Context, bundle: Bundle, answer: bytes) -> bytes:
    """The line for one decision, ended.

    Args:
        request: not a secret one.
        decision: what came of it.
        context: what it was decided with.
        bundle: the policies that decided.
        answer: the AdmissionReview that was sent back.
    """
    shown = replace(request, object=_blotted(request.object), old_object=_blotted(request.old_object))
    if shown != request:
        decision = decide(shown, bundle.index, context)
        answer = respond(request.uid, decision, context.phase)
    line = _Line(
        request=shown,
        response=_answer_decoder.decode(answer).response,
        spotgate=Notes(
            phase=context.phase,
            time=context.now,
            bundle=bundle.hash,
            findings=found_in(decision),
            view=_as_seen_from(request.namespace, context.view),
        ),
    )
    return _encoder.encode(line) + b"\n"


def decode_notes(data: bytes) -> Recorded:
    """The notes in a recorded line.

    Raises:
        msgspec.MsgspecError: there are none, or they are no such notes.
    """
    return _decoder.decode(data)


def _as_seen_from(namespace: str, view: ClusterView) -> ClusterView:
    """The view without the other namespaces: nothing that is asked of a request depends on them."""
    labels = view.namespaces.get(namespace)
    budgets = None if view.budgets is None else {namespace: view.budgets.get(namespace, ())}
    return replace(view, namespaces={} if labels is None else {namespace: labels}, budgets=budgets)


def _blotted(raw: msgspec.Raw) -> msgspec.Raw:
    """The object without what may be secret."""
    if is_null(raw) or not any(word in bytes(raw) for word in _SUSPICIOUS):
        return raw
    return msgspec.Raw(msgspec.json.encode(_blot(msgspec.json.decode(raw))))


def _blot(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_blot(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _blot_member(key, each) for key, each in value.items() if key != "managedFields"}


def _blot_member(key: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    if key == _LAST_APPLIED:
        return BLOT
    if key in _SECRET_MEMBERS:
        return dict.fromkeys(value, BLOT) if isinstance(value, dict) else BLOT
    if key == "env" and isinstance(value, list):
        return [_blot_variable(each) for each in value]
    return _blot(value)


def _blot_variable(variable: Any) -> Any:  # noqa: ANN401 - JSON
    shown = _blot(variable)
    return {**shown, "value": BLOT} if isinstance(shown, dict) and "value" in shown else shown


def _as_json(value: Any) -> Any:  # noqa: ANN401 - msgspec's signature
    if isinstance(value, LabelSelector):
        return [(key, operator, sorted(values)) for key, operator, values in value.requirements]
    raise NotImplementedError(f"{type(value).__name__} can't be recorded")


def _from_json(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's signature
    if kind is LabelSelector:
        return LabelSelector(msgspec.convert(value, list[tuple[str, str, list[str]]]))
    raise NotImplementedError(f"{kind.__name__} is not recorded")


_answer_decoder: Final = msgspec.json.Decoder(_Answer)
_encoder: Final = msgspec.json.Encoder(enc_hook=_as_json, order="deterministic")
_decoder: Final = msgspec.json.Decoder(Recorded, dec_hook=_from_json)
