"""spotgate as a fork of a process that has already imported it: it starts in a fifth of the time."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from webhook.commands import main
from webhook.rehearse.controlplane.process import Process
from webhook.rehearse.controlplane.run_with_parent import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.controlplane.harness.hasty", __name__])


class ForkedSpotgate(Process):
    """A process of spotgate with the limits of `hasty`. It ends on `kill`, or with the program that started it."""

    _fork: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self._fork.pid is not None
        return self._fork.pid

    @property
    def exit_code(self) -> int | None:
        return self._fork.exitcode

    def start(self) -> None:
        self.log.touch()
        self._fork = _FORKS.Process(target=_run, args=(self.command[1:], self.log))
        self._fork.start()

    def kill(self) -> None:
        self._fork.kill()
        self._fork.join()


def _run(arguments: Sequence[str], log: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # Ctrl-C doesn't reach it
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.exit(main(arguments))
