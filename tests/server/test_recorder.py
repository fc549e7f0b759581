"""Recording: what is written, what never is, and that no request waits, fails or fills the disk for it."""

from __future__ import annotations

import json
import os
import signal
import threading
from base64 import b64decode, b64encode
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from prometheus_client import generate_latest

from tests.server.harness import PATIENCE, SHORT, Known, bundle_of, labelled, review
from webhook.engine.engine import decide
from webhook.engine.index import Index
from webhook.engine.response import respond
from webhook.kube.pod import Toleration
from webhook.model.decision import Outcome, Violation
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase, utc_now
from webhook.server.limits import LIMITS
from webhook.server.log import configure_logging
from webhook.server.metrics import Metrics
from webhook.server.recorder import Recorder, prepare_folder
from webhook.server.recording import REDACTED, decode_notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.server.conftest import Spawn
    from tests.server.harness import Judge
    from webhook.kube.edit import PodEditor
    from webhook.rules.subject import Subject
    from webhook.server.limits import Limits

CONTEXT = Context(phase=Phase.VALIDATE, now=utc_now(), view=Known().view())


def reserved(subject: Subject, context: Context) -> Iterable[Violation]:
    del subject, context
    yield Violation(id="unwanted", reason="it is reserved")


class Recording:
    """A recorder in a folder, and what it wrote."""

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        self.folder = folder
        self.metrics = Metrics()
        self.recorder = Recorder(folder, self.metrics, replace(limits, finish=PATIENCE))

    def take(self, body: bytes, judge: Judge = reserved, context: Context = CONTEXT) -> None:
        request, bundle = decode_review(body), bundle_of(judge)
        decision = decide(request, bundle.index, context)
        self.recorder.take(request, decision, context, bundle, respond(request.uid, decision, context.phase))

    def end(self) -> list[Any]:
        """Write what waits; the lines."""
        self.recorder.start()
        self.recorder.close()
        return [json.loads(line) for file in sorted(self.folder.glob("*")) for line in file.read_text().splitlines()]

    def count(self, sample: str) -> float:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    prepare_folder(tmp_path / "recorded")
    return Recording(tmp_path / "recorded")


# What is written ----------------------------------------------------------------------------------------------------


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


def test_what_was_recorded_is_read_again_and_decides_the_same(recording: Recording) -> None:
    bundle = bundle_of()
    request = decode_review(review())
    decision = decide(request, bundle.index, CONTEXT)
    recording.take(review(), lambda _, __: ())
    (line,) = recording.end()
    data = json.dumps(line).encode()
    notes = decode_notes(data).spotgate
    assert (notes.view, notes.time, notes.phase) == (CONTEXT.view, CONTEXT.now, CONTEXT.phase)
    assert decide(decode_review(data), bundle.index, replace_view(notes.view)) == decision


def replace_view(view: Any) -> Context:
    return Context(phase=CONTEXT.phase, now=CONTEXT.now, view=view)


# What never is ------------------------------------------------------------------------------------------------------


def of(resource: str, *, group: str = "", kind: str = "X", sub: str = "", operation: str = "CREATE") -> bytes:
    return review(
        resource={"group": group, "version": "v1", "resource": resource},
        kind={"group": group, "version": "v1", "kind": kind},
        subResource=sub,
        operation=operation,
        object={"data": {"password": "hunter2"}, "metadata": {"name": "x"}},
        oldObject={"data": {"password": "hunter2"}, "metadata": {"name": "x"}},
    )


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
def test_what_is_secret_is_not_recorded(recording: Recording, body: bytes) -> None:
    recording.take(body)
    assert recording.end() == []
    assert recording.count("spotgate_recorded_total") == 0


def test_values_of_environment_variables_are_redacted_out_wherever_they_are(recording: Recording) -> None:
    env = [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    spec = {"containers": [{"name": "main", "env": env}], "initContainers": [{"name": "init", "env": env}]}
    workload = {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}}
    recording.take(review(object=workload, oldObject=workload))
    (line,) = recording.end()
    assert "hunter2" not in json.dumps(line)
    for each in (line["request"]["object"], line["request"]["oldObject"]):
        recorded = each["spec"]["template"]["spec"]
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
    "as it is": str,
    "in capitals": str.upper,
    "a part": lambda value: value[:7],
    "decoded": decoded,
    "encoded": lambda value: b64encode(value.encode()).decode(),
}


