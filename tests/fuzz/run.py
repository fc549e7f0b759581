"""Fuzz one input, guided by coverage: ``make fuzz TARGET=policies SECONDS=600``. Exit with 1 if there are faults.

``.fuzz/TARGET/corpus`` keeps the inputs that reach new code, for the next run. ``.fuzz/TARGET/faults`` has one input and
traceback for each fault; ``python -m tests.fuzz.run TARGET FILE`` reproduces it.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

MEMORY_AT_MOST = 3 * 1024**3
"""Bytes of address space. Using more raises a MemoryError, which counts as a fault."""
STUCK_AFTER = 120
"""Seconds after which the fuzzer stops if an input blocks without using processor time."""


def fuzz(name: str, seconds: str, folder: Path) -> None:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["webhook", "jmespath"]):
        from tests.fuzz import mutation, targets  # noqa: PLC0415

        targets.load_once()
        target = targets.TARGETS[name]
        corpus, faults = (Path(".fuzz") / name / part for part in ("corpus", "faults"))
        for path in (corpus, faults):
            path.mkdir(parents=True, exist_ok=True)
        for seed in target.seeds:
            (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
        causes: set[str] = set()

        def judge(data: bytes) -> None:
            try:
                targets.run(target, data, folder)
            except Exception as error:  # noqa: BLE001 - an unreadable answer is also a fault
                cause = str(error.args[0]) if isinstance(error, targets.FaultError) else type(error).__name__
                if cause not in causes:
                    causes.add(cause)
                    file = faults / hashlib.sha256(cause.encode()).hexdigest()[:16]
                    file.write_bytes(data)
                    file.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))
                    print(f"fault: {cause}\n  {file}", flush=True)  # noqa: T201

        def mutate(data: bytes, size: int, seed: int) -> bytes:
            return mutation.mutate(data, target.seeds, Random(seed))[:size]  # noqa: S311 - no secret

        child = os.fork()  # libFuzzer exits its process without notifying Python
        if not child:
            flags = [f"-max_total_time={seconds}", f"-timeout={STUCK_AFTER}", f"-max_len={mutation.SIZE_AT_MOST}"]
            flags += ["-len_control=0", "-rss_limit_mb=0", "-report_slow_units=120", f"-artifact_prefix={faults}/"]
            atheris.Setup([sys.argv[0], str(corpus), *flags], judge, custom_mutator=mutate)
            atheris.Fuzz()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"{name}: the fuzzer itself ended with {code}, perhaps not by an input; the last lines above say more")
    sys.exit(f"{name}: see {faults}" if any(faults.iterdir()) else 0)


if __name__ == "__main__":
    faulthandler.enable()  # a crash in C code, such as a YAML parser's, has no other traceback
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    target_name, argument = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        if argument.isdigit():
            fuzz(target_name, argument, Path(work))
        else:
            from tests.fuzz.targets import TARGETS, run

            run(TARGETS[target_name], Path(argument).read_bytes(), Path(work))
