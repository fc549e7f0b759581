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

# Above any `kubectl wait --timeout` of a test, so that kubectl's own message is seen.
TIMEOUT_SECONDS = 100.0


# Without them kubectl loads the schema of a kind each time, which takes it three times as long as all else.
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
    """kubectl refused; the message holds the command and what it said."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of kubectl gave."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl as the user of `kubeconfig`, in `namespace` if there is one. `home` is for its discovery cache."""

    program: Path
    kubeconfig: Path
    home: Path
    namespace: str = ""

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
        return Result(done.returncode, done.stdout, done.stderr)

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


def as_list(*objects: Mapping[str, Any]) -> str:
    """Return the objects as one document for `--filename=-`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def write_preferences(home: Path) -> None:
    """Write what makes kubectl quick for a user with this home."""
    kuberc = home / ".kube" / "kuberc"
    kuberc.parent.mkdir()
    kuberc.write_text(json.dumps(PREFERENCES))
