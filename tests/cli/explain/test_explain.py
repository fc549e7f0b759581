"""Pages, colours, and the texts of findings that ``spotgate explain`` prints; scenarios/explain.yaml has what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, SPOT_POOL
from tests.cli.output.test_report_page import Page
from webhook.base import terminal
from webhook.engine.findings import finding_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tests.cli.conftest import Run

    Write: TypeAlias = Callable[[str, str | bytes], Path]

STATE = SPOT_POOL + "  nodeTaints: [{key: example.com/spot, effect: NoSchedule}]\n---\n" + ON_DEMAND_POOL
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: trainer, namespace: research}
spec:
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template:
    metadata: {labels: {spotgate.dev/capacity: spot}}
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          resources: {limits: {nvidia.com/gpu: 8}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: team-a, labels: {example.com/team: a}}
spec: {containers: [{name: main, image: busybox}]}
"""


@pytest.fixture(autouse=True)
def state(write: Write) -> None:
    write("state.yaml", STATE)
    write("job.yaml", JOB)
    write("pod.yaml", POD)


def explain(run: Run, *arguments: str | Path) -> str:
    done = run("explain", *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_page_has_the_reasons_the_patch_and_the_timeline_and_needs_nothing_from_outside(run: Run) -> None:
    html = explain(run, "--state", "state.yaml", "-o", "html", "job.yaml", "pod.yaml")
    page = Page(html)

    assert page.elements.count("svg") == 1
    assert page.elements.count("section") == 2
    assert not {"script", "link", "img", "iframe"} & set(page.elements)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert "url(" not in html
    assert "class checkpointing: a Job owns it, and it requests GPUs" in html
    assert "+ spec.template.spec.nodeSelector:\n    compute.coreweave.com/node-pool: gpu-spot</pre>" in html
    assert "prefers-color-scheme: dark" in html


def test_page_shows_what_users_write_and_does_not_run_it(run: Run, write: Write) -> None:
    text = "<script>alert(1)</script>"
    file = write(
        "pod.yaml",
        POD.replace("example.com/team: a", f'"spotgate.dev/workload-class": "{text}", spotgate.dev/capacity: spot'),
    )
    html = explain(run, "--state", "state.yaml", "-o", "html", file)
    assert "script" not in Page(html).elements


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [[("denies", "bold red"), ("  why", "dim")]]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.show(lines)
    assert "\x1b[1;31mdenies" in capsys.readouterr().out

    monkeypatch.setenv("NO_COLOR", "1")
    terminal.show(lines)
    assert capsys.readouterr().out == "denies  why\n"


def test_a_pipe_does_not_wait_for_rich() -> None:
    code = (
        "import sys; from webhook.commands import main; main(['explain', 'pod.yaml']); assert 'rich' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env={"PYTHONPATH": str(root)}
    )
    assert (done.returncode, done.stderr) == (0, "")


# Findings


@pytest.mark.parametrize("finding_id", sorted(finding_texts()))
def test_the_text_of_a_finding_is_told_by_its_id(run: Run, finding_id: str) -> None:
    done = run("explain", finding_id)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{finding_id}\n{finding_texts()[finding_id].means}\n")
