"""``make run``: the webhook on a small cluster made of files, and what it does with the examples beside this file."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from rich.console import Console
from rich.text import Text

from examples.apiserver import Answer, ApiServer, Request, pods_of, review
from examples.served import LOCALHOST, SPOTGATE, Webhook, WebhookError, serving
from webhook.documents import read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
CLUSTER: Final = "state"
NEW_CLUSTER: Final = "state-new-cluster"
FIELD_LENGTH: Final = 110
"""Characters of a field that is shown on one line."""

PRE_STOP: Final = {"spec.containers[0].lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
TOLERATION: Final = {
    "spec.tolerations[2]": {
        "key": "acme.example/spot",
        "operator": "Equal",
        "value": "true",
        "effect": "NoSchedule",
    }
}
PREFERS_CPU_SPOT: Final = {
    "spec.affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [
                            {"key": "compute.coreweave.com/node-pool", "operator": "In", "values": ["cpu-spot"]}
                        ]
                    },
                }
            ]
        }
    }
}


def grace(seconds: int) -> dict[str, Any]:
    """Return the change of a Pod's grace period."""
    return {"spec.terminationGracePeriodSeconds": seconds}


def selected(pool: str) -> dict[str, Any]:
    """Return the selector of one pool."""
    return {"spec.nodeSelector": {"compute.coreweave.com/node-pool": pool}}


@dataclass(frozen=True, slots=True)
class Example:
    """A manifest, what is done with it, and what must come of it.

    Attributes:
        file: below ``examples/``; the comment at its top says what it shows.
        pods: what the webhook changes on the Pods that the workload's controller makes, one for each pod template.
        denied: a part of the denial; empty: allowed, and without a warning.
        delete: it is deleted instead of created.
        cluster: which cluster it is sent to.
    """

    file: str
    pods: tuple[dict[str, Any], ...] = ()
    denied: str = ""
    delete: bool = False
    cluster: str = CLUSTER

    @property
    def path(self) -> str:
        """The file as a person names it in the project's folder."""
        return f"{HERE.name}/{self.file}"


EXAMPLES: Final = (
    Example("web-on-spot.yaml", pods=(selected("cpu-spot") | TOLERATION | grace(60) | PRE_STOP,)),
    Example("queue-worker-spot-preferred.yaml", pods=(PREFERS_CPU_SPOT | TOLERATION | grace(120) | PRE_STOP,)),
    Example("training-job.yaml", pods=(selected("h100-spot") | TOLERATION | grace(270),)),
    Example("raycluster.yaml", pods=({}, selected("h100-spot") | TOLERATION | grace(60) | PRE_STOP)),
    Example("checkout-on-demand.yaml", pods=({},)),
    Example("pod-reserved-label.yaml", denied="foo.coreweave.cloud/bar"),
    Example("deployment-reserved-label.yaml", denied="foo.coreweave.cloud/bar"),
    Example("deployment-misspelt-qos-label.yaml", denied="qos.coreweave.cloud/interruptable"),
    Example("nodepool-b200-spot.yaml"),
    Example("nodepool-superchip-spot.yaml", denied="superchip"),
    Example("nodepool-spot-without-fallback.yaml", denied="on-demand", cluster=NEW_CLUSTER),
    Example("state/nodepool-h100-on-demand.yaml", denied="last", delete=True),
)


@dataclass(slots=True)
class Run:
    """A run over the examples: what it prints, and what did not go as expected."""

    console: Console
    surprises: list[str] = field(default_factory=list)

    def show(self, example: Example, server: ApiServer) -> None:
        """Send one example, print what came of it, and compare that with what is expected."""
        before = len(self.surprises)
        self.line("")
        self.line(example.path, "bold")
        for comment in comments_of(example):
            self.line(comment, "dim")
        self.line("")
        self.line(f"$ kubectl {'delete' if example.delete else 'apply'} -f {example.path}")
        admitted: list[Answer] = []
        for request in requests_of(example):
            answer = server.admit(request)
            self.say(example, request, answer)
            if answer.asked:
                self.compare(example, request, answer, expected={})
            if not (answer.denied_by or example.denied):
                admitted.append(answer)
        pods = (pod for answer in admitted for pod in pods_of(answer.object))
        for (controller, request), expected in zip(pods, chain(example.pods, repeat({})), strict=False):
            self.line(f"Then the {controller} asks for a Pod:", "dim")
            answer = server.admit(request)
            self.say(example, request, answer)
            self.compare(example, request, answer, expected)
        if len(self.surprises) == before:
            self.line("As expected.", "green")
        for surprise in self.surprises[before:]:
            self.line(f"Not as expected: {surprise}", "bold red")

    def say(self, example: Example, request: Request, answer: Answer) -> None:
        """Print what kubectl would, and what the webhook changed."""
        for warning in answer.warnings:
            self.line(f"Warning: {warning}", "yellow")
        if answer.denied_by:
            verb = "deleting" if example.delete else "creating"
            failed = f'Error from server ({answer.reason}): error when {verb} "{example.path}"'
            denial = f'admission webhook "{answer.denied_by}" denied the request: {answer.message}'
            self.line(f"{failed}: {denial}", "red")
            return
        self.line(f"{request.described()} {'deleted' if example.delete else 'created'}")
        for change in answer.changes:
            if change.before is not None:
                self.lines("  - ", change.field, change.before, "red")
            self.lines("  + ", change.field, change.after, "green")
        if request.resource.kind == "Pod" and not answer.changes:
            self.line("  (unchanged)", "dim")

    def compare(self, example: Example, request: Request, answer: Answer, expected: dict[str, Any]) -> None:
        """Note what is not as the example says."""
        what = f"{example.path}: {request.described()}"
        if example.denied:
            if example.denied not in answer.message:
                did = "was denied for another reason" if answer.denied_by else "was allowed"
                self.surprises.append(f"{what} {did}; expected a denial that speaks of {example.denied!r}")
            return
        if answer.denied_by or answer.warnings:
            self.surprises.append(f"{what} was {'denied' if answer.denied_by else 'warned about'}; expected neither")
        changed = {change.field: change.after for change in answer.changes}
        for name in {**expected, **changed}:
            if (got := changed.get(name)) != (wanted := expected.get(name)):
                self.surprises.append(f"{what}: {name} became {in_yaml(got)}; expected {in_yaml(wanted)}")

    def lines(self, sign: str, name: str, value: Any, style: str) -> None:
        """Print a field: on one line if it is short."""
        text = f"{name}: {in_yaml(value)}"
        if len(text) > FIELD_LENGTH:
            text = f"{name}:\n" + textwrap.indent(str(yaml.safe_dump(value, sort_keys=False)).rstrip(), "  ")
        self.line(textwrap.indent(text, sign), style)

    def line(self, text: str, style: str = "") -> None:
        """Print text as it is: a terminal wraps it, a pipe gets it whole."""
        self.console.print(Text(text, style), soft_wrap=True)


