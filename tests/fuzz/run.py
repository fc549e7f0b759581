"""Fuzz one input, guided by coverage: ``make fuzz TARGET=policies SECONDS=600``. It ends with 1 if there are faults.

Inputs that reach new code stay in ``.fuzz/TARGET/corpus``, where the next run begins. ``.fuzz/TARGET/faults`` has one
input for each fault, with its traceback; ``python -m tests.fuzz.run TARGET FILE`` judges such a file again.
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
"""Bytes of address space. What takes more ends in a MemoryError, and that in a traceback."""
STUCK_AFTER = 120
"""Seconds after which the fuzzer ends where an input waits and takes no processor time."""


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
            except Exception as error:  # noqa: BLE001 - an answer that can't be read is a fault, too
                cause = str(error.args[0]) if isinstance(error, targets.FaultError) else type(error).__name__
                if cause not in causes:
                    causes.add(cause)
                    file = faults / hashlib.sha256(cause.encode()).hexdigest()[:16]
                    file.write_bytes(data)
                    file.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))
                    print(f"fault: {cause}\n  {file}", flush=True)  # noqa: T201

        def mutate(data: bytes, size: int, seed: int) -> bytes:
            return mutation.mutate(data, target.seeds, Random(seed))[:size]  # noqa: S311 - no secret

        child = os.fork()  # libFuzzer ends its process without a word to Python
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
    faulthandler.enable()  # a crash in C code, as that of a YAML parser, has no other traceback
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    of, argument = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        if argument.isdigit():
            fuzz(of, argument, Path(work))
        else:
            from tests.fuzz.targets import TARGETS, run

            run(TARGETS[of], Path(argument).read_bytes(), Path(work))
