"""What ``check`` makes of files: which it reads, which it skips, and which it can't judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import POD, SPOT_POOL
from webhook.offline.manifests.broken import names_object
from webhook.offline.manifests.objects import read_manifest_files

if TYPE_CHECKING:
    from tests.cli.conftest import Check, Run, Write


CLEAN_POD = POD.replace("example.com/team", "team")

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)

BROKEN = "apiVersion: v1\nkind: ConfigMap\na: {"

BAD: dict[str, tuple[str | bytes, str]] = {
    "template": (POD.replace("name: web", "name: {{ .Values.name }}"), "helm template"),
    "alias bomb": (BOMB, "aliases repeat more than"),
    "duplicate key": (f"kind: Pod\n{POD}", 'bad.yaml:3:1: duplicate key "kind", first at bad.yaml:1'),
    "binary": (bytes(range(256)), "the file is not UTF-8"),
    "UTF-16": (POD.encode("utf-16"), "save it as UTF-8"),
    "50,000 brackets in JSON": ('{"apiVersion": "v1", "kind": "Pod", "a": ' + "[" * 50_000, "nested deeper than"),
    "text": ("just a sentence\n", "bad.yaml:1:1: not a Kubernetes object"),
    "no apiVersion": (POD.replace("apiVersion: v1\n", ""), "bad.yaml:1:1: not a Kubernetes object"),
    "kind is a number": (POD.replace("kind: Pod", "kind: 5"), "bad.yaml:1:1: not a Kubernetes object"),
    "item is none": ("apiVersion: v1\nkind: List\nitems:\n  - a: b\n", "bad.yaml:4:5: items[0]: not a Kubernetes object"),
    "metadata is a list": ("apiVersion: v1\nkind: Pod\nmetadata: []\n", "bad.yaml:3:1: metadata: expected a map"),
    "name is a number": (
        POD.replace("name: web", "name: 17"),
        "bad.yaml:4:3: metadata.name: expected text, got the number 17; write it in quotes",
    ),
    "label is a flag": (
        POD.replace("team: a", "team: yes"),
        'bad.yaml:6:5: metadata.labels["example.com/team"]: expected text, got the boolean true',
    ),
}  # fmt: skip

MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "containers are no list": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers: 5\n",
        "bad.yaml:5:3: spec.containers: the object can't be read: expected a list",
    ),
    "containers of a template are no list": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {template: {spec: {containers: {}}}}\n",
        "bad.yaml:4:26: spec.template.spec.containers: the object can't be read: expected a list",
    ),
    "spec is a list": ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: []\n", "bad.yaml:4:1: spec: the object"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD | MALFORMED)
def test_file_that_cannot_be_judged_is_exit_code_2_and_everything_else_is_judged(
    check: Check, write: Write, case: str
) -> None:
    text, says = (BAD | MALFORMED)[case]
    done = check(write("bad.yaml", text), write("good.yaml", POD))
    assert done.code == 2
    assert done.err.startswith("bad.yaml:")
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert done.outcomes == [("labels", "deny")]


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


NO_MANIFESTS: dict[str, str | bytes] = {
    "CloudFormation": "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  kind: !Ref Name\n  apiVersion: !Sub a\n",
    "comments in JSON": '{\n  // "kind": "it\'s\n  /* { */ "a": {"apiVersion": "v1", "kind": "Pod"}, "b": [1,],\n}\n',
    "a tag of Python": "nav: !!python/name:material.extensions.emoji.twemoji\n",
    "git-crypt": b"\0GITCRYPT\0" + bytes(range(255, 128, -1)),
    "values": "# apiVersion: v1\n# kind: Pod\nimage: {{ .Values.image }}\n",
    "one of the two": "apiVersion: v2\nname: {{ name }}\n",
    "in two documents": "apiVersion: v2\n---\nkind: a\n---\na: {",
    "no object": "kind: Cluster\nmetadata: {name: a}\n",
    "a large text": "a" * 70_000,
}


@pytest.mark.parametrize("case", NO_MANIFESTS)
def test_what_is_no_manifest_is_skipped_in_a_folder_and_an_error_where_it_is_named(
    check: Check, write: Write, case: str
) -> None:
    write("d/pool.yaml", SPOT_POOL)
    file = write("d/other.yaml", NO_MANIFESTS[case])
    done = check("d")
    assert (done.code, done.err, done.outcomes) == (1, "", [("fallback", "deny")])
    assert done.json["summary"]["skipped"] == 1
    assert check(file).code == 2


MANIFESTS: dict[str, tuple[str | bytes, str]] = {
    "in the second document": (f"a: 1\n---\n{BROKEN}", "d/bad.yaml:6:1: "),
    "behind the broken one": (f"a: {{\n---\n{BROKEN}", "d/bad.yaml:2:1: "),
    "template": (POD.replace("name: web", "name: {{ .Values.name }}"), "d/bad.yaml:4:"),
    "template in two brackets": ("{{- if .Values.a }}\n" + POD + "{{ end }}\n", "d/bad.yaml:1:"),
    "JSON": ('{"metadata": {"name": "a"}, "kind": "Pod",\n"apiVersion": "v1", "a": [}', "d/bad.yaml:2:"),
    "flow mapping": ("{apiVersion: v1, kind: Pod, a: [}", "d/bad.yaml:1:"),
    "tag": ("\"apiVersion\": v1\n'kind' : Pod\na: !Ref b\n", "d/bad.yaml:3:4: tag '!Ref' is not for Kubernetes"),
    "UTF-16": (POD.encode("utf-16"), "d/bad.yaml:1:1: the file is UTF-16"),
    "letter case": (POD.replace("apiVersion", "apiversion"), "d/bad.yaml:1:1: not a Kubernetes object"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_can_not_be_parsed_is_an_error_in_a_folder_too(check: Check, write: Write, case: str) -> None:
    text, says = MANIFESTS[case]
    write("d/bad.yaml", text)
    done = check("d", write("good.yaml", POD))
    assert (done.code, done.outcomes) == (2, [("labels", "deny")])
    assert done.err.startswith(says)


@pytest.mark.parametrize(
    "text", ['{"apiVersion' + '\\"' * 300_000, '{"apiVersion":' + "/*" * 300_000, '{"kind' * 90_000]
)
def test_a_text_that_is_made_to_be_read_often_is_read_once(text: str) -> None:
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
    monkeypatch.setattr("webhook.offline.manifests.objects.OBJECTS_AT_MOST", 3)
    for number in range(5):
        write(f"d/{number}.yaml", CLEAN_POD)
    done = check("d")
    text = "the files hold more than 3 objects; judge one folder at a time, or --ignore some"
    assert (done.code, done.err) == (2, f"d/3.yaml: {text}; or leave the file out with --ignore\n")
    items = '{"kind": "PodList", "apiVersion": "v1", "items": [{}, {}, {}, {}]}'
    assert check(write("list.json", items)).err == f"list.json: {text}\n"


@pytest.mark.parametrize(
    "glob",
    [
        "skip",
        "*.bad.yaml",
        "d/skip/x.bad.yaml",
        "./d/skip/x.bad.yaml",
        "./d/skip",
        "d//skip/",
        "skip/",
        "skip/*",
        "s?ip",
    ],
)
def test_ignored_files_are_not_even_opened(check: Check, write: Write, glob: str) -> None:
    write("d/pod.yaml", POD)
    write("d/skip/x.bad.yaml", "a: {")
    done = check("d", "--ignore", glob)
    assert (done.code, done.json["summary"]["documents"]) == (1, 1)


@pytest.mark.parametrize("glob", ["testdata", "a/b", "./a/b/", "a/*/testdata", "?"])
@pytest.mark.parametrize("given", ["a/b/testdata/t.yaml", "./a/b/testdata", "a/x/../b/testdata/t.yaml"])
def test_what_is_in_an_ignored_folder_is_left_out_where_it_is_named_too(
    check: Check, write: Write, glob: str, given: str
) -> None:
    write("a/b/testdata/t.yaml", "a: {")
    Path("a/x").mkdir()
    pod = write("pod.yaml", CLEAN_POD)
    for path in (given, Path(given).absolute()):
        assert check(path, pod, "--ignore", glob).code == 0


def test_name_of_a_file_need_not_be_text(check: Check, write: Write) -> None:
    write(os.fsdecode(b"d/p\xff.yaml"), POD)
    write(os.fsdecode(b"d/q\xff.yaml"), BROKEN)
    done = check("d")
    assert done.json["results"][0]["file"] == "d/p\\udcff.yaml"
    assert done.err.startswith("d/q\\udcff.yaml:4:1: ")


POLICIES = {
    "unknown field": ("spec: {domain: [a.com]}", ["policy.yaml:4:8: spec.domain: unknown field `domain`, did you mean `domains`?"]),
    "unknown kind": ("kind: ReservedLabel", ["unknown kind 'ReservedLabel', did you mean `ReservedLabels`?"]),
    "wrong word": (
        "spec: {domains: [a.com], enforcement: denied}",
        ["policy.yaml:4:26: spec.enforcement: 'denied' is not one of deny, warn, audit or off, did you mean `deny`?"],
    ),
    "several at once": (
        "spec: {domains: [.com], enforcement: 5, exempt: [{users: [a]}]}",
        ["spec.domains[0]: ", "spec.enforcement: ", "spec.exempt[0].reason: is missing"],
    ),
    "broken YAML": ("spec: {domains: [", ["policy.yaml:5:1: "]),
    "duplicate key": ("spec: {domains: [a.com]}\nspec: {}", ['policy.yaml:5:1: duplicate key "spec"']),
}  # fmt: skip


@pytest.mark.parametrize("case", POLICIES)
def test_invalid_policies_are_exit_code_2_with_all_their_mistakes(run: Run, write: Write, case: str) -> None:
    text, says = POLICIES[case]
    header = "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\n"
    if text.startswith("kind"):
        header = header.replace("kind: ReservedLabels", text)
        text = ""
    done = run("check", write("pod.yaml", POD), "--policies", write("policy.yaml", f"{header}{text}\n"))
    assert (done.code, done.out) == (2, "")
    assert [text for text in says if text not in done.err] == []
    assert all(line.startswith("policy.yaml:") for line in done.err.splitlines())


@pytest.mark.parametrize("command", ["check", "review", "webhook-config"])
def test_folder_without_policies_is_refused(run: Run, write: Write, command: str, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    write("review.json", b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "kind": {}, "resource": {}}}')  # fmt: skip
    given = {"check": ["review.json"], "review": ["review.json"], "webhook-config": []}[command]
    done = run(command, *given, "--policies", "none")
    assert (done.code, done.out) == (2, "")
    assert "none: holds no policy" in done.err


def test_file_that_vanishes_is_an_error_and_the_rest_is_judged(
    check: Check, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = write("d/gone.yaml", POD)
    write("d/pod.yaml", POD)

    def late(*arguments: Any) -> None:
        gone.unlink()
        read_manifest_files(*arguments)

    monkeypatch.setattr("webhook.offline.inputs.read_manifest_files", late)
    done = check("d")
    assert (done.code, done.err) == (
        2,
        "d/gone.yaml: can't be read: No such file or directory; or leave the file out with --ignore\n",
    )
    assert done.outcomes == [("labels", "deny")]


def test_device_in_a_folder_is_passed_over_and_a_named_pipe_is_read(check: Check, write: Write) -> None:
    write("d/pod.yaml", CLEAN_POD)
    Path("d/zero.yaml").symlink_to("/dev/zero")
    assert check("d").json["summary"]["documents"] == 1
    reading, writing = os.pipe()
    os.write(writing, POD.encode())
    os.close(writing)
    done = check(f"/dev/fd/{reading}")
    os.close(reading)
    assert done.outcomes == [("labels", "deny")]
