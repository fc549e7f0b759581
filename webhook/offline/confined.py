"""Run programs that render a stranger's files: without network, plugins or settings of the user, and within limits."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

SECONDS: Final = 30
"""Limit for one folder or chart. The largest public ones take some seconds."""

OUTPUT_AT_MOST: Final = 64 * 1024 * 1024
"""Bytes that a program prints: as many as a file of manifests may have."""

_LIMITED: Final = f'ulimit -t 120 && ulimit -d {1024 * 1024} && ulimit -f {OUTPUT_AT_MOST // 512} && exec "$@"'
"""120 s of CPU, for a program that outlives a killed spotgate; 1 GiB of memory, in KiB; files as large as the output,
in blocks. Go reserves more addresses: these are free."""

_ERRORS_AT_MOST: Final = 2000
"""Bytes of a program's errors that are shown."""

_CLOSED: Final = "http://127.0.0.1:1"
"""A proxy that isn't there."""


class FailureError(Exception):
    """A program that rendered no manifests, and the reason."""


def run_limited(command: list[str], *, folder: str, home: str, seconds: float, env: dict[str, str] | None) -> bytes:
    """Return what a program prints. Raise FailureError if it fails, or reaches a limit. ``home`` is for this call."""
    output, errors = Path(home, "out"), Path(home, "err")
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(  # noqa: S603 - the shell interprets nothing of the command
            ["/bin/sh", "-c", _LIMITED, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise FailureError(f"it did not end within {seconds:.0f} s") from None
            raise
    if output.stat().st_size >= OUTPUT_AT_MOST:
        raise FailureError(f"it prints more than {OUTPUT_AT_MOST} bytes")
    if code != 0:
        text = errors.read_bytes()[:_ERRORS_AT_MOST].decode(errors="backslashreplace").strip()
        if "fatal error: " in text:  # Go prints this, and the stack of every thread, where memory ends
            text = "it ran out of memory: its limit is 1 GiB"
        raise FailureError(text or f"its exit code is {code}")
    return output.read_bytes()


def environment(home: str) -> dict[str, str]:
    """Return all variables of a stranger's program. It finds no other program, and its settings only in ``home``."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _CLOSED)
    homes = (f"{tool}_{purpose}_HOME" for tool in ("XDG", "HELM") for purpose in ("CACHE", "CONFIG", "DATA"))
    plugins = {"PATH": f"{home}/bin", "HELM_PLUGINS": f"{home}/plugins", "KUBECONFIG": os.devnull}
    return proxies | dict.fromkeys(("HOME", "TMPDIR", *homes), home) | plugins | {"LC_ALL": "C", "GOMEMLIMIT": "800MiB"}
