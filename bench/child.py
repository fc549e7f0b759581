"""Run a command, and print its wall time, peak memory, and exit code as JSON.

A separate, small process: on Linux, a child's peak memory is never below its parent's memory at the start.
"""

import json
import os
import subprocess
import sys
import time

started = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
_, status, usage = os.wait4(child.pid, 0)
seconds = time.perf_counter() - started
cpu = usage.ru_utime + usage.ru_stime
print(
    json.dumps(
        {"seconds": seconds, "cpu": cpu, "mib": usage.ru_maxrss / 1024, "exit": os.waitstatus_to_exitcode(status)}
    )
)
