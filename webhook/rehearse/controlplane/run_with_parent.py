"""Replace this process with the program on the command line, and die when the parent dies.

Usage: `run_with_parent.py PARENT_PID PROGRAM ARGS...`.

A killed parent can't clean up its children, so the Linux kernel kills them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>

if __name__ == "__main__":
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent process has already ended")
    try:
        os.execv(program[0], program)  # noqa: S606 - without a shell
    except OSError as error:
        sys.exit(f"{program[0]} can't be run: {error.strerror}")
