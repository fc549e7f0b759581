"""The examples of a reclaim notice: spotgate accepts the manifests, and the programs do what their comments say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.commands import main
from webhook.kube.notice import DIRECTORY, FILE

EXAMPLES = Path(__file__).parents[2] / "examples"
HERE = EXAMPLES / "reclaim-notice"
REMOVAL = "2026-11-29T01:02:03Z"


def test_check_accepts_the_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(HERE), "--state", str(EXAMPLES / "state")]) == 0
    assert "3 objects: no findings; 3 objects would be changed" in capsys.readouterr().out


def _notice(folder: Path, text: str) -> Path:
    """Write the file as a kubelet does: complete, by a rename."""
    new = folder / "new"
    new.write_text(text)
    return new.replace(folder / FILE)


@pytest.mark.parametrize(("left", "saves"), [(300, 2), (30, 1)])
def test_the_training_loop_saves_at_the_notice_and_continues_after_sigterm(
    tmp_path: Path, left: int, saves: int
) -> None:
    checkpoint = tmp_path / "step"
    environment = {**os.environ, "NOTICE": str(_notice(tmp_path, "")), "CHECKPOINT": str(checkpoint)}
    command = [sys.executable, str(HERE / "train.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "begin after step 0\n"
        assert not checkpoint.exists()
        _notice(tmp_path, f"{datetime.now(UTC) + timedelta(seconds=left):%Y-%m-%dT%H:%M:%SZ}")
        assert "the node is removed at" in training.stdout.readline()
        first = int(checkpoint.read_text())
        training.send_signal(signal.SIGTERM)
        rest = training.stdout.read()
    assert training.returncode == 128 + signal.SIGTERM
    assert rest.count("saved") == saves - 1
    last = int(checkpoint.read_text())
    assert last >= first > 0

    again = {**environment, "NOTICE": str(tmp_path / "none"), "STEPS": str(last + 1)}
    done = subprocess.run(command, env=again, capture_output=True, text=True, check=True)
    assert done.stdout == f"begin after step {last}\n"


def _script(path: Path, folder: Path) -> list[str]:
    """Return the command with a shell script in a manifest, which reads the file in this folder."""

    def commands(value: Any) -> list[Any]:
        if isinstance(value, dict):
            found = [value["command"]] if "command" in value else []
            return [*found, *(command for member in value.values() for command in commands(member))]
        return [command for item in value for command in commands(item)] if isinstance(value, list) else []

    ((shell, flag, text),) = commands(yaml.safe_load(path.read_text()))
    assert f"{DIRECTORY}/{FILE}" in text
    return [shell, flag, text.replace(DIRECTORY, str(folder))]


def _logging(folder: Path, **answers: str) -> dict[str, str]:
    """Write programs that log their arguments and print an answer. Return an environment in which they come first."""
    for name, answer in answers.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\necho {program.name} \"$@\" >> '{folder}/log'\necho '{answer}'\n")
        program.chmod(0o755)
    (folder / "log").touch()
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(("text", "logged"), [("", ""), (REMOVAL, f"return-to-queue --before {REMOVAL}\n")])
def test_the_hook_returns_the_item_only_before_a_reclaim(tmp_path: Path, text: str, logged: str) -> None:
    environment = _logging(tmp_path, return_to_queue="")
    _notice(tmp_path, text)
    subprocess.run(_script(HERE / "pre-stop.yaml", tmp_path), env=environment, check=True)
    assert (tmp_path / "log").read_text() == logged


def test_ray_drains_the_worker_until_a_minute_before_the_removal(tmp_path: Path) -> None:
    environment = _logging(tmp_path, ray='[{"node_id": "c0ffee"}]', sleep="")
    environment |= {
        "RAY_HEAD": "head",
        "POD_IP": "10.0.0.1",
        "PATH": f"{environment['PATH']}:{Path(sys.executable).parent}",
    }
    removal = f"{datetime.now(UTC) + timedelta(seconds=360):%Y-%m-%dT%H:%M:%SZ}"
    _notice(tmp_path, removal)
    subprocess.run(_script(HERE / "ray.yaml", tmp_path), env=environment, check=True)

    listing, drain, _ = (tmp_path / "log").read_text().splitlines()
    assert (
        listing
        == "ray list nodes --address http://head:8265 --filter node_ip=10.0.0.1 --filter state=ALIVE --format json"
    )
    start, seconds = drain.rsplit(" ", 1)
    assert start == (
        "ray drain-node --address head:6379 --node-id c0ffee --reason DRAIN_NODE_REASON_PREEMPTION "
        f"--reason-message the node is removed at {removal} --deadline-remaining-seconds"
    )
    assert 0 < int(seconds) <= 300
