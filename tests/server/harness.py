"""A server as `spotgate serve` runs it, on free loopback ports, in a thread or in a separate process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import io
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from certs.authority import self_signed
from webhook.base.globs import Globs
from webhook.capacity.view import ClusterView, FixedState
from webhook.engine.bundle import Bundle
from webhook.engine.index import Index, Policy
from webhook.model.decision import Outcome
from webhook.policy.common import MatchSpec, PolicySpec
from webhook.policy.match import Matcher, ResourceRule
from webhook.rules.context import utc_now
from webhook.rules.protocol import PolicyKind
from webhook.runtime.address import Address
from webhook.runtime.limits import Limits
from webhook.runtime.log import configure_logging
from webhook.server.lifecycle import Replica, Stop
from webhook.server.ops.port import OpsPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.model.decision import Violation
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject
    from webhook.runtime.reload import Reloader
    from webhook.server.serve import ServeOptions
    from webhook.server.tls.serving import ServingCertificate

    Judge: TypeAlias = Callable[[Subject, Context], Iterable[Violation]]
    Headers: TypeAlias = dict[str, str]

LOOPBACK = Address("127.0.0.1", 0)
PATIENCE = 60.0
"""Seconds that a test waits for an expected event."""

SHORT = Limits(quiet=0.3, drain=5, finish=1, fresh=20, certificate_poll=0.05, policy_poll=0.1)
"""Limits for tests: short, except the deadlines that a slow test client must meet."""

AUTHORITY, PAIR = self_signed(["localhost"], ["127.0.0.1"], utc_now())


class Rule:
    """A rule that evaluates by a given function."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        return self._judge(subject, context)


def _silent(_: Subject, __: Context) -> Iterable[Violation]:
    return ()


def bundle_of(judge: Judge = _silent, *, fresh_pools: bool = False, name: str = "test-policy") -> Bundle:
    """Return a bundle of one policy that matches everything."""
    policy = Policy(
        name=name,
        kind=PolicyKind(
            name="Test",
            spec=PolicySpec,
            compile=lambda *_: None,
            rules=lambda _: (),
            unknown_outcome=Outcome.DENY,
            fresh_pools=fresh_pools,
        ),
        enforcement=Outcome.DENY,
        rules=(ResourceRule(api_groups=("*",), resources=("*",), operations=("*",)),),
        exclude=(),
        matcher=Matcher(MatchSpec()),
        exemptions=(),
        break_glass=Globs(()),
        controller_denies=True,
        mutator=None,
        validator=Rule(judge),
    )
    bundle = Bundle(index=Index([policy], (), {}, "spotgate-system"), documents=())
    vars(bundle)["hash"] = name
    return bundle


class Known(FixedState):
    """A cluster without node pools."""

    def __init__(self) -> None:
        super().__init__(ClusterView(pools=()))


class Slow(Known):
    """A cluster whose fresh state arrives when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)
        self.open = asyncio.Event()

    async def fresh(self) -> ClusterView:
        self.asked.release()
        await self.open.wait()
        return self.view()


def review(**changes: Any) -> bytes:
    """Return a review of a Pod's creation; `changes` updates its request, and None removes a field."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web-0",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "anna@example.com", "groups": ["system:authenticated"]},
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "team-a"},
            "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
        },
        "oldObject": None,
        **changes,
    }
    request = {key: value for key, value in request.items() if value is not None or key == "oldObject"}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@dataclass
class Answer:
    """A complete HTTP answer."""

    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def allowed(self) -> bool:
        """Return whether the AdmissionReview is allowed."""
        assert self.status == http.HTTPStatus.OK, self
        allowed = self.json["response"]["allowed"]
        assert isinstance(allowed, bool)
        return allowed


