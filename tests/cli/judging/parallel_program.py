"""What the command line is to `webhook.cli.judging.session`, in a process without threads: reports each object in a line.

``PROCESSES`` is how many the machine has cores for, ``DO`` what happens while an object is reported: ``die``, or
``wait`` for as many ``SECONDS``.
"""

import os
import signal
import sys
import time
from argparse import ArgumentParser

from webhook.cli.commands import check
from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging import parallel, session
from webhook.cli.judging.judge import Judgement, path_of
from webhook.cli.judging.project import take_project_file
from webhook.manifests.objects import Manifest


def report(manifest: Manifest, judgement: Judgement) -> str:
    match os.environ.get("DO"):
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            os.write(1, b"waiting\n")
            time.sleep(float(os.environ["SECONDS"]))
    where = [manifest.position_of(path_of(finding.field)) for finding in judgement.findings]
    document = manifest.document
    return repr((manifest.file, manifest.line, document.begin, document.source, manifest.name, judgement, where))


os.sched_getaffinity = lambda _: set(range(int(os.environ["PROCESSES"])))
vars(parallel)["WORTH"] = 1000
vars(session)["_AT_ONCE"] = 10
started: list[None] = []
os.register_at_fork(before=lambda: started.append(None))
parser = ArgumentParser()
check.configure(parser)
options = parser.parse_args(sys.argv[1:])
take_project_file(options)
try:
    reported = session.judge_each(options, lambda judged: [report(*each) for each in judged.objects])
except CannotJudgeError as error:
    sys.exit(str(error))
except KeyboardInterrupt:
    sys.exit(130)
for line in (*reported.objects, *sorted(reported.problems), f"{reported.skipped} skipped"):
    sys.stdout.write(f"{line}\n")
sys.stderr.write(f"{len(started)}\n")
