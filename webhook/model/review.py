"""Decode the AdmissionReview that the API server sends (admission.k8s.io/v1).

This module decodes only the envelope. ``object`` and ``old_object`` stay raw JSON until a matching policy reads them,
so a request that no policy matches costs no decoding of its objects.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request
"""

from __future__ import annotations

import re
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.base.bounds import DECODED_AT_MOST, expect_decodable
from webhook.base.field_paths import field_path
from webhook.base.text import described

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

NODES: Final = "system:nodes"
"""The group of kubelets."""

_NULL: Final = msgspec.Raw(b"null")


class BadReviewError(Exception):
    """Bytes that aren't an AdmissionReview. The text is the reason."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The kind of the object in the request."""

    group: str = ""
    version: str = ""
    kind: str = ""

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` as in manifests: ``apps/v1``, ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> str:
        """Return the kind with its group: ``Deployment.apps``, ``Pod``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GroupVersionResource(msgspec.Struct, frozen=True):
    """The resource of the request, without a subresource."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(msgspec.Struct, frozen=True):
    """The requester. An empty ``username`` is an unknown user (offline), to whom no exemption applies."""

    username: str = ""
    groups: tuple[str, ...] | None = None


PROBE_NAME: Final = "spotgate-doctor-"
"""The generateName of the objects that `spotgate doctor` submits to test the policies."""


class Request(msgspec.Struct, rename="camel", kw_only=True):
    """The ``request`` of an AdmissionReview."""

    uid: str
    operation: str
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None

    @property
    def path(self) -> str:
        """Return the resource with its subresource, as in webhook rules: ``pods``, ``nodepools/scale``."""
        return f"{self.resource.resource}/{self.sub_resource}" if self.sub_resource else self.resource.resource

    @property
    def is_probe(self) -> bool:
        """Return whether `spotgate doctor` sent the request."""
        return self.dry_run is True and PROBE_NAME.encode() in bytes(self.object)

    def describe(self) -> str:
        """Return the request as one phrase: ``CREATE pods team-a/web``."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.operation} {self.path} {where}".rstrip()


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: Request | None = None


class _Sizes(msgspec.Struct, rename="camel"):
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _SizedEnvelope(msgspec.Struct):
    request: _Sizes = msgspec.field(default_factory=_Sizes)


_decoder: Final = msgspec.json.Decoder(_Envelope)
_sizes_decoder: Final = msgspec.json.Decoder(_SizedEnvelope)

ENVELOPE_AT_MOST: Final = 1024 * 1024
"""Bytes of a review without its objects. A user in 1,000 groups with the longest names takes 256 KiB."""

BRACKETS_AT_MOST: Final = 3 * 512 * 1024
COMMAS_AT_MOST: Final = 3 * 1024 * 1024
"""Opening brackets and commas of a review. Two objects of 1.5 MiB, the limit of etcd, have no more even if they contain
nothing else: a list or map takes two bytes there, an item in a list of small numbers one. Scanning this many takes
15 ms, and a review is scanned about four times."""


def decode_review(data: bytes) -> Request:
    """Decode an AdmissionReview.

    Raises:
        BadReviewError: the bytes aren't JSON, have another group, version, or kind, lack a required field, or have a
            larger envelope than any API server sends.
    """
    try:
        if len(data) > ENVELOPE_AT_MOST:
            if data.count(b"[") + data.count(b"{") > BRACKETS_AT_MOST:
                raise BadReviewError(f"the AdmissionReview has more than {BRACKETS_AT_MOST:,} lists and maps")
            if data.count(b",") > COMMAS_AT_MOST:
                raise BadReviewError(f"the AdmissionReview has more than {COMMAS_AT_MOST:,} items")
            sizes = _sizes_decoder.decode(data).request
            if len(data) - len(sizes.object) - len(sizes.old_object) > ENVELOPE_AT_MOST:
                raise BadReviewError(f"the AdmissionReview has more than {ENVELOPE_AT_MOST:,} bytes around its objects")
        envelope = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadReviewError(f"not an AdmissionReview: {reason}") from None
    if (envelope.api_version, envelope.kind) != (API_VERSION, KIND):
        got = f"{envelope.api_version or '(no apiVersion)'} {envelope.kind or '(no kind)'}"
        raise BadReviewError(f"expected {API_VERSION} {KIND}, got {got}")
    request = envelope.request
    if request is None:
        raise BadReviewError("the AdmissionReview has no `request`")
    if not request.uid:
        raise BadReviewError("`request.uid` is empty")
    if request.operation not in OPERATIONS:
        raise BadReviewError(f"`request.operation` is {request.operation!r}, not one of {', '.join(OPERATIONS)}")
    return request


def is_null(raw: msgspec.Raw) -> bool:
    """Return whether the object is ``null`` or absent."""
    return len(raw) <= len(b"null") and bytes(raw) in {b"", b"null"}


class _DesiredState(msgspec.Struct):
    """The desired state of an object: ``spec``, or the ``template`` of a PodTemplate."""

    spec: msgspec.Raw = _NULL
    template: msgspec.Raw = _NULL


_desired_state_decoder: Final = msgspec.json.Decoder(_DesiredState)


def changes_metadata_only(request: Request) -> bool:
    """Return whether the request changes only the object's metadata and status."""
    raw = request.object, request.old_object
    if request.operation != "UPDATE" or any(map(is_null, raw)):
        return False
    try:
        new, old = map(_desired_state_decoder.decode, raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return bytes(new.spec) == bytes(old.spec) and bytes(new.template) == bytes(old.template)


def decode_object(raw: msgspec.Raw, at_most: int = DECODED_AT_MOST) -> dict[str, Any]:
    """Return the object as plain JSON values of at most ``at_most`` bytes.

    Raises:
        MalformedObjectError: the value isn't a JSON object.
        OverBoundError: the values would take more memory.
    """
    expect_decodable(raw, at_most)
    return decoded(_object_decoder, raw)


def decoded(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, field: str = "", value: object = None) -> T:
    """Return the decoded JSON of the value at ``field``. Pass it as ``value``, too, if its errors can be below maps.

    Raise MalformedObjectError if it isn't JSON, or has other types.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedObjectError.of(error, field, value) from None


def converted(value: object, kind: type[T]) -> T:
    """Return plain JSON as this type. Raise MalformedObjectError if it has other types."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise MalformedObjectError.of(error, value=value) from None


def _parse_float(text: str) -> float:
    """Return the number. msgspec's parser takes 10 us for 1e308, and Python's 0.2 us."""
    number = float(text)
    if not isfinite(number):
        raise msgspec.ValidationError("Number out of range")
    return number


_object_decoder: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_parse_float)


_EXPECTED: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field (`[^`]+`)")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
_ANY_KEY: Final = "..."
"""The step that msgspec writes for any key of a map."""
_WORDS: Final = {
    "array": ("a list", list),
    "object": ("a map", dict),
    "str": ("text", str),
    "int": ("a whole number", int),
    "float": ("a number", float),
    "bool": ("true or false", bool),
    "null": ("nothing", type(None)),
}
"""msgspec's names of types, each with a phrase for users and the Python type."""


