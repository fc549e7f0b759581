"""Several processes find what one finds, in the same order, and no worker outlives the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.cli.conftest import NODE, ON_DEMAND_POOL, POD, SPOT_POD, SPOT_POOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Write


PROGRAM: Final = Path(__file__).with_name("parallel_program.py")
ROOT: Final = Path(__file__).parents[3]

NAMESPACE: Final = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {spotgate.dev/capacity: spot}}\n"
BUDGET: Final = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}
"""
CRD: Final = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec: {group: example.org, names: {kind: Thing, plural: things}, scope: Namespaced}
"""
THING: Final = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: it, labels: {example.com/team: a}}\n"
PODS: Final = [POD.replace("name: web", f"name: web-{number} # é𝒳") for number in range(40)]
PODS_IN_NAMESPACE: Final = [pod.replace("metadata:", "metadata:\n  namespace: team") for pod in PODS[:9]]
MANY: Final = "---\n".join([SPOT_POD, THING, *PODS, *PODS_IN_NAMESPACE, NAMESPACE, BUDGET, NODE, CRD, SPOT_POOL])
LIST: Final = json.dumps({"apiVersion": "v1", "kind": "List", "items": [json.loads('{"kind": "Pod"}')] * 3})

INPUTS: Final[dict[str, dict[str, str | bytes]]] = {
    "one file each": {f"in/{number:02}.yaml": text for number, text in enumerate(MANY.split("---\n"))},
    "the fallback in another file": {"in/0.yaml": MANY, "in/1.yaml": "---\n".join([*PODS, ON_DEMAND_POOL])},
    "a broken document in a file": {"in/0.yaml": MANY, "in/1.yaml": f"{MANY}---\n\ta: b\n---\n{MANY}"},
    "a duplicate key in a file": {"in/0.yaml": MANY, "in/1.yaml": f"{MANY}---\na: 1\na: 2\n---\n{MANY}"},
    "invalid UTF-8 in a file": {"in/0.yaml": MANY, "in/1.yaml": f"{MANY}---\n".encode() + b"\xff\n"},
    "broken files among others": {"in/0.yaml": MANY, "in/1.yaml": "a: [", "in/2.json": "{", "in/values.yaml": "a: 1\n"},
    "lists and JSON": {"in/0.json": LIST, "in/1.json": LIST * 30, "in/2.yaml": f"# a list\n{LIST}\n---\n{MANY}"},
    "node pools that no provider reads": {
        f"in/{number}.yaml": f"{MANY}---\n{SPOT_POOL.replace('compute.coreweave.com', 'hypershift.openshift.io')}"
        for number in range(3)
    },
    "node pools twice, in a list, and of the core group": {
        "in/0.yaml": f"{MANY}---\napiVersion: v1\nkind: List\nitems:\n- {indent(SPOT_POOL, '  ')[2:]}",
        "in/1.yaml": f"{MANY}---\n{ON_DEMAND_POOL.replace('compute.coreweave.com/v1alpha1', 'v1')}",
    },
    "one file": {"in/0.yaml": MANY * 2 + "---\n" + PODS[0]},
    "one file with a mark, Windows line ends, comments, and the end of a document": {
        "in/0.yaml": b"\xef\xbb\xbf# \xc3\xa9\n"
        + MANY.replace("---\n", "# ---\n---\n...\n--- # é\n").replace("\n", "\r\n").encode()
    },
    "one file with separators in texts": {
        "in/0.yaml": MANY.replace("---\n", "---\n# |\n---\n---x: |\n  --- \n ---\n---\n")
    },
    "one file with a separator in quotes": {"in/0.yaml": f"{MANY}---\na: '\n---\n'\n---\n{MANY}"},
    "one file with a separator in brackets": {"in/0.yaml": f"{MANY}---\na: [\n---\n]\n---\n{MANY}"},
    "one file with directives": {"in/0.yaml": MANY.replace("---\n", "...\n%YAML 1.1\n---\n")},
    "one file with a directive before text": {"in/0.yaml": MANY.replace("---\n", "%YAML 1.1\n---\n", 30)},
    "one file with an alias of another document": {"in/0.yaml": MANY.replace("---\n", "---\n&a {a: *a}\n---\n", 1)},
    "documents other than objects": {"in/0.yaml": MANY.replace("kind: Thing", "kind: 1"), "in/1.yaml": "a: 1\n"},
}


class Run(NamedTuple):
    """The processes and findings of one run."""

    started: int
    lines: list[str]


def execute(*arguments: str, processes: str, stdin: bytes = b"", do: str = "") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PROCESSES": processes, "DO": do, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, check=False, capture_output=True, input=stdin, env=environment, timeout=120)


def runs(*arguments: str, processes: str, stdin: bytes = b"") -> list[Run]:
    """Return the processes and findings of each run."""
    done = execute(*arguments, processes=processes, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    return [Run(**json.loads(line)) for line in done.stdout.splitlines()]


def test_parallel_runs_find_what_one_process_finds(write: Write) -> None:
    for name, files in INPUTS.items():
        for file, text in files.items():
            write(f"{name}/{file}", text)
    results = runs(*chain.from_iterable((name, "+") for name in INPUTS), processes="1 3")
    for name, one, several in zip(INPUTS, results[::2], results[1::2], strict=True):
        assert one.started == 0
        assert several.started >= 2, name
        assert several.lines == one.lines, name


def test_standard_input_is_judged_among_files(write: Write) -> None:
    write("state.yaml", ON_DEMAND_POOL)
    write("in/all.yaml", MANY)
    (one,), (several,) = (
        runs("--state", "state.yaml", "in", "-", processes=count, stdin=MANY.encode()) for count in ("1", "3")
    )
    assert one.started == 0
    assert several.started >= 2
    assert several.lines == one.lines


def test_one_process_judges_a_small_input_and_deletions_which_are_ordered(write: Write) -> None:
    write("pod.yaml", POD)
    write("all.yaml", MANY)
    small, deletions = runs("pod.yaml", "+", "--operation", "DELETE", "all.yaml", processes="3")
    assert (small.started, deletions.started) == (0, 0)


def test_a_process_that_dies_is_an_error(write: Write) -> None:
    write("in/0.yaml", MANY)
    write("in/1.yaml", MANY)
    done = execute("in", processes="3", do="die")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: a process that evaluated some of the files ended early")


@pytest.mark.parametrize(
    ("end", "seconds", "code"),
    [
        pytest.param(lambda command: os.killpg(command.pid, signal.SIGINT), 600, 130, id="Ctrl-C"),
        pytest.param(subprocess.Popen.terminate, 0.05, -signal.SIGTERM, id="ended"),
        pytest.param(subprocess.Popen.kill, 0.05, -signal.SIGKILL, id="killed"),
    ],
)
def test_no_worker_outlives_the_command(
    write: Write, end: Callable[[subprocess.Popen[bytes]], None], seconds: float, code: int
) -> None:
    write("in/0.yaml", MANY)
    write("in/1.yaml", MANY)
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "in"],
        env={**os.environ, "PROCESSES": "3", "DO": "wait", "SECONDS": str(seconds), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == b"waiting\n"
        end(command)
        assert set(command.stdout) <= {b"waiting\n"}  # ends with the last process
        assert command.stderr.read() == b""
    assert command.returncode == code
