"""Build and download the programs and files of `make test-cluster`, before the time limits of its tests begin."""

from __future__ import annotations

import sys

from tests.controlplane.harness.tools import TOOLS, find_tools
from tests.go_modules import KYVERNO, PROMETHEUS_OPERATOR, SARIF, download
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build

if __name__ == "__main__":
    try:
        find_or_build()
        find_tools([name for module in TOOLS for name in module.packages])
        for name, version in (KYVERNO, PROMETHEUS_OPERATOR, SARIF):
            download(name, version)
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
