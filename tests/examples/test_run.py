"""The output of ``make run`` and ``make serve``."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from examples.run import EXAMPLES, HERE, comments_of

COMMAND = [sys.executable, str(HERE / "run.py")]
URL = re.compile(r"https://127\.0\.0\.1:(\d+)(/\w+)?")


def is_served(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_every_manifest_is_a_described_example() -> None:
    assert {path.name for path in HERE.glob("*.yaml")} <= {example.file for example in EXAMPLES}
    assert all(any(comments_of(example)) for example in EXAMPLES)


def test_run_prints_plain_text_into_a_pipe_and_stops_the_server() -> None:
    narrow = {**os.environ, "COLUMNS": "30"}
    run = subprocess.run(COMMAND, capture_output=True, text=True, check=False, env=narrow)

    assert (run.returncode, run.stderr) == (0, ""), run.stdout[-3000:]
    assert all(f"kubectl {'delete' if shown.delete else 'apply'} -f {shown.path}" in run.stdout for shown in EXAMPLES)
    assert "\x1b" not in run.stdout
    denial = next(line for line in run.stdout.splitlines() if line.startswith("Error from server (Forbidden): "))
    assert denial.endswith('(at metadata.labels["foo.coreweave.cloud/bar"]) [reserved-labels/reserved]')
    url = URL.search(run.stdout)
    assert url is not None
    assert not is_served(int(url[1]))


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process on Windows")
def test_serve_answers_the_printed_curl_command_and_runs_until_ctrl_c() -> None:
    with subprocess.Popen([*COMMAND, "--serve"], stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            lines = []
            for line in serving.stdout:
                lines.append(line)
                if line.startswith("curl http://"):
                    break
            words = shlex.split("".join(lines[-3:-1]))
            url = URL.fullmatch(words[-1])
            assert url is not None, words
            review = Path(words[words.index("--data") + 1].removeprefix("@")).read_bytes()
            headers = dict([words[words.index("-H") + 1].split(": ")])
            request = urllib.request.Request(url[0], data=review, headers=headers)  # noqa: S310 - it is https
            context = ssl.create_default_context(cafile=words[words.index("--cacert") + 1])
            with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310
                assert json.load(answer)["response"]["allowed"] is False
        finally:
            serving.send_signal(signal.SIGINT)
    assert serving.returncode == 0
    assert not is_served(int(url[1]))