def texts(value: Any) -> Iterator[str]:
    """Every text in an object."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(each)


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
def test_whatever_a_policy_makes_of_a_secret_value_is_recorded_nowhere(
    recording: Recording, secret: dict[str, Any], shown: str, outcome: Outcome
) -> None:
    def quotes(subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        for text in texts(subject.object):
            said = f"it is {SHOWN[shown](text)}"
            yield Violation(id="unwanted", reason=said, detail=said, fix=said, outcome=outcome)

    recording.take(review(object={"spec": secret}), quotes)
    (line,) = recording.end()
    written = json.dumps(line)
    for part in ("horse", "HORSE", "correct", HIDDEN[:7], CODED[:20], b64encode(CODED.encode()).decode()[:20]):
        assert part not in written
    assert line["spotgate"]["findings"]


def test_the_answer_is_that_to_the_recorded_object(recording: Recording) -> None:
    def forbids(subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        if "hunter2" in texts(subject.object):
            yield Violation(id="unwanted", reason="a password")

    recording.take(review(object={"spec": {"env": [{"name": "A", "value": "hunter2"}]}}), forbids)
    (line,) = recording.end()
    assert (line["response"]["allowed"], line["response"]["uid"]) == (True, line["request"]["uid"])
    assert line["spotgate"]["findings"] == []


class Copies:
    """A rule that puts the value of a variable where it does not belong."""

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


def test_what_has_no_secret_in_it_is_recorded_as_it_was_answered(recording: Recording) -> None:
    recording.take(review())
    (line,) = recording.end()
    assert line["spotgate"]["findings"][0]["reason"] == "it is reserved"
    assert "it is reserved" in line["response"]["status"]["message"]


@pytest.mark.parametrize("data", [None, "hunter2", ["hunter2"], {"a": {"b": "hunter2"}}])
def test_data_of_a_secret_of_another_type_is_redacted_out_too(recording: Recording, data: Any) -> None:
    recording.take(review(object={"spec": {"apiVersion": "v1", "kind": "Secret", "data": data}}))
    assert "hunter2" not in json.dumps(recording.end())


def test_an_escaped_name_does_not_hide_a_value(recording: Recording) -> None:
    body = review(object={"spec": {"containers": [{"env": [{"name": "A", "value": "hunter2"}]}]}})
    recording.take(body.replace(b'"env"', rb'"\u0065nv"'))
    assert "hunter2" not in json.dumps(recording.end())


def test_what_kubectl_and_the_api_server_keep_in_metadata_is_left_out(recording: Recording) -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"password": "hunter2"}', "a": "b"}
    metadata = {"name": "web-0", "annotations": annotations, "managedFields": [{"manager": "kubectl"}]}
    recording.take(review(object={"metadata": metadata, "spec": {}}))
    (line,) = recording.end()
    recorded = line["request"]["object"]["metadata"]
    assert recorded["annotations"] == {"kubectl.kubernetes.io/last-applied-configuration": REDACTED, "a": "b"}
    assert "managedFields" not in recorded


@pytest.mark.parametrize("value", [None, "text", 1, [1, "a", None, {"value": 1}], {"value": "x"}, [[{"value": "x"}]]])
def test_an_env_of_another_type_is_no_trouble(recording: Recording, value: Any) -> None:
    recording.take(review(object={"spec": {"env": value, "x": [[], {}, None]}}))
    assert len(recording.end()) == 1


# Bounds -------------------------------------------------------------------------------------------------------------


def test_files_end_when_they_are_long_enough_and_the_oldest_go(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, record_file=3000, record_files=3))
    for number in range(20):
        recording.take(review(uid=f"uid-{number:02}"))
    uids = [line["request"]["uid"] for line in recording.end()]
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size <= 3000 for file in files)
    assert uids == [f"uid-{number:02}" for number in range(20 - len(uids), 20)]
    assert recording.count("spotgate_recorded_total") == 20


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("")
    recording = Recording(tmp_path, replace(LIMITS, record_file=1, record_files=1))
    for _ in range(3):
        recording.take(review())
    recording.end()
    assert (tmp_path / "notes.jsonl").exists()
    assert len(list(tmp_path.glob("reviews-*"))) == 1


def test_a_large_review_is_left_out_and_counted(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, record_bytes=2000))
    recording.take(review(object={"x": "y" * 2000}))
    recording.take(review())
    assert len(recording.end()) == 1
    assert recording.count('spotgate_unrecorded_total{reason="too large"}') == 1


def test_while_the_disk_stalls_reviews_are_left_out_and_memory_stays_bounded(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, records_waiting=3000))
    for _ in range(100):  # nothing is written yet
        recording.take(review())
    left_out = recording.count('spotgate_unrecorded_total{reason="too many at once"}')
    assert len(recording.end()) == 100 - left_out
    assert 90 < left_out < 100


# Trouble ------------------------------------------------------------------------------------------------------------


def test_others_can_read_neither_folder_nor_files(recording: Recording) -> None:
    mask = os.umask(0)
    try:
        prepare_folder(recording.folder / "inner")
        recording.take(review())
        recording.recorder.start()
        recording.recorder.close()
    finally:
        os.umask(mask)
    modes = {path.name[:7]: path.stat().st_mode & 0o777 for path in recording.folder.iterdir()}
    assert modes == {"inner": 0o700, "reviews": 0o600}


def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(OSError, match=r"other users can read recorded reviews there \(mode 0755\).*run `chmod 700"):
        prepare_folder(tmp_path)


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(OSError, match="this user can't write recorded reviews there"):
        prepare_folder(tmp_path / "recorded")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="can't create this folder for recorded reviews: File exists"):
        prepare_folder(tmp_path / "file")


def test_what_is_removed_while_it_is_written_to_is_begun_anew(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "recorded")
    prepare_folder(tmp_path / "recorded")
    recording.recorder.start()
    recording.take(review(uid="first"))
    wait_for(lambda: recording.count("spotgate_recorded_total") == 1)
    for file in recording.folder.iterdir():
        file.unlink()
    recording.folder.rmdir()
    recording.take(review(uid="second"))
    recording.recorder.close()
    (file,) = recording.folder.iterdir()
    assert json.loads(file.read_text())["request"]["uid"] == "second"


def test_a_full_disk_leaves_no_half_line_and_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, full = os.write, threading.Event()

    def sometimes(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:10] if full.is_set() else data)

    monkeypatch.setattr("webhook.server.recorder.os.write", sometimes)
    log = BytesIO()  # stays open: later tests log to it, too
    configure_logging(log)
    (tmp_path / "recorded").mkdir()
    recording = Recording(tmp_path / "recorded")
    recording.recorder.start()
    recording.take(review(uid="before"))
    wait_for(lambda: recording.count("spotgate_recorded_total") == 1)
    full.set()
    recording.take(review(uid="lost"))
    recording.take(review(uid="lost too"))
    wait_for(lambda: recording.count("spotgate_unrecorded_total{") == 2)
    full.clear()
    recording.take(review(uid="after"))
    recording.recorder.close()
    lines = [json.loads(line) for file in sorted(recording.folder.iterdir()) for line in file.read_text().splitlines()]
    assert [line["request"]["uid"] for line in lines] == ["before", "after"]
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["problem"] for line in said if line["event"] == "reviews not recorded"] == ["No space left on device"]


def test_a_review_that_can_not_be_recorded_does_not_end_the_recording(tmp_path: Path) -> None:
    log = BytesIO()  # stays open: later tests log to it, too
    configure_logging(log)
    (tmp_path / "recorded").mkdir()
    recording = Recording(tmp_path / "recorded")
    recording.take(
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "x", '
        b'"operation": "CREATE", "kind": {}, "resource": {}, "object": {"env": "\xff"}}}'
    )
    recording.take(review())
    assert len(recording.end()) == 1
    assert recording.count('spotgate_unrecorded_total{reason="bug"}') == 1


def wait_for(what: Any) -> None:
    from tests.server.harness import eventually  # noqa: PLC0415

    eventually(what)


# The server ---------------------------------------------------------------------------------------------------------


def test_a_server_records_what_it_answers(spawn: Spawn, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    served = spawn(record=folder, limits=replace(SHORT, finish=PATIENCE))
    assert not served.post(labelled()).allowed
    for number in range(20):
        served.post(review(uid=f"uid-{number}"), "/mutate")
    served.post(of("secrets", kind="Secret"))
    served.process.send_signal(signal.SIGINT)
    served.process.wait()
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    assert sorted(line["spotgate"]["phase"] for line in lines) == ["mutate"] * 20 + ["validate"]
    assert {line["request"]["uid"] for line in lines} >= {f"uid-{number}" for number in range(20)}
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_nothing_is_recorded_unless_asked_for(spawn: Spawn, tmp_path: Path) -> None:
    served = spawn()
    assert not served.post(labelled()).allowed
    served.end()
    assert {path.name for path in tmp_path.iterdir()} == {"policies", "0.log"}
