"""Read what the checks look at once: Deployment, Pods and what these say, policies, and the cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from webhook.cluster.api import ApiError
from webhook.cluster.resources import read_cluster
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.offline.options import SHIPPED_WORD
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api
    from webhook.engine.bundle import Bundle

State: TypeAlias = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check: what is so, in one line, and how to fix it, if that is needed."""

    name: str
    state: State
    what: str
    fix: str = ""

    @classmethod
    def of(cls, name: str, wrong: str, fix: str, fine: str, state: State = "fail") -> Diagnosis:
        """Return what is wrong and how to fix it, or what is fine if nothing is wrong."""
        return cls(name, state, wrong, fix) if wrong else cls(name, "ok", fine)


JSON = dict[str, Any]

SECONDS: Final = 10.0
"""For each answer of the API server."""

INSTALL: Final = "install it (docs/install.md), or name another --namespace"

_ALLOW_PROXY: Final = "allow `get` on pods/proxy in spotgate's namespace"

_NO_ROUTE: Final = ("connection refused", "no route to host", "unreachable")
"""What the API server says of an address where nothing is. A NetworkPolicy drops packets: the call times out."""

_NOTHING_THERE: Final = (
    "nothing listens at that address, or the API server has no route to it: in a local cluster whose Pods are only "
    "simulated it is so; else see its log, and the network of the control plane"
)
_OPEN_PORT: Final = (
    "let the API server reach port ops: add its addresses to NetworkPolicy spotgate (docs/install.md, who may connect)"
)

_GO_ON: Final = "replicas go on with the last good ones: mend it"


class ReplicaVersion(msgspec.Struct):
    """The answer of a replica's /version, as far as doctor reads it."""

    version: str
    bundle: str
    certificate: str


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A replica.

    Attributes:
        waits: why it does not run, as the kubelet or the scheduler says; empty: it runs, or that is unknown.
        version: what its operators' port says of it; None: that can't be reached, and ``problem`` says why.
        metrics: the lines of its /metrics.
        skew: seconds that its clock is ahead of this machine's.
    """

    name: str
    node: str
    ready: bool
    waits: str = ""
    version: ReplicaVersion | None = None
    metrics: str = ""
    skew: float = 0.0
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installation.

    Attributes:
        skew: seconds that the API server's clock is ahead of this machine's.
        groups: the API groups that the API server serves.
        replicas: Pods of the Deployment that are not stopping.
        bundle: the policies that the Deployment names; None if they can't be loaded.
        loaded: the result of loading them.
        unread: what of the cluster can't be read.
    """

    api: Api
    namespace: str
    skew: float
    groups: frozenset[str]
    deployment: JSON | None
    replicas: tuple[ServingPod, ...]
    bundle: Bundle | None
    loaded: Diagnosis
    view: ClusterView
    unread: tuple[str, ...]

    def secret(self) -> tuple[str, str]:
        """Return the namespace and name of the Secret with the certificate; empty names if the Deployment has none."""
        if self.deployment is None:
            return "", ""
        spec = self.deployment["spec"]["template"]["spec"]
        for flag, value in _flags(spec):
            if flag == "--tls-secret":
                namespace, _, name = value.partition("/")
                return namespace.replace("$(POD_NAMESPACE)", self.namespace), name
        names = [volume["secret"]["secretName"] for volume in spec.get("volumes", ()) if "secret" in volume]
        return (self.namespace, names[0]) if names else ("", "")

    @property
    def self_managed(self) -> bool:
        """Return whether the replicas manage their certificates."""
        return "--tls-secret=" in str(self.deployment)


def _flags(spec: JSON) -> Iterator[tuple[str, str]]:
    """Yield flag and value of each argument of a Pod's containers."""
    for container in spec["containers"]:
        for argument in container.get("args", ()):
            flag, _, value = argument.partition("=")
            yield flag, value


