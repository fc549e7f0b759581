"""Files that ``check`` reads, skips, and can't evaluate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POD
from webhook.inputs.broken import names_object
from webhook.inputs.objects import read_manifest_files

if TYPE_CHECKING:
    from tests.cli.conftest import Check, Write


CLEAN_POD = POD.replace("example.com/team", "team")


BROKEN = "apiVersion: v1\nkind: ConfigMap\na: {"


def test_unreadable_folder_is_an_error(check: Check, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("d/pod.yaml", POD)
    scandir = os.scandir

    def closed(path: str) -> Any:
        if str(path) == "d":
            raise PermissionError(13, "Permission denied", "d")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    done = check("d")
    assert (done.code, done.err) == (2, "d: can't be read: Permission denied\n")


@pytest.mark.parametrize(
    "text", ['{"apiVersion' + '\\"' * 300_000, '{"apiVersion":' + "/*" * 300_000, '{"kind' * 90_000]
)
def test_text_with_many_aliases_is_parsed_once(text: str) -> None:
    assert not names_object(text.encode())


def test_problems_of_one_file_and_printed_lines_are_bounded(check: Check, write: Write) -> None:
    named = (f"apiVersion: v1\nkind: Pod\nmetadata: {{labels: {{x{number}: {number}}}}}\n" for number in range(500))
    done = check(write("many.yaml", "---\n".join(named)))
    assert done.err.splitlines()[0] == "many.yaml: more than 100 problems; correct these, or pass another file"
    assert (done.code, len(done.json["unreadable"])) == (2, 101)
    for number in range(300):
        write(f"d/{number}.yaml", BROKEN.replace("a:", f"? {number}\n? {number}\na:"))
    lines = check("--verbose", "d").err.splitlines()
    assert (len(lines), lines[-1]) == (201, "and 100 more problems, which are not shown; correct these first")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\n---\n" * 100_001, "lines.yaml:200001:1: more than 100000 documents; split it into several files"),
        ("{}" * 100_001, "lines.yaml:1:1: more than 100000 documents; split it into several files"),
    ],
    ids=["YAML", "JSON"],
)
def test_documents_of_one_file_are_bounded(check: Check, write: Write, text: str, says: str) -> None:
    done = check(write("lines.yaml", text))
    assert (done.code, done.err.splitlines()) == (2, [says])


def test_objects_of_all_files_are_bounded(check: Check, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.inputs.objects.OBJECTS_AT_MOST", 3)
    for number in range(5):
        write(f"d/{number}.yaml", CLEAN_POD)
    done = check("d")
    text = "the files hold more than 3 objects; evaluate one folder at a time, or --ignore some"
    assert (done.code, done.err) == (2, f"d/3.yaml: {text}; or leave the file out with --ignore\n")
    items = '{"kind": "PodList", "apiVersion": "v1", "items": [{}, {}, {}, {}]}'
    assert check(write("list.json", items)).err == f"list.json: {text}\n"


@pytest.mark.parametrize("glob", ["testdata", "a/b", "./a/b/", "a/*/testdata", "?"])
@pytest.mark.parametrize("given", ["a/b/testdata/t.yaml", "./a/b/testdata", "a/x/../b/testdata/t.yaml"])
def test_files_in_an_ignored_folder_are_skipped_even_if_named(
    check: Check, write: Write, glob: str, given: str
) -> None:
    write("a/b/testdata/t.yaml", "a: {")
    Path("a/x").mkdir()
    pod = write("pod.yaml", CLEAN_POD)
    for path in (given, Path(given).absolute()):
        assert check(path, pod, "--ignore", glob).code == 0


def test_file_names_may_be_undecodable(check: Check, write: Write) -> None:
    write(os.fsdecode(b"d/p\xff.yaml"), POD)
    write(os.fsdecode(b"d/q\xff.yaml"), BROKEN)
    done = check("d")
    assert done.json["results"][0]["file"] == "d/p\\udcff.yaml"
    assert done.err.startswith("d/q\\udcff.yaml:4:1: ")


def test_a_vanished_file_is_an_error_and_the_rest_is_judged(
    check: Check, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = write("d/gone.yaml", POD)
    write("d/pod.yaml", POD)

    def late(*arguments: Any) -> None:
        gone.unlink()
        read_manifest_files(*arguments)

    monkeypatch.setattr("webhook.inputs.manifests.read_manifest_files", late)
    done = check("d")
    assert (done.code, done.err) == (
        2,
        "d/gone.yaml: can't be read: No such file or directory; or leave the file out with --ignore\n",
    )
    assert done.outcomes == [("labels", "deny")]


def test_devices_in_a_folder_are_skipped_and_a_named_pipe_is_read(check: Check, write: Write) -> None:
    write("d/pod.yaml", CLEAN_POD)
    Path("d/zero.yaml").symlink_to("/dev/zero")
    assert check("d").json["summary"]["documents"] == 1
    reading, writing = os.pipe()
    os.write(writing, POD.encode())
    os.close(writing)
    done = check(f"/dev/fd/{reading}")
    os.close(reading)
    assert done.outcomes == [("labels", "deny")]
