"""Run programs that render untrusted files: without network, plugins, or user settings, and within limits."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

SECONDS: Final = 30
"""The time limit for one folder or chart. The largest public ones take several seconds."""

OUTPUT_AT_MOST: Final = 64 * 1024 * 1024
"""The maximum output of a program in bytes: the maximum size of a manifest file."""

_LIMITED: Final = f'ulimit -t 120 && ulimit -d {1024 * 1024} && ulimit -f {OUTPUT_AT_MOST // 512} && exec "$@"'
"""120 s of CPU, in case the program outlives a killed spotgate; 1 GiB of memory, in KiB; files as large as the output,
in blocks. Go reserves more address space, which isn't limited."""

_ERRORS_AT_MOST: Final = 2000
"""The maximum number of characters of a program's errors to show, from the end: warnings come first."""

_CLOSED: Final = "http://127.0.0.1:1"
"""A proxy address where nothing listens."""


class FailureError(Exception):
    """A program failure: it rendered no manifests, for this reason."""


def run_limited(command: list[str], *, folder: str, home: str, seconds: float, env: dict[str, str] | None) -> bytes:
    """Return the output of a program. Raise FailureError if it fails or reaches a limit. ``home`` is a fresh folder."""
    output, errors = Path(home, "out"), Path(home, "err")
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(  # noqa: S603 - the shell doesn't interpret the command
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
        text = errors.read_bytes().decode(errors="backslashreplace").strip()
        if "fatal error: " in text:  # Go prints this before every thread's stack when it runs out of memory
            text = "it ran out of memory: its limit is 1 GiB"
        raise FailureError(text[-_ERRORS_AT_MOST:] or f"its exit code is {code}")
    return output.read_bytes()


def environment(home: str) -> dict[str, str]:
    """Return all variables for an untrusted program. It finds no other programs, and settings only in ``home``."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _CLOSED)
    homes = (f"{tool}_{purpose}_HOME" for tool in ("XDG", "HELM") for purpose in ("CACHE", "CONFIG", "DATA"))
    plugins = {"PATH": f"{home}/bin", "HELM_PLUGINS": f"{home}/plugins", "KUBECONFIG": os.devnull}
    return proxies | dict.fromkeys(("HOME", "TMPDIR", *homes), home) | plugins | {"LC_ALL": "C", "GOMEMLIMIT": "800MiB"}