async def read(api: Api, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return an object of the API server, or None if there is none. Raise ApiError if it can't be read."""
    return await api.find(path, dict, SECONDS)


async def read_text(api: Api, path: str) -> tuple[str, float]:
    """Return a text, and the seconds that the clock of its server is ahead. Raise ApiError."""
    before = time.time()
    async with api.get(path, aiohttp.ClientTimeout(total=SECONDS), "*/*") as response:
        text = await response.text()
        date = response.headers.get("Date", "")
    after = time.time()
    try:
        answered = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return text, 0.0
    # A Date header has no fractions, and was written at some moment between the two.
    return text, min(answered + 1 - before, 0.0) or max(answered - after, 0.0)


def samples(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of each sample of a metric."""
    # An API server's metrics are 10 MB: only the lines of this metric are parsed.
    lines = "\n".join(line for line in text.splitlines() if line.startswith(name))
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


async def read_installation(api: Api, namespace: str) -> Installed:
    """Read what the checks need. Raise ApiError if the API server does not answer, or refuses all of it."""
    _, skew = await read_text(api, "/version")
    listed = await read(api, "/apis") or {"groups": []}
    deployment = await read(api, f"/apis/apps/v1/namespaces/{namespace}/deployments/spotgate")
    pods = await read(api, f"/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io/name%3Dspotgate")
    running = [pod for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]]
    bundle, loaded = await _read_policies(api, namespace, deployment)
    providers = (bundle or load_bundle(own_namespace=namespace)).providers
    replicas, reading = await asyncio.gather(
        asyncio.gather(*map(partial(_replica, api), running)),
        read_cluster(api, providers, budgets=False, seconds=SECONDS),
    )
    return Installed(
        api=api,
        namespace=namespace,
        skew=skew,
        groups=frozenset({"", *(group["name"] for group in listed["groups"])}),
        deployment=deployment,
        replicas=tuple(replicas),
        bundle=bundle,
        loaded=loaded,
        view=reading.view,
        unread=reading.problems,
    )


async def _read_policies(api: Api, namespace: str, deployment: JSON | None) -> tuple[Bundle | None, Diagnosis]:
    """Read the policies that the Deployment names, and load them."""
    if deployment is None:
        what = f"there is no Deployment spotgate in namespace {namespace} that would name policies"
        return None, Diagnosis("policies", "fail", what, INSTALL)
    spec = deployment["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in spec.get("volumes", ())}
    mounts = spec["containers"][0].get("volumeMounts", ())
    mounted = {mount["mountPath"]: volumes.get(mount["name"]) for mount in mounts}
    files: dict[str, Mapping[str, str]] = {}
    for path in (value for flag, value in _flags(spec) if flag == "--policies"):
        if path == SHIPPED_WORD:
            files[path] = {}
            continue
        name = mounted.get(path)
        where = f"policies in {path}: ConfigMap {namespace}/{name}"
        if name is None:
            what = f"policies in {path}: the Deployment mounts no ConfigMap there"
            return None, Diagnosis("policies", "fail", what, _GO_ON)
        try:
            stored = await read(api, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        except ApiError as error:
            fix = "use credentials that may read it; this says nothing about the installation"
            return None, Diagnosis("policies", "unknown", f"{where} can't be read: {error}", fix)
        if stored is None:
            return None, Diagnosis("policies", "fail", f"{where} does not exist", _GO_ON)
        files[path] = stored.get("data", {})
    return _load(files, namespace)


def _load(files: Mapping[str, Mapping[str, str]], namespace: str) -> tuple[Bundle | None, Diagnosis]:
    """Load policies from the contents of their folders."""
    paths = []
    with TemporaryDirectory(prefix="spotgate-") as root:
        for path, contents in files.items():
            folder = SHIPPED if path == SHIPPED_WORD else Path(root, path.strip("/"))
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in contents.items():
                (folder / name).write_text(text)
            paths.append(folder)
        try:
            bundle = load_bundle(paths, own_namespace=namespace)
        except PolicyErrors as errors:
            what = f"the policies are invalid: {str(errors).splitlines()[0].replace(f'{root}/', '/')}"
            return None, Diagnosis("policies", "fail", what, _GO_ON)
    return bundle, Diagnosis("policies", "ok", f"{len(bundle.policies)} in force, bundle {bundle.hash}")


async def _replica(api: Api, pod: JSON) -> ServingPod:
    metadata, spec = pod["metadata"], pod["spec"]
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    name = metadata["name"]
    replica = ServingPod(name, spec.get("nodeName", ""), ready, _waits(pod))
    ports = [port for container in spec["containers"] for port in container.get("ports", ())]
    number = next((port["containerPort"] for port in ports if port.get("name") == "ops"), 8080)
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{name}:{number}/proxy"
    try:
        version, skew = await read_text(api, f"{path}/version")
        metrics, _ = await read_text(api, f"{path}/metrics")
        return replace(replica, version=msgspec.json.decode(version, type=ReplicaVersion), metrics=metrics, skew=skew)
    except ApiError as error:
        if replica.waits:  # the fix for that is enough
            return replace(replica, problem="it does not run")
        fix = _NOTHING_THERE if any(text in str(error) for text in _NO_ROUTE) else _OPEN_PORT
        fix = _ALLOW_PROXY if error.status == HTTPStatus.FORBIDDEN else fix
        return replace(replica, problem=str(error), fix=fix)
    except msgspec.MsgspecError as error:
        problem = f"/version of another version of spotgate: {error}"
        return replace(replica, problem=problem, fix="use the same version of both")


def _waits(pod: JSON) -> str:
    """Return why a Pod does not run: what its container waits for, or why no Node takes it."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            return f"{waiting.get('reason', 'waiting')}: image {pod['spec']['containers'][0]['image']}"
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", "not scheduled"))
    return ""
