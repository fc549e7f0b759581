"""Run a control plane server as a child process, with a log file and a reserved port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WRAPPER: Final = Path(__file__).with_name("run_with_parent.py")


def reserve_port() -> socket.socket:
    """Bind a free port on loopback without listening. The server must set SO_REUSEPORT to share the port.

    While the socket is open, no other program can bind the port, even if the server restarts.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation


@dataclass(slots=True)
class Process:
    """A server process. It ends on `kill`, or with the thread that started it."""

    name: str
    command: Sequence[str]
    log: Path
    _child: subprocess.Popen[bytes] = field(init=False)

    @property
    def pid(self) -> int:
        """Return the process ID. The process must be started."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._child.poll()

    def start(self) -> None:
        """Start the process, or restart it after `kill`. Append its output to `log`."""
        wrapped = [sys.executable, "-ISE", str(WRAPPER), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            # In a new session, Ctrl-C in the terminal reaches only spotgate, which then stops the servers in order.
            self._child = subprocess.Popen(  # noqa: S603 - a program of the control plane
                wrapped, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the process and its descendants, and wait for it to end. No state is saved."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def explain_exit(self) -> str:
        """Return how the process ended, with its last log lines. The process must have ended."""
        if self.exit_code == -signal.SIGKILL:
            return f"{self.name} was killed: the machine may have run out of memory"
        return f"{self.name} exited with {self.exit_code}; its last log lines:\n{self.tail()}"

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
