"""Train in steps: save a checkpoint when the node's reclaim is announced and at SIGTERM, and continue from it later.

The file with the deadline is empty until the notice. Then it has the time of the removal, such as 2026-11-29T01:02:03Z.
"""

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

NOTICE = Path(os.environ.get("NOTICE", "/var/run/spotgate/reclaim-at"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/checkpoints/step"))
STEPS = int(os.environ.get("STEPS", "100000"))
SAVE_SECONDS = 60  # how long it takes to write a checkpoint


def train(_step: int) -> None:
    """Do one step of the work."""
    time.sleep(0.01)


def deadline() -> datetime | None:
    """Return when the node is removed. Return None without a notice."""
    text = NOTICE.read_text().strip() if NOTICE.exists() else ""
    return datetime.fromisoformat(text) if text else None


def save(step: int, why: str) -> None:
    """Write the checkpoint, and replace the last one only when it is complete."""
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(str(step))
    new.replace(CHECKPOINT)
    print(f"saved step {step}: {why}", flush=True)


def main() -> None:
    """Train until the last step, or until SIGTERM."""
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    step = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    saved_for = None
    print(f"begin after step {step}", flush=True)
    while step < STEPS:
        step += 1
        train(step)
        removal = deadline()
        if removal and removal != saved_for:
            save(step, f"the node is removed at {removal:%H:%M:%S}")
            saved_for = removal
        if signals:
            if removal is None or (removal - datetime.now(UTC)).total_seconds() > SAVE_SECONDS:
                save(step, "SIGTERM")
            sys.exit(128 + signals[0])


if __name__ == "__main__":
    main()
