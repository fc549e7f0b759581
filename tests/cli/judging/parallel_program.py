"""Evaluate as the command line does, in a process without threads; print the report and the number of forks.

The arguments are those of ``check``; ``+`` separates runs. ``PROCESSES`` lists the number of cores
for each run; ``DO`` is the action during a report: ``die``, or ``wait`` for ``SECONDS``.
"""

import json
import os
import signal
import sys
import time
from argparse import ArgumentParser
from itertools import groupby

from webhook.base.exits import CannotJudgeError
from webhook.base.field_paths import parse_field_path
from webhook.commands.check import command as check
from webhook.commands.shared.options import judging_options
from webhook.inputs.objects import Manifest
from webhook.inputs.policies import read_policies
from webhook.judging import parallel, session
from webhook.judging.judge import Judgement


def report(manifest: Manifest, judgement: Judgement) -> str:
    match os.environ.get("DO"):
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            os.write(1, b"waiting\n")
            time.sleep(float(os.environ["SECONDS"]))
    where = [manifest.position_of(parse_field_path(finding.field)) for finding in judgement.findings]
    document = manifest.document
    return repr((manifest.file, manifest.line, document.begin, document.source, manifest.name, judgement, where))


def run(arguments: list[str], cores: int) -> None:
    """Print the report and the number of started processes."""
    os.sched_getaffinity = lambda _: set(range(cores))
    started.clear()
    options = parser.parse_args(arguments)
    reported = session.judge_each(judging_options(options), lambda judged: [report(*pair) for pair in judged.objects])
    lines = [*map(str, reported.objects), *sorted(map(str, reported.problems)), f"{reported.skipped} skipped"]
    sys.stdout.write(json.dumps({"started": len(started), "lines": lines}) + "\n")
    sys.stdout.flush()


vars(parallel)["BYTES_PER_PROCESS"] = 1000

bundle = read_policies([])
vars(session)["read_policies"] = lambda _, **__: bundle
started: list[None] = []
os.register_at_fork(before=lambda: started.append(None))
parser = ArgumentParser()
check.configure(parser)
try:
    for is_next, arguments in groupby(sys.argv[1:], key="+".__eq__):
        args = list(arguments)
        for cores in () if is_next else os.environ["PROCESSES"].split():
            run(args, int(cores))
except CannotJudgeError as error:
    sys.exit(str(error))
except KeyboardInterrupt:
    sys.exit(130)