class Client:
    """A client of a server on loopback, for the TLS port and the operators' port."""

    def __init__(self, port: int, ops_port: int, authority: bytes = AUTHORITY) -> None:
        self.port = port
        self.ops_port = ops_port
        self.tls = ssl.create_default_context(cadata=authority.decode())

    def connection(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """Return a connection for several requests from a loopback address; the caller closes it."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self.tls, timeout=PATIENCE, source_address=(source, 0)
        )

    def plain_socket(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a TCP connection to the TLS port, from a loopback address."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE, source_address=(source, 0))

    def socket(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        """Return a TLS connection."""
        return self.tls.wrap_socket(self.plain_socket(source), server_hostname="127.0.0.1")

    def post(
        self,
        body: bytes | Iterable[bytes] | None = None,
        path: str = "/validate?timeout=10s",
        *,
        method: str = "POST",
        headers: Headers | None = None,
        over: http.client.HTTPSConnection | None = None,
    ) -> Answer:
        """Send a review over a new or a given connection. Send an iterable in chunks."""
        connection = over or self.connection()
        try:
            connection.request(
                method,
                path,
                body=review() if body is None else body,
                headers={"Content-Type": "application/json", **(headers or {})},
                encode_chunked=body is not None and not isinstance(body, bytes),
            )
            return read_answer(connection.getresponse())
        finally:
            if over is None:
                connection.close()

    def ops(self, path: str) -> Answer:
        """Send a request to the operators' port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ops_port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            return read_answer(connection.getresponse())
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        answer = self.ops("/metrics")
        assert answer.status == http.HTTPStatus.OK, answer
        return sum(
            sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def read_answer(response: http.client.HTTPResponse) -> Answer:
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def eventually(what: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


class Served(Client):
    """A replica in a thread, on the same event loop as in production."""

    def __init__(
        self, reloader: Reloader, certificate: ServingCertificate, limits: Limits, callers: frozenset[str]
    ) -> None:
        self._callers = callers
        self._log = io.BytesIO()
        configure_logging(self._log)
        listener, ops_listener = LOOPBACK.bind(), LOOPBACK.bind()
        super().__init__(listener.getsockname()[1], ops_listener.getsockname()[1])
        self.reloader = reloader
        self.certificate = certificate
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: uvloop.run(self._serve(listener, ops_listener, limits)), daemon=True
        )
        self._thread.start()
        assert self._started.wait(PATIENCE)

    async def _serve(self, listener: socket.socket, ops_listener: socket.socket, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = Stop()
        self.replica = Replica(listener, self.certificate, self.reloader, limits, callers=self._callers)
        ops = OpsPort(self.replica)
        runner = await ops.start(ops_listener)
        self.loop.call_soon(self._started.set)
        await self.replica.run(self._stop)
        await runner.cleanup()

    def stop(self, *, gracefully: bool = False) -> None:
        """Request the shutdown."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop.wanted.set if gracefully else self._stop.skip_drain)

    def wait(self) -> None:
        """Wait for the end of the shutdown."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def log(self, event: str) -> list[dict[str, Any]]:
        """Return the log's lines about an event, so far."""
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    def text_of_log(self) -> str:
        return self._log.getvalue().decode()


class Process(Client):
    """`spotgate serve` as a process."""

    def __init__(self, options: ServeOptions, log: Path, *, ready: bool = True) -> None:
        code = f"""
from pathlib import PosixPath
from webhook.runtime.address import Address
from webhook.runtime.limits import Limits
from webhook.server.serve import ServeOptions, serve
raise SystemExit(serve({options!r}))"""
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdout=output, stderr=subprocess.PIPE, start_new_session=True
            )
        try:
            self._listens()
            if ready:
                eventually(lambda: self.ops("/readyz").status == http.HTTPStatus.OK)
        except BaseException:
            self.end()
            raise

    def _listens(self) -> None:
        """Wait until the process listens, and read its ports."""
        eventually(lambda: bool(self.log("listening")) or self.process.poll() is not None)
        assert self.process.poll() is None, self.errors()
        ports = self.log("listening")[0]
        authority = base64.b64decode(self.log("self-signed certificate created")[0]["ca_bundle"])
        super().__init__(ports["port"], ports["ops_port"], authority)

    def log(self, event: str) -> list[dict[str, Any]]:
        """Return the log's lines about an event, so far."""
        whole = self._log.read_bytes().rpartition(b"\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == event]

    def errors(self) -> str:
        """Return the standard error of the finished process."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def peak_memory(self) -> int:
        """Return the peak memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def end(self) -> None:
        """End the process in any state."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.stderr is not None
        self.process.stderr.close()


def write_policy(folder: Path, domain: str = "reserved.example.com") -> None:
    """Write a policy that denies labels in a domain."""
    folder.mkdir(exist_ok=True)
    put(
        folder / "policy.yaml",
        f"""\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: reserved}}
spec: {{enforcement: deny, domains: [{domain}]}}
""",
    )


def put(file: Path, text: str) -> None:
    """Write a watched file atomically: a reader that sees it empty first counts two changes."""
    written = file.parent.parent / f".{file.name}"  # outside the watched folder
    written.write_text(text)
    written.replace(file)


def labelled(domain: str = "reserved.example.com") -> bytes:
    """Return a review of a Pod that the policy denies."""
    metadata = {"name": "web-0", "namespace": "team-a", "labels": {f"{domain}/x": "1"}}
    return review(object={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
