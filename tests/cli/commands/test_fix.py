"""``spotgate fix`` writes what the webhook would inject into the files and changes no other byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, SPOT_POOL
from webhook.commands.fix import command as fix
from webhook.judging import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tests.cli.conftest import Run
    from webhook.inputs.options import JudgingOptions

    Write: TypeAlias = Callable[[str, str | bytes], Path]

EXAMPLES = Path(__file__).parents[3] / "examples"
TAINTED = SPOT_POOL + "  nodeTaints: [{key: example.com/spot, effect: NoSchedule}]\n"
POD = """\
# the trainer
apiVersion: v1
kind: Pod
metadata: {name: trainer}   # no namespace
spec:
  nodeSelector:
    "compute.coreweave.com/node-pool":   gpu-spot
  containers:
  - name: main
    image: 'busybox'
    resources: {limits: {nvidia.com/gpu: 8}}
  # the end
"""
FIXED = POD.replace(
    "  # the end\n",
    """\
  tolerations:
  - key: example.com/spot
    operator: Exists
    effect: NoSchedule
  - key: qos.coreweave.cloud/interruptable
    operator: Equal
    value: "true"
    effect: NoExecute
  terminationGracePeriodSeconds: 60
  # the end
""",
).replace(
    "    resources: {limits: {nvidia.com/gpu: 8}}\n",
    """\
    resources: {limits: {nvidia.com/gpu: 8}}
    lifecycle:
      preStop:
        sleep:
          seconds: 5
