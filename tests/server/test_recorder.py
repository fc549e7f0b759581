"""Recording delays and fails no request, and never fills the disk."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.harness import PATIENCE, SHORT, labelled, review
from tests.server.recording import Recording, of
from webhook.runtime.limits import LIMITS
from webhook.server.http.recorder import prepare_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import Spawn


# Bounds -------------------------------------------------------------------------------------------------------------


def test_files_are_rotated_and_the_oldest_deleted(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, record_file=3000, record_files=3))
    for number in range(20):
        recording.take(review(uid=f"uid-{number:02}"))
    uids = [line["request"]["uid"] for line in recording.end()]
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    assert all(file.stat().st_size <= 3000 for file in files)
    assert uids == [f"uid-{number:02}" for number in range(20 - len(uids), 20)]
    assert recording.count("spotgate_recorded_total") == 20


def test_other_files_in_the_folder_are_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("")
    recording = Recording(tmp_path, replace(LIMITS, record_file=1, record_files=1))
    for _ in range(3):
        recording.take(review())
    recording.end()
    assert (tmp_path / "notes.jsonl").exists()
    assert len(list(tmp_path.glob("reviews-*"))) == 1


def test_a_large_review_is_dropped_and_counted(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, record_bytes=2000))
    recording.take(review(object={"x": "y" * 2000}))
    recording.take(review())
    assert len(recording.end()) == 1
    assert recording.count('spotgate_unrecorded_total{reason="too large"}') == 1


def test_reviews_are_dropped_while_the_disk_stalls(tmp_path: Path) -> None:
    recording = Recording(tmp_path, replace(LIMITS, records_waiting=3000))
    for _ in range(100):  # before the first write
        recording.take(review())
    left_out = recording.count('spotgate_unrecorded_total{reason="too many at once"}')
    assert len(recording.end()) == 100 - left_out
    assert 90 < left_out < 100


# Failures -----------------------------------------------------------------------------------------------------------


def test_other_users_can_not_read_the_folder_or_files(recording: Recording) -> None:
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


def test_a_folder_open_to_other_users_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(OSError, match=r"other users can read recorded reviews there \(mode 0755\).*run `chmod 700"):
        prepare_folder(tmp_path)


def test_an_unwritable_folder_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root can write everywhere
    with pytest.raises(OSError, match="this user can't write recorded reviews there"):
        prepare_folder(tmp_path / "recorded")


def test_a_file_is_rejected_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="can't create this folder for recorded reviews: File exists"):
        prepare_folder(tmp_path / "file")


def test_a_removed_file_is_recreated(tmp_path: Path) -> None:
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


def test_a_full_disk_leaves_no_partial_line_and_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, full = os.write, threading.Event()

    def sometimes(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:10] if full.is_set() else data)

    monkeypatch.setattr("webhook.server.http.recorder.os.write", sometimes)
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
    lines = [json.loads(line) for line in recording.log.getvalue().splitlines()]
    assert [line["problem"] for line in lines if line["event"] == "reviews not recorded"] == ["No space left on device"]


def test_recording_continues_after_an_unrecordable_review(tmp_path: Path) -> None:
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
