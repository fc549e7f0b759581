"""kubectl as one user: `kubectl("delete", "pod", "web")` raises if it fails, `kubectl.run(...)` does not."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Longer than any `kubectl wait --timeout` of a test, so that kubectl's own message appears.
TIMEOUT_SECONDS = 100.0


# By default, kubectl loads the schema of a kind each time, which takes three times as long as everything else.
_WITHOUT_SCHEMA = [{"name": "validate", "default": "false"}, {"name": "openapi-patch", "default": "false"}]
PREFERENCES = {
    "apiVersion": "kubectl.config.k8s.io/v1beta1",
    "kind": "Preference",
    "defaults": [
        {"command": "apply", "options": _WITHOUT_SCHEMA},
        {"command": "create", "options": _WITHOUT_SCHEMA[:1]},
    ],
}


class KubectlError(Exception):
    """A failure of kubectl, with the command and its output."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a kubectl command."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl for the user of `kubeconfig`, optionally in `namespace`. `home` contains its discovery cache."""

    program: Path
    kubeconfig: Path
    home: Path
    namespace: str = ""

    def run(self, *arguments: str, documents: str = "") -> Result:
        """Run kubectl, and return its result even if it fails; `-f -` reads `documents`."""
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
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, documents: str = "") -> str:
        """Run kubectl, and return its output. Raise KubectlError if it fails."""
        result = self.run(*arguments, documents=documents)
        if result.returncode != 0:
            raise KubectlError(f"kubectl {shlex.join(arguments)}\n{result.stdout}{result.stderr}".rstrip())
        return result.stdout

    def get(self, *arguments: str) -> Any:
        """Return the object or the List from `kubectl get`. Raise KubectlError."""
        return json.loads(self("get", "--output=json", *arguments))

    def apply(self, *objects: Mapping[str, Any], arguments: tuple[str, ...] = ()) -> str:
        """Apply the objects. Raise KubectlError."""
        return self("apply", *arguments, "--filename=-", documents=as_list(*objects))


def as_list(*objects: Mapping[str, Any]) -> str:
    """Return the objects as one List for `--filename=-`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def write_preferences(home: Path) -> None:
    """Write preferences that speed kubectl up for a user with this home."""
    kuberc = home / ".kube" / "kuberc"
    kuberc.parent.mkdir()
    kuberc.write_text(json.dumps(PREFERENCES))
