"""What ``check`` makes of files: which it reads, which it skips, and which it can't judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POOL
from webhook.offline.manifests.broken import names_object
from webhook.offline.manifests.objects import read_manifest_files

if TYPE_CHECKING:
    from tests.cli.conftest import Check, Done, Run, Write


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


def test_what_cannot_be_judged_is_in_the_json_with_its_place(check: Check, write: Write) -> None:
    write("flag.yaml", POD.replace("team: a", "team: yes"))
    write("list.yaml", MALFORMED["spec is a list"][0])
    done = check("nowhere", "flag.yaml", "list.yaml", write("good.yaml", POD))
    assert [(each["file"], each["line"], each["field"]) for each in done.json["unreadable"]] == [
        ("flag.yaml", 6, 'metadata.labels["example.com/team"]'),
        ("list.yaml", 4, "spec"),
        ("nowhere", 0, ""),
    ]
    assert done.json["unreadable"][2]["message"] == "can't be read: No such file or directory"
    assert done.outcomes == [("labels", "deny")]


def test_state_that_cannot_be_read_is_in_the_json(check: Check, write: Write) -> None:
    done = check("--state", write("bad.yaml", "a: {"), write("good.yaml", POD))
    assert [(each["file"], each["line"]) for each in done.json["unreadable"]] == [("bad.yaml", 2)]


def test_all_problems_are_reported_together_in_order(check: Check, write: Write) -> None:
    write("d/2.yaml", BROKEN)
    write("d/1.yaml", f"{POD.replace('name: web', 'name: 5')}---\n{POD.replace('name: web', 'name: 6')}")
    done = check("d", "nowhere")
    assert done.code == 2
    assert [line.split(": ")[0] for line in done.err.splitlines()] == ["d/1.yaml:4:3", "d/1.yaml:14:3", "d/2.yaml:4:1", "nowhere"]  # fmt: skip


def test_pools_are_unknown_where_a_file_that_may_hold_some_cannot_be_read(check: Check, write: Write) -> None:
    done = check(write("pool.yaml", SPOT_POOL), write("bad.yaml", "kind: NodePool\na: {"))
    assert done.outcomes == [("fallback", "indeterminate")]
    assert "bad.yaml can't be read" in done.json["results"][0]["detail"]
    assert "--ignore" in done.json["results"][0]["fix"]


@pytest.mark.parametrize(
    "other",
    [
        "a: {",
        "apiVersion: v1\nkind: ConfigMap\ndata: {",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 1}\n",
        "kind: ConfigMap\nmetadata: {name: a}\n",
        "a: 1\n",
    ],
)
def test_pools_are_known_where_what_cannot_be_read_is_none(check: Check, write: Write, other: str) -> None:
    done = check(write("pool.yaml", SPOT_POOL), write("bad.yaml", other))
    assert (done.code, done.outcomes) == (2, [("fallback", "deny")])


@pytest.mark.parametrize(
    "other",
    [
        b"kind: {{ .Values.kind }}\na: {",
        b"kind: >-\n  NodePool\na: {",
        b"\xff\xfek\0i\0n\0d\0",
        b"apiVersion: compute.coreweave.com/v1alpha1\nkind: NodePool\nmetadata: {name: 1}\n",
        b"apiVersion: compute.coreweave.com/v1alpha1\nmetadata: {name: a}\n",
    ],
)
def test_pools_are_unknown_where_what_cannot_be_read_may_be_one(check: Check, write: Write, other: bytes) -> None:
    Path("bad.yaml").write_bytes(other)
    done = check(write("pool.yaml", SPOT_POOL), "bad.yaml")
    assert (done.code, done.outcomes) == (2, [("fallback", "indeterminate")])


def test_missing_file_is_an_error(check: Check) -> None:
    done = check("nowhere.yaml")
    assert (done.code, done.err) == (2, "nowhere.yaml: can't be read: No such file or directory\n")


def test_link_that_leads_nowhere_is_a_warning_where_it_is_judged_and_an_error_in_the_state(
    check: Check, write: Write
) -> None:
    link = write("d/pod.yaml", CLEAN_POD).with_name("link.yaml")
    link.symlink_to("gone.yaml")
    done = check("d")
    assert done.code == 0
    text = "can't be read: it is a link to gone.yaml, which is not there; correct the link or remove it\n"
    assert done.err == f"d/link.yaml: warning: {text}"
    done = check("d/pod.yaml", "--state", "d")
    assert (done.code, done.err) == (2, f"d/link.yaml: {text}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_folder_without_permission_is_an_error(check: Check, write: Write) -> None:
    folder = write("d/closed/pod.yaml", POD).parent
    folder.chmod(0)
    try:
        done = check("d")
    finally:
        folder.chmod(0o700)
    assert (done.code, done.err) == (2, "d/closed: can't be read: Permission denied\n")


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


def test_pipe_in_a_folder_is_not_waited_for(check: Check, write: Write) -> None:
    os.mkfifo(write("d/pod.yaml", POD).with_name("pipe.yaml"))
    assert check("d").json["summary"]["documents"] == 1


def test_folders_are_read_with_all_below_in_a_stable_order(check: Check, write: Write) -> None:
    passed_over = ("d/c.txt", "d/.hidden.yaml", "d/.git/x.yaml")
    for name in ("d/b/2.yml", "d/b/1.yaml", "d/a.json", "d/a/z.yaml", "d/e.YAML", *passed_over):
        write(name, POD)
    files = [result["file"] for result in check("d").json["results"]]
    assert files == ["d/a.json", "d/e.YAML", "d/a/z.yaml", "d/b/1.yaml", "d/b/2.yml"]


def test_file_given_twice_is_judged_once(check: Check, write: Write) -> None:
    write("d/pod.yaml", POD)
    assert check("d", "d/pod.yaml", "d").json["summary"]["documents"] == 1


def warned(done: Done) -> list[tuple[str, int, str, str]]:
    """File, line, reason and detail of what is found by no policy."""
    return [
        (each["file"], each["line"], each["reason"], each["detail"])
        for each in done.json["results"]
        if each["policy"] == "spotgate"
    ]


def test_a_node_pool_that_is_there_twice_is_said_once_with_its_places(check: Check, write: Write) -> None:
    write("clusters/dev/pools.yaml", f"{CLEAN_POD}---\n{ON_DEMAND_POOL}---\n{SPOT_POOL}")
    write("clusters/prod/pools.yaml", f"{SPOT_POOL}---\n{CLEAN_POD}")
    done = check("clusters")
    assert done.code == 0
    detail = (
        "NodePool gpu-spot is at {} too. All files are judged as one cluster: the last one counts for all others, and "
        "the pools of both are taken for each other's fallback."
    )
    reason = "2 clusters in this tree: clusters/dev, clusters/prod"
    assert warned(done) == [
        ("clusters/dev/pools.yaml", 22, reason, detail.format("clusters/prod/pools.yaml:1")),
    ]
    assert warned(check("clusters/prod", "--state", "clusters/dev")) == []
    for number in range(7):
        write(f"clusters/test-{number}/pool.yaml", f"{SPOT_POOL}---\n{ON_DEMAND_POOL}")
    ((_, _, reason, detail),) = warned(check("clusters"))
    folders = ", ".join(f"clusters/{name}" for name in ("dev", "prod", "test-0", "test-1", "test-2"))
    assert reason == f"9 clusters in this tree: {folders}, 4 more"
    assert "clusters/test-4/pool.yaml:10, 2 more too, and 1 other node pool too. All" in detail
    assert [each[2] for each in warned(check(write("twice.yaml", f"{SPOT_POOL}---\n{SPOT_POOL}")))] == [
        "NodePool gpu-spot is in the files more than once"
    ]


def test_an_object_without_a_name_is_said(check: Check, write: Write) -> None:
    write("pool.yaml", SPOT_POOL.replace("  name: gpu-spot\n", "  labels: {team: a}\n"))
    done = check("pool.yaml")
    assert [each[:3] for each in warned(done)] == [("pool.yaml", 3, "the object has no name")]
    (denied,) = (each for each in done.json["results"] if each["policy"] == "fallback")
    assert denied["reason"] == "GPU spot pool NodePool (without a name) has no on-demand fallback"
    assert warned(check(write("pod.yaml", POD.replace("name: web", "generateName: web-")))) == []


def test_a_node_pool_of_the_core_group_is_judged_among_the_pools_as_what_is_meant(check: Check, write: Write) -> None:
    written = SPOT_POOL.replace("compute.coreweave.com/v1alpha1", "v1")
    pool, fallback = write("pool.yaml", written), write("gpu.yaml", ON_DEMAND_POOL)
    for arguments, outcomes in (((pool,), [("fallback", "deny")]), ((pool, fallback), [])):
        done = check(*arguments)
        assert (done.code, done.outcomes) == (2, outcomes)
        assert "did you mean apiVersion: compute.coreweave.com/v1alpha1?" in done.err


def test_standard_input_is_read_where_a_dash_stands(check: Check) -> None:
    done = check("-", stdin=POD)
    assert [(result["file"], result["line"]) for result in done.json["results"]] == [("-", 6)]


@pytest.mark.parametrize("stdin", ["", "\n", " \n\n"])
def test_standard_input_with_nothing_in_it_is_no_clean_run(check: Check, write: Write, stdin: str) -> None:
    done = check("-", write("pod.yaml", CLEAN_POD), stdin=stdin)
    assert (done.code, done.json["summary"]["documents"]) == (2, 1)
    assert done.err == "-: nothing came through the pipe; the program before it may have failed: see what it says\n"


def test_what_is_no_object_in_a_folder_is_skipped_and_counted(check: Check, write: Write) -> None:
    write("d/values.yaml", "replicas: 1\n")
    write("d/patch.yaml", "- op: add\n")
    write("d/all.yaml", f"# nothing\n---\ntext\n---\n{POD}---\n\n---\n{CLEAN_POD}")
    write("d/Chart.yaml", "apiVersion: v2\nname: x\nversion: 1.0.0\n")
    summary = check("d").json["summary"]
    assert (summary["documents"], summary["skipped"]) == (2, 4)


def test_misspelt_object_in_a_folder_is_not_passed_over(check: Check, write: Write) -> None:
    write("d/pod.yaml", POD.replace("apiVersion", "apiversion"))
    done = check("d")
    assert done.code == 2
    assert done.err.startswith("d/pod.yaml:1:1: not a Kubernetes object")


def test_helm_templates_beside_a_chart_are_skipped_and_its_other_files_are_not(check: Check, write: Write) -> None:
    write("d/chart/Chart.yaml", "apiVersion: v2\nname: x\n")
    write("d/chart/templates/pod.yaml", POD.replace("web", "{{ .Release.Name }}"))
    write("d/chart/templates/sub/pod.yaml", POD)
    write("d/chart/crds/pod.yaml", POD)
    write("d/templates/pod.yaml", POD)
    report = check("d").json
    assert [result["file"] for result in report["results"]] == ["d/chart/crds/pod.yaml", "d/templates/pod.yaml"]
    assert report["summary"]["skipped"] == 3
    assert check("d/chart/templates").json["summary"]["skipped"] == 2


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


def test_problems_with_one_text_are_one_line_that_names_places(run: Run, write: Write) -> None:
    for number in range(6):
        write(f"d/{number}.yaml", BROKEN)
    text = "while parsing a flow node; correct"
    (line,) = run("check", "d").err.splitlines()
    assert line.startswith("d/0.yaml:4:1: ")
    assert text in line
    assert line.endswith("--ignore (also at d/1.yaml:4:1, d/2.yaml:4:1, d/3.yaml:4:1 and 2 more)")
    assert len(run("check", "--verbose", "d").err.splitlines()) == 6
    assert len(run("check", "-o", "json", "d").json["unreadable"]) == 6


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


def test_ignored_file_is_left_out_where_it_is_named_too(check: Check, write: Write) -> None:
    write("values.yaml", "a: {")
    assert check("values.yaml", write("pod.yaml", CLEAN_POD), "--ignore", "values.yaml").code == 0


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


def test_the_folder_that_the_working_directory_is_called_ignores_nothing(
    check: Check, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("testdata/sub/pod.yaml", CLEAN_POD)
    monkeypatch.chdir("testdata")
    for path in ("sub/pod.yaml", Path("sub").absolute(), "."):
        assert check(path, "--ignore", "testdata").json["summary"]["documents"] == 1


def test_name_of_a_file_need_not_be_text(check: Check, write: Write) -> None:
    write(os.fsdecode(b"d/p\xff.yaml"), POD)
    write(os.fsdecode(b"d/q\xff.yaml"), BROKEN)
    done = check("d")
    assert done.json["results"][0]["file"] == "d/p\\udcff.yaml"
    assert done.err.startswith("d/q\\udcff.yaml:4:1: ")


def test_list_without_items_holds_nothing(check: Check, write: Write) -> None:
    done = check(write("list.yaml", "apiVersion: v1\nkind: List\nitems:\n"))
    assert (done.code, done.json["summary"]["documents"]) == (2, 0)
    assert (
        done.err
        == "list.yaml: nothing was judged: there are no Kubernetes objects here (no manifests); pass what is applied\n"
    )


def test_nothing_but_files_without_a_finding_is_exit_code_0(check: Check, write: Write) -> None:
    done = check(write("all.yaml", f"{CLEAN_POD}---\n{ON_DEMAND_POOL}"))
    assert (done.code, done.err, done.json["results"]) == (0, "", [])


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


# links, and the same file by several names


def test_file_with_several_names_is_judged_once_by_its_own(check: Check, write: Write) -> None:
    file = write("d/pod.yaml", POD)
    file.with_name("link.yaml").symlink_to("pod.yaml")
    for paths in (["d"], ["d", "./d/pod.yaml", "d/../d/pod.yaml", file.absolute()], ["d/link.yaml", "d"]):
        assert [result["file"] for result in check(*paths).json["results"]] == ["d/pod.yaml"]
    assert [result["file"] for result in check("d/link.yaml").json["results"]] == ["d/link.yaml"]


def test_link_to_a_file_elsewhere_is_read(check: Check, write: Write) -> None:
    write("elsewhere/pod.yaml", POD)
    write("d/x.txt", "")
    Path("d/pod.yaml").symlink_to("../elsewhere/pod.yaml")
    assert [result["file"] for result in check("d").json["results"]] == ["d/pod.yaml"]


def test_links_to_folders_make_no_circles_and_nothing_twice(check: Check, write: Write) -> None:
    write("d/a/pod.yaml", POD)
    Path("d/a/up").symlink_to("..")
    Path("d/b").symlink_to("a")
    Path("linked").symlink_to("d")
    done = check("d", "linked")
    assert (done.err, [result["file"] for result in done.json["results"]]) == ("", ["d/a/pod.yaml"])


def test_link_to_a_folder_elsewhere_is_not_followed_and_said(check: Check, write: Write, tmp_path: Path) -> None:
    write("elsewhere/pod.yaml", POD)
    write("d/pod.yaml", CLEAN_POD)
    Path("d/more").symlink_to("../elsewhere")
    done = check("d")
    assert (done.code, done.json["summary"]["documents"]) == (0, 1)
    assert done.err == f"d/more: warning: is a link to a folder elsewhere, and is not followed; pass {tmp_path}/elsewhere too, if it is meant\n"  # fmt: skip
    assert check("d/more").outcomes == [("labels", "deny")]


def test_packages_that_were_installed_are_passed_over(check: Check, write: Write) -> None:
    write("d/node_modules/x/pod.yaml", BROKEN)
    write("d/pod.yaml", POD)
    assert (check("d").code, check("d/node_modules").code) == (1, 2)


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


def test_file_of_200_megabytes_is_refused_before_it_is_read(check: Check, write: Write) -> None:
    with write("d/huge.yaml", "kind: List\n").open("ab") as opened:
        opened.truncate(200 * 1024 * 1024)
    write("d/pod.yaml", POD)
    done = check("d")
    text = "the file has more than 67108864 bytes; split it into several files; or leave the file out with --ignore"
    assert done.err == f"d/huge.yaml:1:1: {text}\n"
    assert (done.code, done.outcomes) == (2, [("labels", "deny")])


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


def test_output_to_a_device_leaves_it_one(check: Check, write: Write) -> None:
    check("-o", "sarif=/dev/null", write("pod.yaml", POD))
    assert Path("/dev/null").is_char_device()