def in_yaml(value: Any) -> str:
    """Return a value on one line, or a dash if there is none."""
    if value is None:
        return "-"
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)
    return text.removesuffix("...\n").rstrip("\n")


def comments_of(example: Example) -> Iterator[str]:
    """Return the comment at the top of the manifest."""
    for line in (HERE / example.file).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            return
        yield line.removeprefix("#").strip()


def requests_of(example: Example) -> Iterator[Request]:
    """Yield the requests that kubectl sends for the manifest."""
    operation = "DELETE" if example.delete else "CREATE"
    for document in read_documents((HERE / example.file).read_bytes(), example.file):
        if isinstance(document.value, dict):
            yield Request(operation=operation, object=document.value)


def main() -> int:
    """Run the examples. The exit code is 0 if each went as it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="leave the webhook serving until Ctrl-C")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run = Run(Console(highlight=False))
    try:
        with ExitStack() as stack:
            servers = {
                state: ApiServer(stack.enter_context(serving(ROOT / "policies", HERE / state)))
                for state in (CLUSTER, NEW_CLUSTER)
            }
            webhook = servers[CLUSTER].webhook
            run.line(
                f"spotgate serves at https://{LOCALHOST}:{webhook.port} with policies/, certificate verified, on the"
            )
            run.line(f"cluster that {HERE.name}/{CLUSTER}/ describes. Each example is sent as an API server would.")
            for example in EXAMPLES:
                run.show(example, servers[example.cluster])
            conclude(run)
            if options.serve:
                serve_on(run, webhook)
    except WebhookError as error:
        run.line(str(error), "bold red")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if run.surprises else 0


def conclude(run: Run) -> None:
    """Print the result, and what to try next."""
    run.line("")
    if run.surprises:
        run.line("Not as expected:", "bold red")
        for surprise in run.surprises:
            run.line(f"  {surprise}", "red")
    else:
        run.line(f"All {len(EXAMPLES)} examples went as expected.", "bold green")
    check = f"{SPOTGATE.relative_to(ROOT) if SPOTGATE.is_relative_to(ROOT) else SPOTGATE} check {HERE.name}/*.yaml"
    steps = {
        "make serve": "the same, and the webhook stays for reviews of your own",
        check: "the same policies on files, without a cluster: for a pipeline",
        "docs/": "the policies, and how to run the webhook in a cluster",
    }
    run.line("\nHow to go on:")
    for step, what in steps.items():
        run.line(f"  {step:{max(map(len, steps))}}  {what}")


def serve_on(run: Run, webhook: Webhook) -> None:
    """Leave it serving until Ctrl-C, with a review at hand."""
    file = webhook.ca_file.with_name("review.json")
    denied = next(example for example in EXAMPLES if example.denied)
    file.write_text(json.dumps(review(next(requests_of(denied)))), encoding="utf-8")
    run.line("")
    run.line(f"Serving; Ctrl-C ends it. Its log is {webhook.log}. Paste this into another terminal:")
    run.line("")
    run.line(f"curl --cacert {webhook.ca_file} -H 'Content-Type: application/json' --data @{file} \\")
    run.line(f"  https://{LOCALHOST}:{webhook.port}/validate")
    run.line(f"curl http://{LOCALHOST}:{webhook.ops_port}/metrics")
    try:
        failed = webhook.process.wait()
    except KeyboardInterrupt:
        return
    if failed:
        raise WebhookError(f"the webhook ended:\n{webhook.log.read_text()}")


if __name__ == "__main__":
    sys.exit(main())
