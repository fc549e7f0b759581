"""Run the webhook with the state of an example cluster, and send it the examples in this folder: ``make run``."""

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
"""The maximum length of a field that is printed on one line."""

PRE_STOP: Final = {"spec.containers[0].lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
TOLERATIONS: Final = {
    f"spec.tolerations[{index}]": {"key": key, "operator": "Equal", "value": "true", "effect": effect}
    for index, key, effect in (
        (2, "acme.example/spot", "NoSchedule"),
        (3, "qos.coreweave.cloud/interruptable", "NoExecute"),
    )
}


def _pools(operator: str, pool: str) -> dict[str, Any]:
    requirement = {"key": "compute.coreweave.com/node-pool", "operator": operator, "values": [pool]}
    return {"matchExpressions": [requirement]}


PREFERS_CPU_SPOT: Final = {
    "spec.affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_pools("NotIn", "h100-spot")]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": _pools("In", "cpu-spot")}
            ],
        }
    }
}


def grace(seconds: int) -> dict[str, Any]:
    """Return the expected change of a Pod's grace period."""
    return {"spec.terminationGracePeriodSeconds": seconds}


def selected(pool: str) -> dict[str, Any]:
    """Return the expected node selector for a pool."""
    return {"spec.nodeSelector": {"compute.coreweave.com/node-pool": pool}}


@dataclass(frozen=True, slots=True)
class Example:
    """A manifest, the operation on it, and the expected result.

    Attributes:
        file: the path below ``examples/``. The comment at the top of the file describes the example.
        pods: the expected changes to the Pods that the workload's controller creates, one for each pod template.
        denied: a part of the denial's message. If empty, the webhook must allow the request without a warning.
        delete: whether to delete the object instead of creating it.
        cluster: the folder with the cluster's state.
    """

    file: str
    pods: tuple[dict[str, Any], ...] = ()
    denied: str = ""
    delete: bool = False
    cluster: str = CLUSTER

    @property
    def path(self) -> str:
        """The path of the file from the root of the repository."""
        return f"{HERE.name}/{self.file}"


EXAMPLES: Final = (
    Example("web-on-spot.yaml", pods=(selected("cpu-spot") | TOLERATIONS | grace(60) | PRE_STOP,)),
    Example("queue-worker-spot-preferred.yaml", pods=(PREFERS_CPU_SPOT | TOLERATIONS | grace(120) | PRE_STOP,)),
    Example("training-job.yaml", pods=(selected("h100-spot") | TOLERATIONS | grace(270),)),
    Example("raycluster.yaml", pods=({}, selected("h100-spot") | TOLERATIONS | grace(60) | PRE_STOP)),
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
    """A run of the examples.

    Attributes:
        console: the console to print to.
        failures: the unexpected results.
    """

    console: Console
    failures: list[str] = field(default_factory=list)

    def show(self, example: Example, server: ApiServer) -> None:
        """Send one example, print the result, and compare it with the expected result."""
        before = len(self.failures)
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
            if answer.called:
                self.compare(example, request, answer, expected={})
            if not (answer.denied_by or example.denied):
                admitted.append(answer)
        pods = (pod for answer in admitted for pod in pods_of(answer.object))
        for (controller, request), expected in zip(pods, chain(example.pods, repeat({})), strict=False):
            self.line(f"Then the {controller} creates a Pod:", "dim")
            answer = server.admit(request)
            self.say(example, request, answer)
            self.compare(example, request, answer, expected)
        if len(self.failures) == before:
            self.line("As expected.", "green")
        for failure in self.failures[before:]:
            self.line(f"Unexpected: {failure}", "bold red")

    def say(self, example: Example, request: Request, answer: Answer) -> None:
        """Print the output of kubectl, and the webhook's changes."""
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
        """Record the differences from the expected result."""
        what = f"{example.path}: {request.described()}"
        if example.denied:
            if example.denied not in answer.message:
                did = "was denied for another reason" if answer.denied_by else "was allowed"
                self.failures.append(f"{what} {did}; expected a denial with {example.denied!r}")
            return
        if answer.denied_by or answer.warnings:
            self.failures.append(f"{what} was {'denied' if answer.denied_by else 'warned about'}; expected neither")
        changed = {change.field: change.after for change in answer.changes}
        for name in {**expected, **changed}:
            if (got := changed.get(name)) != (wanted := expected.get(name)):
                self.failures.append(f"{what}: {name} became {in_yaml(got)}; expected {in_yaml(wanted)}")

    def lines(self, sign: str, name: str, value: Any, style: str) -> None:
        """Print a field, on one line if it is short."""
        text = f"{name}: {in_yaml(value)}"
        if len(text) > FIELD_LENGTH:
            text = f"{name}:\n" + textwrap.indent(str(yaml.safe_dump(value, sort_keys=False)).rstrip(), "  ")
        self.line(textwrap.indent(text, sign), style)

    def line(self, text: str, style: str = "") -> None:
        """Print text without inserting line breaks. A terminal wraps long lines."""
        self.console.print(Text(text, style), soft_wrap=True)


def in_yaml(value: Any) -> str:
    """Return a value as YAML on one line, or a dash for None."""
    if value is None:
        return "-"
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)
    return text.removesuffix("...\n").rstrip("\n")