class MalformedObjectError(Exception):
    """An object that does not have the types of its kind.

    Attributes:
        problem: the problem, such as ``expected a list, got text``.
        field: the field path, such as ``spec.tolerations``; empty if the object as a whole is wrong.
        fix: how to fix the problem.
    """

    def __init__(self, problem: str, field: str, fix: str = "") -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.problem = problem
        self.field = field
        self.fix = fix or "give the field the type that its kind has in the Kubernetes API"

    @classmethod
    def of(cls, error: Exception, prefix: str = "", value: object = None) -> MalformedObjectError:
        """Return the error for an error of msgspec, whose text ends in `` - at `$.spec.tolerations` ``.

        Args:
            error: the error that msgspec raised.
            prefix: the field path of the decoded value.
            value: the decoded value, as plain JSON or as bytes; needed to name the keys of maps.
        """
        if isinstance(error, RecursionError):
            return cls("nested too deeply", prefix)
        if isinstance(error, UnicodeDecodeError):
            return cls("not valid UTF-8", prefix)
        text, _, at = str(error).partition(" - at `$")
        steps = tuple(name or key or int(index) for name, index, key in _STEP.findall(at.rstrip("`")))
        expected = _EXPECTED.fullmatch(text)
        if expected is None:
            text = _MISSING.sub(r"field \1 is missing", text)
            return cls(text[:1].lower() + text[1:], _joined(prefix, steps))
        types = expected[1].removesuffix(" | null").replace("int | float", "float").split(" | ")
        path, got = next(_of_type(expected[2], _plain(value), steps), (steps, None))
        quoted = "write it in quotes" if types == ["str"] and isinstance(got, int | float) else ""
        wanted = " or ".join(_WORDS[name][0] for name in types)
        actual = _WORDS[expected[2]][0] if got is None else described(got)
        return cls(f"expected {wanted}, got {actual}", _joined(prefix, path), quoted)


def _joined(prefix: str, path: tuple[str | int, ...]) -> str:
    field = field_path(path).replace(f'["{_ANY_KEY}"]', "[*]")
    return f"{prefix}{'.' if prefix and field[:1] not in {'', '['} else ''}{field}"


def _plain(value: object) -> Any:
    if not isinstance(value, bytes | msgspec.Raw):
        return value
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return msgspec.json.decode(value)
    return None


def _of_type(name: str, value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the values of the named type at these steps, each with its path."""
    if not steps:
        if type(value) is _WORDS[name][1]:
            yield (), value
        return
    step, *rest = steps
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        if step in {key, _ANY_KEY}:
            yield from (((key, *path), inner) for path, inner in _of_type(name, member, tuple(rest)))
