"""Pages, colors, and finding texts of ``spotgate explain``; scenarios/explain.yaml covers its other output."""

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


def test_page_is_self_contained_and_has_reasons_patch_and_timeline(run: Run) -> None:
    html = explain(run, "--state", "state.yaml", "-o", "html", "job.yaml", "pod.yaml")
    page = Page(html)

    assert page.elements.count("svg") == 1
    assert page.elements.count("section") == 2
    assert not {"script", "link", "img", "iframe"} & set(page.elements)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert "url(" not in html
    assert "class checkpointing: it runs to completion (restartPolicy: Never), and requests GPUs" in html
    assert "+ spec.template.spec.nodeSelector:\n    compute.coreweave.com/node-pool: gpu-spot</pre>" in html
    assert "prefers-color-scheme: dark" in html


def test_page_escapes_user_text(run: Run, write: Write) -> None:
    text = "<script>alert(1)</script>"
    file = write(
        "pod.yaml",
        POD.replace("example.com/team: a", f'"spotgate.dev/workload-class": "{text}", spotgate.dev/capacity: spot'),
    )
    html = explain(run, "--state", "state.yaml", "-o", "html", file)
    assert "script" not in Page(html).elements


def test_only_terminals_get_colors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [[("denies", "bold red"), ("  why", "dim")]]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.show(lines)
    assert "\x1b[1;31mdenies" in capsys.readouterr().out

    monkeypatch.setenv("NO_COLOR", "1")
    terminal.show(lines)
    assert capsys.readouterr().out == "denies  why\n"


@pytest.mark.parametrize(("manifest", "separator"), [(POD, ", "), (JOB, "\n      ")])
def test_an_object_over_a_bound_is_explained(run: Run, write: Write, manifest: str, separator: str) -> None:
    many = ", ".join(f"label-{number}: a" for number in range(300))
    file = write("many.yaml", manifest.replace("containers:", f"nodeSelector: {{{many}}}{separator}containers:"))
    text = explain(run, "--state", "state.yaml", file)
    assert "\n\nnot evaluated: " in text
    assert "\nskips       spot-placement" in text
    assert "\npasses      reserved-labels" in text


def test_a_pipe_does_not_import_rich() -> None:
    code = (
        "import sys; from webhook.commands import main; main(['explain', 'pod.yaml']); assert 'rich' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env={"PYTHONPATH": str(root)}
    )
    assert (done.returncode, done.stderr) == (0, "")


# Findings


def test_a_finding_id_is_explained(run: Run) -> None:
    for finding_id, text in finding_texts().items():
        done = run("explain", finding_id)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"{finding_id}\n{text.means}\n")
