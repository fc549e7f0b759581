"""The command line in this process, and manifests for it."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from webhook.commands import main

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[str, str | bytes], Path]
    Check = Callable[..., "Done"]

POLICIES = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: labels}
spec: {domains: [example.com]}
---
apiVersion: spotgate.dev/v1
kind: OnDemandFallback
metadata: {name: fallback}
spec: {breakGlass: {groups: [admins]}}
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
spec: {}
"""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels:
    example.com/team: a
spec:
  containers:
    - {name: main, image: busybox}
"""

SPOT_POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: gpu-spot
spec:
  computeClass: spot
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
"""

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {compute.coreweave.com/node-pool: gpu-spot}}
status: {nodeInfo: {kubeletVersion: v1.29.3}}
"""

ON_DEMAND_POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: gpu
spec:
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
"""

SPOT_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: trainer
spec:
  nodeSelector:
    compute.coreweave.com/node-pool: gpu-spot
  containers:
    - name: main
      image: busybox
      resources: {limits: {nvidia.com/gpu: 8}}
"""


@dataclass(frozen=True)
class Done:
    """The result of a finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Return the policy and outcome of each result."""
        return [(result["policy"], result["outcome"]) for result in self.json["results"]]


class Run(Protocol):
    """A runner of one command line."""

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Done: ...


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str | Path, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file in the temporary working directory; return its relative path."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str | bytes) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three policies of different kinds: labels, fallback, and termination."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "policies.yaml").write_text(POLICIES)
    return folder


@pytest.fixture
def check(run: Run, policies: Path) -> Check:
    """Evaluate files or standard input by these policies."""

    def check(*arguments: str | Path, stdin: str = "") -> Done:
        return run("check", "-o", "json", "--policies", policies, *arguments, stdin=stdin.encode())

    return check
