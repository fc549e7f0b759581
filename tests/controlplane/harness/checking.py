"""`spotgate check --kubeconfig`, run in this process on the objects of a test."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.controlplane.harness.kubectl import as_list
from webhook.commands import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Checked(NamedTuple):
    """The exit code, the JSON from standard output, and the text from standard error."""

    code: int
    report: Any
    err: str

    def reasons(self, outcome: str = "deny") -> list[str]:
        """Return the reasons of all findings with this outcome."""
        return [result["reason"] for result in self.report["results"] if result["outcome"] == outcome]


def check(kubeconfig: Path, *objects: Mapping[str, Any], flags: tuple[str, ...] = ()) -> Checked:
    """Check the objects against the cluster."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(as_list(*objects))
        file.flush()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["check", "-o", "json", f"--kubeconfig={kubeconfig}", *flags, file.name])
    return Checked(code, json.loads(out.getvalue()), err.getvalue())
