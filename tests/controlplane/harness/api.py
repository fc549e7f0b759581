"""The API server over plain HTTP, as its administrator: unlike kubectl, it returns messages unchanged.

answer = Api(cluster).create("/api/v1/namespaces/team/pods", pod, dry_run=True)
assert (answer.status, answer.warnings) == (201, [])
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import ssl
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.controlplane.harness.kubectl import TIMEOUT_SECONDS
from webhook.rehearse.controlplane.control_plane import POLL_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from webhook.rehearse.controlplane.control_plane import ControlPlane

NODE_POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
# RFC 7234: code, agent, text in quotes
WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')


def pods_in(namespace: str) -> str:
    """Return the path of a namespace's Pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


class RefusedError(Exception):
    """A refusal by the API server, with its message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: an object or a Status, and `warnings` without their code."""

    status: int
    body: dict[str, Any]
    warnings: list[str]

    @property
    def message(self) -> str:
        """The reason for a refusal, or an empty string."""
        return "" if self.status < http.client.BAD_REQUEST else str(self.body["message"])

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Api:
    """A client with a connection for each thread, so that threads can share it. Refusals are answers, not exceptions."""

    cluster: ControlPlane

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        dry_run: bool = False,
        content: str = "application/json",
        user: str = "",
    ) -> Answer:
        """Send a request as the administrator, who can impersonate a user."""
        credentials = self.cluster.credentials
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}", "Content-Type": content}
        headers |= {"Impersonate-User": user} if user else {}
        connection = _connection(credentials.url.removeprefix("https://"), credentials.authority)
        try:
            query = "?dryRun=All" if dry_run else ""
            connection.request(method, path + query, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            warnings = WARNING.findall(", ".join(response.headers.get_all("Warning", [])))
            unquoted = [re.sub(r"\\(.)", r"\1", warning) for warning in warnings]
            return Answer(response.status, json.loads(response.read()), unquoted)
        except BaseException:
            connection.close()  # its next response could be the answer to this request
            raise

    def get(self, path: str) -> dict[str, Any]:
        """Return an object or a list. Raise RefusedError."""
        return accepted(self.send("GET", path)).body

    def create(self, path: str, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """POST to a collection."""
        return self.send("POST", path, manifest, dry_run=dry_run)

    def patch(self, path: str, patch: object, *, dry_run: bool = False) -> Answer:
        """PATCH an object: a list is a JSON patch, anything else a merge patch."""
        content = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        return self.send("PATCH", path, patch, dry_run=dry_run, content=content)

    def delete(self, path: str, *, dry_run: bool = False) -> Answer:
        """DELETE an object or a collection."""
        return self.send("DELETE", path, dry_run=dry_run)

    @contextlib.contextmanager
    def created(self, path: str, manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Create an object, yield it as stored, and delete it afterwards. Raise RefusedError."""
        answer = accepted(self.create(path, manifest))
        try:
            yield answer.body
        finally:
            self.delete(f"{path}/{answer.name}")

    @contextlib.contextmanager
    def namespace(self, prefix: str, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yield a namespace that accepts Pods."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        with self.created("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}}):
            self.wait(lambda: self.send("GET", account).status == http.client.OK, f"{name} has a ServiceAccount")
            yield name

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true. Raise TimeoutError with its description."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {START_SECONDS:.0f} s: {what}")
            time.sleep(POLL_SECONDS)


class _Connection(http.client.HTTPSConnection):
    """A connection that closes with its thread."""

    def __del__(self) -> None:
        self.close()


_OF_THREAD = threading.local()


def _connection(address: str, authority: Path) -> _Connection:
    """Return this thread's connection to an API server. A handshake takes both sides longer than most requests."""
    connections: dict[Path, _Connection] = vars(_OF_THREAD).setdefault("connections", {})
    if authority not in connections:
        tls = ssl.create_default_context(cafile=str(authority))
        connections[authority] = _Connection(address, timeout=TIMEOUT_SECONDS, context=tls)
    connection = connections[authority]
    if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
        connection.close()  # the server has closed it; the next request opens it again
    return connection


def accepted(answer: Answer) -> Answer:
    """Return the answer. Raise RefusedError if it is a refusal."""
    if answer.message:
        raise RefusedError(answer.message)
    return answer
