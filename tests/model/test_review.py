"""Decoding of an AdmissionReview and its object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.kube.pod_decoding import decode_pod, pod_from_template
from webhook.model.review import BadReviewError, MalformedObjectError, decode_object, decode_review, is_null

REQUEST: dict[str, Any] = {
    "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "operation": "CREATE",
    "namespace": "team-a",
    "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
    "object": {"metadata": {"name": "web"}},
    "oldObject": None,
}


def envelope(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**REQUEST, **changes}}


def test_decoding_a_review_leaves_its_object_undecoded() -> None:
    request = decode_review(json.dumps(envelope()).encode())
    assert request.uid == REQUEST["uid"]
    assert (request.operation, request.path, request.namespace) == ("CREATE", "pods", "team-a")
    assert request.user_info.username == "jane"
    assert is_null(request.old_object)
    assert decode_object(request.object) == {"metadata": {"name": "web"}}


def test_a_subresource_is_part_of_the_path() -> None:
    request = decode_review(json.dumps(envelope(subResource="scale")).encode())
    assert request.path == "pods/scale"


def test_an_absent_object_is_null() -> None:
    body = envelope()
    del body["request"]["object"]
    assert is_null(decode_review(json.dumps(body).encode()).object)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not an AdmissionReview"),
        (b"{", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b"\xff\xfe", "not an AdmissionReview"),
        (b"[" * 50_000, "not an AdmissionReview"),
        (b'{"request":' + b'{"a":' * 50_000, "not an AdmissionReview"),
        (b'{"apiVersion": NaN}', "not an AdmissionReview"),
        (json.dumps({**envelope(), "apiVersion": "admission.k8s.io/v1beta1"}).encode(), "v1beta1"),
        (json.dumps({**envelope(), "kind": "Pod"}).encode(), "expected admission.k8s.io/v1 AdmissionReview"),
        (b"{}", "(no apiVersion) (no kind)"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "no `request`"),
        (json.dumps(envelope(uid="")).encode(), "`request.uid` is empty"),
        (json.dumps(envelope(operation="PATCH")).encode(), "`request.operation` is 'PATCH'"),
        (json.dumps(envelope(kind="Pod")).encode(), "$.request.kind"),
    ],
)
def test_an_invalid_review_is_rejected_with_a_reason(body: bytes, message: str) -> None:
    with pytest.raises(BadReviewError) as error:
        decode_review(body)
    assert message in str(error.value)


def test_a_deeply_nested_object_does_not_crash() -> None:
    body = (
        json.dumps(envelope(object=0))
        .encode()
        .replace(b'"object": 0', b'"object": ' + b'{"a":' * 900 + b"1" + b"}" * 900)
    )
    request = decode_review(body)
    assert isinstance(decode_object(request.object), dict)


def test_an_object_that_is_not_a_map_is_malformed() -> None:
    request = decode_review(json.dumps(envelope(object=[1])).encode())
    with pytest.raises(MalformedObjectError, match="expected a map"):
        decode_object(request.object)


def test_an_infinite_number_is_malformed() -> None:
    body = json.dumps(envelope(object=0)).encode().replace(b'"object": 0', b'"object": {"a": 1e400}')
    with pytest.raises(MalformedObjectError):
        decode_object(decode_review(body).object)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ('{"labels": {"a": "1"}}', '{"labels": {"b": "2"}}'),
        ('{"labels": {"a": "1"}}', "{}"),
        ('{"labels": {"a": "1", "a": "2"}}', '{"labels": {"a": "3", "a": "4"}}'),
    ],
)
def test_the_last_of_duplicate_keys_counts_for_all_decoders(first: str, last: str) -> None:
    """The API server writes no duplicates. Other clients must not show different objects to different rules."""
    twice = f'{{"metadata": {first}, "metadata": {last}}}'
    body = json.dumps(envelope(object=0)).replace('"object": 0', f'"object": {{}}, "object": {twice}')
    body = body.replace('"request":', f'"request": {json.dumps(REQUEST | {"uid": "other"})}, "request":')
    request = decode_review(body.encode())
    labels = json.loads(last).get("labels")
    assert request.uid == REQUEST["uid"]
    assert decode_object(request.object) == {"metadata": json.loads(last)}
    assert decode_pod(request.object).metadata.labels == labels


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            {"spec": {"nodeSelector": {"a": "b", "example.com/rack": 7}}},
            'spec.template.spec.nodeSelector["example.com/rack"]: expected text, got the number 7',
        ),
        (
            {"spec": {"containers": [{}, {"ports": [{"containerPort": "http"}]}]}},
            "spec.template.spec.containers[1].ports[0].containerPort: expected a whole number, got text",
        ),
        ({"spec": []}, "spec.template.spec: expected a map, got a list"),
        ({"metadata": {"labels": {"a": []}}}, "spec.template.metadata.labels.a: expected text, got a list"),
        (
            {"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": []}}}]}},
            "spec.template.spec.containers[0].resources.limits.memory: expected a number or text, got a list",
        ),
    ],
)
def test_a_wrong_type_is_reported_with_its_path_in_yaml_terms(template: object, message: str) -> None:
    with pytest.raises(MalformedObjectError) as error:
        pod_from_template(template, "spec.template")
    assert str(error.value) == message


def test_the_fix_for_a_value_that_should_be_text_is_to_quote_it() -> None:
    with pytest.raises(MalformedObjectError) as error:
        decode_pod(b'{"spec": {"nodeSelector": {"a": true}}}')
    assert (error.value.field, error.value.fix) == ("spec.nodeSelector.a", "write it in quotes")
