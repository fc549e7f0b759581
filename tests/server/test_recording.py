"""The content of a recording, and what it omits."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from tests.server.harness import bundle_of, review
from tests.server.recording import CONTEXT, Recording, of
from webhook.engine.engine import decide
from webhook.engine.index import Index
from webhook.engine.response import respond
from webhook.kube.pod import Toleration
from webhook.kube.references import Reference, key_of
from webhook.model.decision import Outcome, Violation
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase
from webhook.runtime.recording import REDACTED, decode_notes, encode_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from webhook.kube.edit import PodEditor
    from webhook.rules.subject import Subject


def test_a_line_is_an_admission_review_with_its_answer_and_what_it_was_decided_with(recording: Recording) -> None:
    recording.take(review())
    (line,) = recording.end()
    assert (line["apiVersion"], line["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert line["request"]["object"] == json.loads(review())["request"]["object"]
    assert line["request"]["userInfo"]["username"] == "anna@example.com"
    assert (line["response"]["allowed"], line["response"]["uid"]) == (False, line["request"]["uid"])
    assert (line["spotgate"]["phase"], line["spotgate"]["bundle"]) == ("validate", "test-policy")
    assert line["spotgate"]["findings"] == [
        {"policy": "test-policy", "id": "test/unwanted", "outcome": "deny", "reason": "it is reserved", "field": ""}
    ]
    assert line["spotgate"]["view"]["pools"] == []
    assert recording.count("spotgate_recorded_total") == 1


def test_a_recording_replays_to_the_same_decision(recording: Recording) -> None:
    bundle = bundle_of()
    request = decode_review(review())
    decision = decide(request, bundle.index, CONTEXT)
    recording.take(review(), lambda _, __: ())
    (line,) = recording.end()
    data = json.dumps(line).encode()
    notes = decode_notes(data).spotgate
    assert (notes.view, notes.time, notes.phase) == (CONTEXT.view, CONTEXT.now, CONTEXT.phase)
    assert decide(decode_review(data), bundle.index, msgspec.structs.replace(CONTEXT, view=notes.view)) == decision


def test_a_line_contains_the_objects_that_the_object_names_and_their_volumes() -> None:
    claim, other = (key_of("PersistentVolumeClaim", "team-a", name) for name in ("data", "other"))
    volume = key_of("PersistentVolume", "", "pv-1")
    elsewhere = key_of("PersistentVolumeClaim", "elsewhere", "data")
    known = {claim: Reference(volume="pv-1"), volume: Reference(), other: Reference(), elsewhere: Reference()}
    context = msgspec.structs.replace(CONTEXT, view=msgspec.structs.replace(CONTEXT.view, references=known))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    request, bundle = decode_review(review(object={"spec": {"volumes": volumes}})), bundle_of()
    decision = decide(request, bundle.index, context)
    line = encode_line(request, decision, context, bundle, respond(request.uid, decision, context.phase))
    assert decode_notes(line).spotgate.view.references == {claim: known[claim], volume: known[volume]}


@pytest.mark.parametrize(
    "body",
    [
        of("secrets", kind="Secret"),
        of("secrets", kind="Secret", operation="UPDATE"),
        of("secrets", kind="Secret", operation="DELETE"),
        of("secrets", sub="status"),
        of("other", kind="Secret"),
        of("configmaps", kind="ConfigMap"),
        of("tokenreviews", group="authentication.k8s.io", kind="TokenReview"),
        of("serviceaccounts", sub="token", group="", kind="TokenRequest"),
        of("pods", sub="exec", kind="PodExecOptions", operation="CONNECT"),
    ],
)
def test_secrets_are_not_recorded(recording: Recording, body: bytes) -> None:
    recording.take(body)
    assert recording.end() == []
    assert recording.count("spotgate_recorded_total") == 0


def test_environment_variable_values_are_redacted_everywhere(recording: Recording) -> None:
    env = [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    spec = {"containers": [{"name": "main", "env": env}], "initContainers": [{"name": "init", "env": env}]}
    workload = {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}}
    recording.take(review(object=workload, oldObject=workload))
    (line,) = recording.end()
    assert "hunter2" not in json.dumps(line)
    for recorded_object in (line["request"]["object"], line["request"]["oldObject"]):
        recorded = recorded_object["spec"]["template"]["spec"]
        assert recorded["containers"][0]["env"] == [{"name": "A", "value": REDACTED}, env[1]]
        assert recorded["initContainers"][0]["env"][0] == {"name": "A", "value": REDACTED}


def decoded(value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except ValueError:
        return value


HIDDEN: Final = "correct horse battery staple " * 1000
CODED: Final = b64encode(HIDDEN.encode()).decode()
SECRET: Final = {"apiVersion": "v1", "kind": "Secret"}
SHOWN: Final[dict[str, Callable[[str], str]]] = {
    "unchanged": str,
    "in uppercase": str.upper,
    "a part": lambda value: value[:7],
    "decoded": decoded,
    "encoded": lambda value: b64encode(value.encode()).decode(),
}


def texts(value: Any) -> Iterator[str]:
    """Yield every text in an object."""
    if isinstance(value, str):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(child)


@pytest.mark.parametrize("outcome", [Outcome.DENY, Outcome.WARN, Outcome.AUDIT])
@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize(
    "secret",
    [
        {"env": [{"name": "A", "value": HIDDEN}]},
        {**SECRET, "data": {"a": CODED}},
        {"apiVersion": "v1", "kind": "List", "items": [{**SECRET, "stringData": {"a": HIDDEN}}]},
        {"apiVersion": "v1", "kind": "SecretList", "items": [{"metadata": {"name": "a"}, "data": {"a": CODED}}]},
        {"apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"a": CODED}},
    ],
    ids=["variable", "secret", "list", "list of secrets", "config map"],
)
def test_values_derived_from_secrets_are_not_recorded(
    recording: Recording, secret: dict[str, Any], shown: str, outcome: Outcome
) -> None:
    def quotes(subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        for text in texts(subject.object):
            reason = f"it is {SHOWN[shown](text)}"
            yield Violation(id="unwanted", reason=reason, detail=reason, fix=reason, outcome=outcome)

    recording.take(review(object={"spec": secret}), quotes)
    (line,) = recording.end()
    written = json.dumps(line)
    for part in ("horse", "HORSE", "correct", HIDDEN[:7], CODED[:20], b64encode(CODED.encode()).decode()[:20]):
        assert part not in written
    assert line["spotgate"]["findings"]


def test_the_recorded_answer_matches_the_recorded_object(recording: Recording) -> None:
    def forbids(subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        if "hunter2" in texts(subject.object):
            yield Violation(id="unwanted", reason="a password")

    recording.take(review(object={"spec": {"env": [{"name": "A", "value": "hunter2"}]}}), forbids)
    (line,) = recording.end()
    assert (line["response"]["allowed"], line["response"]["uid"]) == (True, line["request"]["uid"])
    assert line["spotgate"]["findings"] == []


class Copies:
    """A rule that copies the value of a variable to a wrong place."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        del context
        editor.add_toleration(Toleration(key="copied", value=str((subject.object or {})["spec"]["env"][0]["value"])))


