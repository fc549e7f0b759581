"""File readers never block and never read without a limit: policies, state, reviews, golden files, kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import POD, POLICIES
from webhook.policy import document

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write

ODD = {
    "device": (lambda: Path("odd").symlink_to("/dev/zero"), "not a regular file"),
    "pipe": (lambda: os.mkfifo("odd"), "not a regular file"),
    "huge": (lambda: os.truncate(os.open("odd", os.O_CREAT | os.O_WRONLY), 1 << 32), "has more than 67108864 bytes"),
}
READERS = {
    "policies": ["check", "--policies", "odd", "pod.yaml"],
    "recorded reviews": ["replay", "--policies", "policies.yaml", "reviews"],
    "kubeconfig": ["check", "--kubeconfig", "odd", "pod.yaml"],
    "policy tests": ["test", "tests", "--policies", "policies.yaml"],
}
TEST = """\
apiVersion: spotgate.dev/v1
kind: PolicyTest
metadata: {name: t}
spec:
  cases:
    - name: a
      object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}
      expect: {outcome: allowed, golden: ../odd}
"""


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ODD)
def test_no_reader_blocks_or_reads_without_a_limit(run: Run, write: Write, kind: str, reader: str) -> None:
    make, says = ODD[kind]
    make()  # type: ignore[no-untyped-call]
    write("pod.yaml", POD)
    write("policies.yaml", POLICIES)
    write("tests/t.yaml", TEST)
    Path("reviews").mkdir()
    Path("odd").rename("reviews/odd.json") if reader == "recorded reviews" else None
    done = run(*READERS[reader])
    assert done.code == 2
    assert "Traceback" not in done.err
    if (reader, kind) in {("recorded reviews", "device"), ("recorded reviews", "pipe")}:
        assert "contains no reviews" in done.err
    else:
        assert says in done.err


def test_a_policy_folder_with_too_many_files_is_rejected(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "_WALKED_AT_MOST", 3)
    for number in range(4):
        write(f"many/{number}.txt", "")
    for command in (["check", "--policies", "many", write("pod.yaml", POD)], ["test", "many"]):
        done = run(*command)
        assert (done.code, done.err.splitlines()[-1]) == (
            2,
            "many: contains more than 3 files; name a folder that contains only policies",
        )
