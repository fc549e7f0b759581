"""kubectl as one user: `kubectl("delete", "pod", "web")` raises if it fails, `kubectl.run(...)` does not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The first line of what a policy says: in a warning, or in a denial, where that of the first follows on the rest.
FINDING = re.compile(r"(?:Warning: |(?P<denial>.* denied the request: ))?\[(?P<policy>[\w-]+)\] ")

# Above any `kubectl wait --timeout` of a test, so that kubectl's own message is seen.
TIMEOUT_SECONDS = 100.0


class KubectlError(Exception):
    """kubectl refused; the message holds the command and what it said."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of kubectl gave."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl as the user of `kubeconfig`, in `namespace` if there is one. `home` is for its discovery cache.

    With a `policy`, what other policies say is left out of standard error.
    """

    program: Path
    kubeconfig: Path
    home: Path
    namespace: str = ""
    policy: str = ""

    def run(self, *arguments: str, documents: str = "") -> Result:
        """Run it, whatever comes of it; `documents` is what `-f -` reads."""
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        done = subprocess.run(
            [str(self.program), *where, *arguments],
            input=documents,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return Result(done.returncode, done.stdout, said_by(self.policy, done.stderr) if self.policy else done.stderr)

    def __call__(self, *arguments: str, documents: str = "") -> str:
        """Run it and return its output. Raises KubectlError if it fails."""
        result = self.run(*arguments, documents=documents)
        if result.returncode != 0:
            raise KubectlError(f"kubectl {shlex.join(arguments)}\n{result.stdout}{result.stderr}".rstrip())
        return result.stdout

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get` finds: an object, or a List of them. Raises KubectlError."""
        return json.loads(self("get", "--output=json", *arguments))

    def apply(self, *objects: Mapping[str, Any], arguments: tuple[str, ...] = ()) -> str:
        """Apply the objects. Raises KubectlError."""
        return self("apply", *arguments, "--filename=-", documents=as_list(*objects))


def said_by(policy: str, said: str) -> str:
    """Return what kubectl said, without the warnings and the reasons for a denial that other policies gave."""
    kept, ours = "", True
    for line in said.splitlines(keepends=True):
        if begins := FINDING.match(line):
            ours = begins["policy"] == policy
            kept += "" if ours else begins["denial"] or ""
        elif not line.removeprefix("Warning: ").startswith("  "):
            ours = True
        kept += line if ours else ""
    return kept


def as_list(*objects: Mapping[str, Any]) -> str:
    """Return the objects as one document for `--filename=-`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def as_warnings(text: str) -> str:
    """Return the lines as kubectl prints the warnings of an API server."""
    return "".join(f"Warning: {line}\n" for line in text.splitlines())
