"""The same request to the API server and to `spotgate check`, with answers in a common form."""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import json
import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonpatch
import orjson

from webhook.base.exits import CANNOT_JUDGE
from webhook.commands import main
from webhook.engine.response import respond
from webhook.inputs.objects import DEFAULT_NAMESPACE, read_manifests
from webhook.inputs.state import view_of
from webhook.judging.judge import defaulted
from webhook.kube.resources import resource_of
from webhook.model.decision import Decision, Finding, Outcome
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

TIMEOUT_SECONDS = 30.0
METHODS = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
EVERYBODY = "system:authenticated"
"""The group that the API server adds to every user."""

WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
DENIAL = re.compile(r'admission webhook "[a-z-]+\.spotgate\.dev" denied the request: (.*)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request. The administrator impersonates every other user."""

    user: str
    groups: tuple[str, ...]


ADMINISTRATOR = Identity("admin", ("system:masters",))


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an admitted or denied request.

    Attributes:
        denial: spotgate's reason for a denial, or an empty string.
        warnings: spotgate's warnings, line by line.
        object: the object after the request; None after a denial or a deletion.
    """

    denial: str
    warnings: tuple[str, ...]
    object: JSON | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal that no policy caused: by the API server itself, or by `check` because it can't read the object."""

    message: str


@dataclass(frozen=True, slots=True)
class Server:
    """The API server, over a persistent connection."""

    cluster: Cluster
    connection: http.client.HTTPSConnection
    collections: dict[tuple[str, str], str]
    """Paths of collections by apiVersion and kind, with `{}` for the namespace of namespaced kinds."""

    def ask(
        self, thing: JSON, identity: Identity, operation: str = "CREATE", *, store: bool = False
    ) -> Answer | Refusal:
        """Create, update, or delete an object, in a dry run unless `store`."""
        metadata = thing["metadata"]
        path = self.collections[thing["apiVersion"], thing["kind"]].format(metadata.get("namespace", DEFAULT_NAMESPACE))
        path += "" if operation == "CREATE" else f"/{metadata['name']}"
        query = "?gracePeriodSeconds=0" if store else "?dryRun=All"
        if operation == "UPDATE":
            thing = {**thing, "metadata": {**metadata, "resourceVersion": self._version(thing, path)}}
        status, body, warnings = self.send(METHODS[operation], path + query, thing, identity)
        ours = tuple(warning for warning in warnings if warning.startswith(("[", "  ")))
        if status < http.client.BAD_REQUEST:
            return Answer("", ours, None if operation == "DELETE" else body)
        denial = DENIAL.fullmatch(body["message"])
        return Answer(denial[1], ours, None) if denial else Refusal(body["message"])

    def serves(self, thing: JSON) -> bool:
        """Return whether the API server knows the object's kind."""
        return (thing["apiVersion"], thing["kind"]) in self.collections

    def _version(self, thing: JSON, path: str) -> str:
        """Return the resourceVersion for an update: custom resources require it, other objects don't."""
        if resource_of(thing["apiVersion"].rpartition("/")[0], thing["kind"]) is not None:
            return ""
        version: str = self.send("GET", path, {}, ADMINISTRATOR)[1]["metadata"]["resourceVersion"]
        return version

    def send(self, method: str, path: str, body: JSON, identity: Identity) -> tuple[int, JSON, list[str]]:
        """Send a request, and return the status, the body, and the warnings, line by line."""
        self.connection.putrequest(method, path)
        content = b"" if method in {"DELETE", "GET"} else json.dumps(body).encode()
        headers = [
            ("Authorization", f"Bearer {self.cluster.credentials.tokens['admin']}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(content))),
            ("Impersonate-User", identity.user),
            *(("Impersonate-Group", group) for group in identity.groups),
        ]
        for name, text in headers:
            self.connection.putheader(name, text)
        self.connection.endheaders(content)
        response = self.connection.getresponse()
        warnings = ", ".join(response.headers.get_all("Warning", [])).encode("latin-1").decode()
        lines = [re.sub(r"\\(.)", r"\1", text) for text in WARNING.findall(warnings)]
        return response.status, json.loads(response.read()), lines


@contextlib.contextmanager
def connect(cluster: Cluster) -> Iterator[Server]:
    """Connect to the API server."""
    credentials = cluster.credentials
    tls = ssl.create_default_context(cafile=str(credentials.authority))
    connection = http.client.HTTPSConnection(
        credentials.url.removeprefix("https://"), timeout=TIMEOUT_SECONDS, context=tls
    )
    with contextlib.closing(connection):
        yield Server(cluster, connection, dict(_collections(connection, credentials.tokens["admin"])))


def _collections(connection: http.client.HTTPSConnection, token: str) -> Iterator[tuple[tuple[str, str], str]]:
    for root in ("/api", "/apis"):
        connection.request("GET", root, headers={"Authorization": f"Bearer {token}", "Accept": DISCOVERY})
        for group in json.loads(connection.getresponse().read())["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                api_version = "/".join(filter(None, (name, version["version"])))
                for resource in version["resources"]:
                    middle = "namespaces/{}/" if resource["scope"] == "Namespaced" else ""
                    key = (api_version, resource["responseKind"]["kind"])
                    yield key, f"{root}/{api_version}/{middle}{resource['resource']}"


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict of `check`.

    Attributes:
        answer: the answer that the API server should give.
        written: the object after the patch in the report; None without a patch.
    """

    answer: Answer
    written: JSON | None


@dataclass(frozen=True, slots=True)
class Offline:
    """The command `spotgate check` with these flags.

    Attributes:
        directory: the folder for the objects to check.
        state: the folder with the cluster's state, which `flags` names.
        flags: the flags in addition to those of a request.
    """

    directory: Path
    state: Path
    flags: tuple[str, ...]

    def check(self, thing: JSON, identity: Identity, operation: str = "CREATE") -> Checked | Refusal:
        """Write the object to a file, and check it."""
        file = self.directory / "object.json"
        file.write_text(json.dumps(thing))
        groups = (f"--group={group}" for group in (*identity.groups, EVERYBODY))
        request = (f"--operation={operation}", f"--user={identity.user}", *groups)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["check", str(file), "--output=json", *request, *self.flags])
        if code == CANNOT_JUDGE:
            return Refusal(err.getvalue())
        report = json.loads(out.getvalue())
        findings = tuple(_findings(report))
        assert not [item for item in findings if item.outcome is Outcome.INDETERMINATE], "the state says everything"
        response = orjson.loads(respond("", Decision(findings=findings), Phase.VALIDATE))["response"]
        assert code == (0 if response["allowed"] else 1)
        (written,) = [jsonpatch.apply_patch(thing, patch["patch"]) for patch in report["patches"]] or [None]
        # Only Pods are mutated. The patch of a template is what its Pods will get; the workload stays unchanged.
        stored = written if written is not None and thing["kind"] == "Pod" else thing
        answer = Answer(
            denial=response["status"]["message"] if "status" in response else "",
            warnings=tuple(dict.fromkeys(response.get("warnings", ()))),  # the API server drops duplicates
            object=self.defaulted(stored) if operation != "DELETE" and response["allowed"] else None,
        )
        return Checked(answer, written)

    def defaulted(self, thing: JSON) -> JSON:
        """Return the object with the defaults that `check` fills in."""
        file = self.directory / "defaulted.json"
        file.write_text(json.dumps(thing))
        (manifest,) = read_manifests([file]).objects
        files = tuple((file, file.read_bytes()) for file in sorted(self.state.iterdir()))
        return defaulted(manifest, manifest.namespace, _state_of(files).references)


@functools.lru_cache(maxsize=1)
def _state_of(files: tuple[tuple[Path, bytes], ...]) -> ClusterView:
    """Return the state in these files with this content."""
    return view_of(read_manifests([file for file, _ in files]).objects, {}, complete=True)


def _findings(report: JSON) -> Iterable[Finding]:
    for result in report["results"]:
        said = {key: result[key] for key in ("policy", "id", "reason", "detail", "field", "fix")}
        yield Finding(outcome=Outcome[result["outcome"].upper()], **said)