def test_a_secret_value_is_not_in_the_recorded_patch(recording: Recording) -> None:
    bundle = bundle_of()
    (policy,) = bundle.policies
    copying = msgspec.structs.replace(policy, mutator=Copies())
    bundle = msgspec.structs.replace(bundle, index=Index([copying], (), {}, "spotgate-system"))
    request = decode_review(review(object={"metadata": {}, "spec": {"env": [{"name": "A", "value": "hunter2"}]}}))
    context = msgspec.structs.replace(CONTEXT, phase=Phase.MUTATE)
    decision = decide(request, bundle.index, context)
    answer = respond(request.uid, decision, Phase.MUTATE)
    assert b"hunter2" in b64decode(json.loads(answer)["response"]["patch"])
    recording.recorder.take(request, decision, context, bundle, answer)
    (line,) = recording.end()
    (operation,) = json.loads(b64decode(line["response"]["patch"]))
    assert (operation["path"], operation["value"][0]["value"]) == ("/spec/tolerations", REDACTED)


def test_a_review_without_secrets_is_recorded_unchanged(recording: Recording) -> None:
    recording.take(review())
    (line,) = recording.end()
    assert line["spotgate"]["findings"][0]["reason"] == "it is reserved"
    assert "it is reserved" in line["response"]["status"]["message"]


@pytest.mark.parametrize("data", [None, "hunter2", ["hunter2"], {"a": {"b": "hunter2"}}])
def test_secret_data_of_a_wrong_type_is_redacted(recording: Recording, data: Any) -> None:
    recording.take(review(object={"spec": {"apiVersion": "v1", "kind": "Secret", "data": data}}))
    assert "hunter2" not in json.dumps(recording.end())


def test_a_value_under_an_escaped_name_is_redacted(recording: Recording) -> None:
    body = review(object={"spec": {"containers": [{"env": [{"name": "A", "value": "hunter2"}]}]}})
    recording.take(body.replace(b'"env"', rb'"\u0065nv"'))
    assert "hunter2" not in json.dumps(recording.end())


def test_managed_fields_and_last_applied_configuration_are_omitted(recording: Recording) -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"password": "hunter2"}', "a": "b"}
    metadata = {"name": "web-0", "annotations": annotations, "managedFields": [{"manager": "kubectl"}]}
    recording.take(review(object={"metadata": metadata, "spec": {}}))
    (line,) = recording.end()
    recorded = line["request"]["object"]["metadata"]
    assert recorded["annotations"] == {"kubectl.kubernetes.io/last-applied-configuration": REDACTED, "a": "b"}
    assert "managedFields" not in recorded


@pytest.mark.parametrize("value", [None, "text", 1, [1, "a", None, {"value": 1}], {"value": "x"}, [[{"value": "x"}]]])
def test_an_env_of_a_wrong_type_is_accepted(recording: Recording, value: Any) -> None:
    recording.take(review(object={"spec": {"env": value, "x": [[], {}, None]}}))
    assert len(recording.end()) == 1
