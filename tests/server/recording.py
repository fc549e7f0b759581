"""A recorder in a folder, and its output."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from tests.server.harness import PATIENCE, Known, bundle_of, review
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.model.decision import Violation
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase, utc_now
from webhook.runtime.limits import LIMITS
from webhook.runtime.log import configure_logging
from webhook.server.http.metrics import Metrics
from webhook.server.http.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.server.harness import Judge
    from webhook.rules.subject import Subject
    from webhook.runtime.limits import Limits

CONTEXT = Context(phase=Phase.VALIDATE, now=utc_now(), view=Known().view())


def reserved(subject: Subject, context: Context) -> Iterable[Violation]:
    del subject, context
    yield Violation(id="unwanted", reason="it is reserved")


class Recording:
    """A recorder in a folder, and the lines that it wrote."""

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        self.folder = folder
        self.metrics = Metrics()
        self.log = BytesIO()
        configure_logging(self.log)
        self.recorder = Recorder(folder, self.metrics, replace(limits, finish=PATIENCE))

    def take(self, body: bytes, judge: Judge = reserved, context: Context = CONTEXT) -> None:
        request, bundle = decode_review(body), bundle_of(judge)
        decision = decide(request, bundle.index, context)
        self.recorder.take(request, decision, context, bundle, respond(request.uid, decision, context.phase))

    def end(self) -> list[Any]:
        """Write pending reviews; return the lines."""
        self.recorder.start()
        self.recorder.close()
        return [json.loads(line) for file in sorted(self.folder.glob("*")) for line in file.read_text().splitlines()]

    def count(self, sample: str) -> float:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


def of(resource: str, *, group: str = "", kind: str = "X", sub: str = "", operation: str = "CREATE") -> bytes:
    return review(
        resource={"group": group, "version": "v1", "resource": resource},
        kind={"group": group, "version": "v1", "kind": kind},
        subResource=sub,
        operation=operation,
        object={"data": {"password": "hunter2"}, "metadata": {"name": "x"}},
        oldObject={"data": {"password": "hunter2"}, "metadata": {"name": "x"}},
    )