def comments_of(example: Example) -> Iterator[str]:
    """Yield the lines of the comment at the top of the manifest."""
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
    """Run the examples. Return the exit code, which is 0 if all results are as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="keep the webhook running until you press Ctrl-C")
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
            run.line(f"spotgate runs at https://{LOCALHOST}:{webhook.port}, with policies/ and {HERE.name}/{CLUSTER}/.")
            run.line("This program verifies its certificate, and sends it the examples like an API server.")
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
    return 1 if run.failures else 0


def conclude(run: Run) -> None:
    """Print the result, and the next steps."""
    run.line("")
    if run.failures:
        run.line("Unexpected results:", "bold red")
        for failure in run.failures:
            run.line(f"  {failure}", "red")
    else:
        run.line(f"All {len(EXAMPLES)} examples had the expected result.", "bold green")
    program = SPOTGATE.relative_to(ROOT) if SPOTGATE.is_relative_to(ROOT) else SPOTGATE
    check = f"{program} check {HERE.name}/*.yaml --state {HERE.name}/{CLUSTER}"
    steps = {
        "make serve": "run the examples, and keep the webhook running for your own requests",
        check: "check files against the same policies and state without a webhook, such as in a pipeline",
        "docs/": "read about the policies, and about installing the webhook in a cluster",
    }
    run.line("\nNext steps:")
    for step, what in steps.items():
        run.line(f"  {step:{max(map(len, steps))}}  {what}")


def serve_on(run: Run, webhook: Webhook) -> None:
    """Print commands that send a review and read the metrics, and wait until Ctrl-C."""
    file = webhook.ca_file.with_name("review.json")
    denied = next(example for example in EXAMPLES if example.denied)
    file.write_text(json.dumps(review(next(requests_of(denied)))), encoding="utf-8")
    try:
        run.line("")
        run.line(f"The webhook runs until you press Ctrl-C. Its log is {webhook.log}. In another terminal, run:")
        run.line("")
        run.line(f"curl --cacert {webhook.ca_file} -H 'Content-Type: application/json' --data @{file} \\")
        run.line(f"  https://{LOCALHOST}:{webhook.port}/validate")
        run.line(f"curl http://{LOCALHOST}:{webhook.ops_port}/metrics")
        failed = webhook.process.wait()
    except KeyboardInterrupt:
        return
    if failed:
        raise WebhookError(f"the webhook exited:\n{webhook.log.read_text()}")


if __name__ == "__main__":
    sys.exit(main())
