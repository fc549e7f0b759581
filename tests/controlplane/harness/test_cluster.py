"""A control plane that doesn't start reports why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.cluster import start_cluster
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_that_fails_to_start_raises_its_output(binaries: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho no such flag\nexit 3\n")
    broken.chmod(0o755)
    with (
        pytest.raises(ControlPlaneError, match=r"^kube-apiserver exited with 3; its last log lines:\nno such flag$"),
        start_cluster(binaries | {"kube-apiserver": broken}, controllers=False),
    ):
        pass
