"""Run a server of the control plane as a child process: its log, its end, and a port that is surely its own."""

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
    """Bind a free port on loopback without listening; its server must set SO_REUSEPORT.

    While the socket is open, no other program gets the port, even if the server restarts.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation


@dataclass(slots=True)
class Process:
    """Run a server that leaves nothing behind: it ends by `kill`, or with the thread that started it."""

    name: str
    command: Sequence[str]
    log: Path
    _child: subprocess.Popen[bytes] = field(init=False)

    @property
    def pid(self) -> int:
        """Return its process id; it has been started."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Return what it ended with. Return None while it runs."""
        return self._child.poll()

    def start(self) -> None:
        """Start it, again if it was killed; its output goes to the end of `log`."""
        wrapped = [sys.executable, "-ISE", str(WRAPPER), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the program, which then ends it in its order.
            self._child = subprocess.Popen(  # noqa: S603 - a program of the control plane
                wrapped, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """End it and whatever it started at once: nothing that it holds is kept."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def explain_exit(self) -> str:
        """Return how it ended and its last words; it has ended."""
        if self.exit_code == -signal.SIGKILL:
            return f"{self.name} was killed: the machine may have run out of memory"
        return f"{self.name} exited with {self.exit_code}; it said last:\n{self.tail()}"

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