""",
)


@pytest.fixture(autouse=True)
def state(write: Write) -> None:
    write("state.yaml", f"{TAINTED}---\n{ON_DEMAND_POOL}")


@pytest.mark.parametrize("text", [POD, POD.removesuffix("\n"), POD.replace("\n", "\r\n")])
def test_git_applies_the_diff(text: str, run: Run, write: Write) -> None:
    file = write("pod.yaml", text.encode())
    difference = run("fix", "--diff", "--state", "state.yaml", file).out

    subprocess.run(["git", "apply", "-"], input=difference.encode(), check=True)  # noqa: S607

    changed = file.read_bytes()
    file.write_text(text, newline="")
    run("fix", "--state", "state.yaml", file)
    assert changed == file.read_bytes()


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(POD.replace("\n", "\r\n").encode(), id="Windows line endings"),
        pytest.param(b"\xef\xbb\xbf" + POD.encode(), id="a byte order mark"),
        pytest.param(f"{POD}---\n# nothing\n---\na: {{b: c}} # no object\n".encode(), id="other documents"),
        pytest.param(
            ("apiVersion: v1\nkind: List\nitems:\n- " + POD.replace("\n", "\n  ").rstrip()).encode(), id="a list"
        ),
    ],
)
def test_every_original_byte_is_preserved(written: bytes, run: Run, write: Write) -> None:
    file = write("dir/file.yaml", written)

    assert run("fix", "--state", "state.yaml", "dir").code == 0

    remaining = iter(file.read_bytes())
    assert all(byte in remaining for byte in written)
    assert run("fix", "--check", "--state", "state.yaml", "dir").code == 0
    assert (b"\r\n" in written) == (b"\r\n" in file.read_bytes())


@pytest.mark.parametrize("indent", [None, 4])
def test_json_stays_json(indent: int | None, run: Run, write: Write) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"spotgate.dev/capacity": "spot"}},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    file = write("pod.json", json.dumps(pod, indent=indent))
    write("pools.yaml", TAINTED.replace("gd-8xh100ib-i128", "cd-gp-a192-genoa"))

    assert run("fix", "--state", "pools.yaml", file).code == 0

    changed = json.loads(file.read_text())
    assert changed["spec"]["tolerations"] == [
        {"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "qos.coreweave.cloud/interruptable", "operator": "Equal", "value": "true", "effect": "NoExecute"},
    ]
    assert run("fix", "--check", "--state", "pools.yaml", file).code == 0
    if indent:
        assert json.dumps(changed, indent=indent) == file.read_text()


def test_fixed_examples_need_no_patch(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    before = {file: file.read_text() for file in folder.rglob("*.yaml")}

    assert run("fix", folder).code == 0

    changed = [file for file, text in before.items() if file.read_text() != text]
    assert changed
    for file in changed:
        remaining = iter(file.read_text())
        assert all(character in remaining for character in before[file])
    assert run("check", "-o", "json", folder).json["patches"] == []


def test_concurrent_edits_of_a_file_are_kept(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("d/pod.yaml", POD)
    fsync = os.fsync

    def late(descriptor: int) -> None:
        fsync(descriptor)
        with file.open("a") as opened:
            opened.write("# mine\n")

    monkeypatch.setattr(os, "fsync", late)
    done = run("fix", "--state", "state.yaml", "d")
    text = "d/pod.yaml: can't be written: another process has changed it meanwhile; try again\n"
    assert (done.code, done.err, file.read_text()) == (2, text, f"{POD}# mine\n")
    assert [path.name for path in file.parent.iterdir()] == ["pod.yaml"]


def test_json_that_is_not_yaml_is_fixed(run: Run, write: Write) -> None:
    annotations = {"C:\\uda": "b", "\x7f\ufffe\x9f": "\U0001f680", "k" * 2000: "x"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": annotations}, "spec": {}}
    pod["spec"] = {
        "nodeSelector": {"compute.coreweave.com/node-pool": "gpu-spot"},
        "containers": [{"name": "main", "image": "a"}],
    }
    for ascii_only in (True, False):
        file = write("pod.json", json.dumps(pod, indent=2, ensure_ascii=ascii_only))
        assert run("fix", "--state", "state.yaml", file).code == 0
        after = json.loads(file.read_text())
        assert after["metadata"] == pod["metadata"]
        assert "tolerations" in after["spec"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # the end\n", "  # caf\x85\n"),
        ("'busybox'", "'busybox'\n    args: ['a\u2028b', 'c\u2029 d']"),
        ("\n", "\r\r\n"),
        ("# the trainer\n", "# the\r# trainer\n"),
    ],
)
def test_the_diff_splits_lines_as_git_does(old: str, new: str, run: Run, write: Write) -> None:
    test_git_applies_the_diff(POD.replace(old, new), run, write)


def test_a_file_that_becomes_unreadable_is_not_written(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("pod.yaml", POD)
    fine = write("z.yaml", POD)

    def judge(options: JudgingOptions) -> session.Judgements:
        judged = session.judge(options)
        file.write_bytes(b"\xff")
        return judged

    monkeypatch.setattr(fix, "judge", judge)
    done = run("fix", "--state", "state.yaml", "pod.yaml", "z.yaml")
    assert (done.code, done.err) == (2, "pod.yaml: was changed by another process; try again\n")
    assert (file.read_bytes(), fine.read_text()) == (b"\xff", FIXED)


def test_the_file_owner_is_preserved(run: Run, write: Write) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    file = write("pod.yaml", POD)
    os.chown(file, 12345, 23456)

    assert run("fix", "--state", "state.yaml", file).code == 0

    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


ODD = {
    "text like an escaped surrogate": ("'busybox'", "'busybox'\n    args: ['C:\\udev', \"x\"]"),
    "a tag": ("spec:\n", "spec: !!map\n"),
    "an explicit key first": ("  nodeSelector:\n", "  ? nodeSelector\n  :\n"),
    "an explicit key": ("spec:\n", "? spec\n:\n"),
    "a wide dash": ("  - name: main\n    image: 'busybox'\n    resources", "  -   name: main\n      image: 'busybox'\n      resources"),
    "a comment after the dash": ("  - name", "  - # first\n    name"),
    "an unused anchor": ("  containers:\n", "  containers: &all\n"),
    "a tag with a directive": ("# the trainer\napiVersion: v1", "%TAG !k! tag:yaml.org,2002:\n---\napiVersion: !k!str v1"),
    "a block scalar at the end": ("  # the end\n", "    workingDir: |+\n      /tmp\n\n\n  # the end\n"),
    "a multiline text at the end": ("  # the end\n", "    workingDir: /tmp\n      /x   # where\n"),
    "brackets with a trailing comma": ("{limits: {nvidia.com/gpu: 8}}", "{limits: {nvidia.com/gpu: 8,},}"),
    "a field without a value": ("  # the end\n", "  # the end\n  tolerations: # none\n"),
    "a document marker at the end": ("  # the end\n", "  # the end\n...\n# more\n"),
    "a directive": ("# the trainer\n", "%YAML 1.1\n---\n"),
    "other line endings at the beginning": ("# the trainer\n", "# the trainer\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_unusual_yaml_styles_are_edited_in_place(case: str, run: Run, write: Write) -> None:
    old, new = ODD[case]
    assert old in POD
    text = POD.replace(old, new).encode()
    file = write("pod.yaml", text)

    assert run("fix", "--state", "state.yaml", file).code == 0

    remaining = iter(file.read_bytes())
    assert all(byte in remaining for byte in text)
    assert run("fix", "--check", "--state", "state.yaml", file).code == 0
    assert run("check", "-o", "json", "--state", "state.yaml", file).json["patches"] == []
