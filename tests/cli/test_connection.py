"""Commands that read a live cluster keep their standard output for the report."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, pathlib, sys
import structlog
from webhook.cluster.connection import connect

async def main():
    api = await connect(pathlib.Path(sys.argv[1]))
    await api.close()
    structlog.get_logger().warning("resource not watched")

asyncio.run(main())
"""

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: x}}]
"""


def test_log_lines_of_a_connection_go_to_standard_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    done = subprocess.run([sys.executable, "-c", PROGRAM, kubeconfig], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "resource not watched" in done.stderr
