"""Read the input of all checks: the Deployment, its Pods, the policies, and the cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from webhook.cluster.api import Api, ApiError
from webhook.cluster.resources import ReadErrors, read_cluster
from webhook.engine.bundle import SHIPPED, Bundle, load_bundle
from webhook.inputs.policies import SHIPPED_WORD
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.view import ClusterView

State: TypeAlias = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check in one line, with the fix for a problem."""

    name: str
    state: State
    what: str
    fix: str = ""

    @classmethod
    def of(cls, name: str, wrong: str, fix: str, fine: str, state: State = "fail") -> Diagnosis:
        """Return a diagnosis of the problem ``wrong`` with its fix, or of ``fine`` if there is no problem."""
        return cls(name, state, wrong, fix) if wrong else cls(name, "ok", fine)


JSON = dict[str, Any]

SECONDS: Final = 10.0
"""The timeout of each request to the API server."""

INSTALL: Final = "install it (docs/install.md), or name another --namespace"

_ALLOW_PROXY: Final = "allow `get` on pods/proxy in spotgate's namespace"
NODES: Final = ("", "nodes")
_NO_ROUTE: Final = ("connection refused", "no route to host", "unreachable")
"""What the API server reports if nothing listens at an address. A NetworkPolicy drops packets: the call times out."""

_NOTHING_THERE: Final = (
    "nothing listens at that address, or the API server has no route to it, as in a local cluster that only "
    "simulates Pods; see the replica's log, and the network of the control plane"
)
_OPEN_PORT: Final = (
    "let the API server reach port ops: add its addresses to NetworkPolicy spotgate (docs/install.md, who may connect)"
)
_GO_ON: Final = "correct it; until then, replicas use the last valid policies"


class ReplicaVersion(msgspec.Struct):
    """The part of a replica's /version that doctor reads."""

    version: str = ""
    bundle: str = ""
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A replica.

    Attributes:
        waits: why the replica does not run, from the kubelet or the scheduler; empty if it runs or this is unknown.
        version: the response of /version on its operators' port; None if unreachable, with the reason in ``problem``.
        metrics: the lines of its /metrics.
        skew: how many seconds its clock is ahead of this machine's.
    """

    name: str
    node: str
    ready: bool
    waits: str
    version: ReplicaVersion | None = None
    metrics: str = ""
    skew: float = 0.0
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installation.

    Attributes:
        skew: how many seconds the API server's clock is ahead of this machine's.
        groups: the API groups that the API server serves.
        replicas: the Pods of the Deployment that aren't terminating.
        bundle: the policies that the Deployment names; None if they can't be loaded.
        loaded: the result of loading the policies.
        unread: why parts of the cluster, and so of ``view``, can't be read.
        secret: the namespace and name of the Secret with the certificate; empty if the Deployment names none.
        self_managed: whether the replicas manage the certificates.
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
    unread: ReadErrors
    secret: tuple[str, str]
    self_managed: bool


async def read(api: Api, path: str) -> Any:
    """Return an object from the API server, or None if it doesn't exist. Raise ApiError if it can't be read."""
    return await api.find(path, dict, SECONDS)


async def read_text(api: Api, path: str) -> tuple[str, float]:
    """Return a text response, and how many seconds the server's clock is ahead. Raise ApiError."""
    before = time.time()
    async with api.get(path, aiohttp.ClientTimeout(total=SECONDS), "*/*") as response:
        text = await response.text()
    middle = (before + time.time()) / 2
    date = response.headers.get("Date")
    return text, parsedate_to_datetime(date).timestamp() - middle if date else 0.0


def samples(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the labels and value of each sample of a metric."""
    # An API server's metrics are 10 MB, so parse only the lines of this metric.
    lines = "\n".join(line for line in text.splitlines() if line.startswith(name))
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


async def read_installation(api: Api, namespace: str) -> Installed:
    """Read the input of the checks. Raise ApiError if the API server doesn't respond or refuses every request."""
    _, skew = await read_text(api, "/version")
    listed = await read(api, "/apis") or {"groups": []}
    deployment = await read(api, f"/apis/apps/v1/namespaces/{namespace}/deployments/spotgate")
    pods = await read(api, f"/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io/name%3Dspotgate")
    running = [pod for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]]
    spec = deployment["spec"]["template"]["spec"] if deployment is not None else {}
    bundle, loaded = await _read_policies(api, namespace, spec)
    providers = (bundle or load_bundle(own_namespace=namespace)).providers
    replicas, (view, unread) = await asyncio.gather(
        asyncio.gather(*map(partial(_replica, api), running)),
        read_cluster(api, providers, budgets=False, seconds=SECONDS),
    )
    managed = [secret.replace("$(POD_NAMESPACE)", namespace) for secret in _flag(spec, "--tls-secret")]
    mounted = [f"{namespace}/{mount['secret']['secretName']}" for mount in spec.get("volumes", ()) if "secret" in mount]
    secret, _, name = next(iter((*managed, *mounted)), "").partition("/")
    return Installed(
        api=api,
        namespace=namespace,
        skew=skew,
        groups=frozenset({"", *(group["name"] for group in listed["groups"])}),
        deployment=deployment,
        replicas=tuple(replicas),
        bundle=bundle,
        loaded=loaded,
        view=view,
        unread=unread,
        secret=(secret, name),
        self_managed=bool(managed),
    )


def _flag(spec: JSON, flag: str) -> list[str]:
    """Return the values of a flag of a Pod's containers."""
    arguments = [argument for container in spec.get("containers", ()) for argument in container.get("args", ())]
    return [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{flag}=")]


async def _read_policies(api: Api, namespace: str, spec: JSON) -> tuple[Bundle | None, Diagnosis]:
    """Load the policies of the Deployment from the ConfigMaps that its Pods mount."""
    if not spec:
        what = f"there is no Deployment spotgate in namespace {namespace} to name policies"
        return None, Diagnosis("policies", "fail", what, INSTALL)
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in spec.get("volumes", ())}
    mounts = spec["containers"][0].get("volumeMounts", ())
    mounted = {mount["mountPath"]: volumes.get(mount["name"]) for mount in mounts}
    folders = []
    with TemporaryDirectory(prefix="spotgate-") as root:
        for path in _flag(spec, "--policies"):
            if path == SHIPPED_WORD:
                folders.append(SHIPPED)
                continue
            name = mounted.get(path)
            where = f"policies in {path}: ConfigMap {namespace}/{name or '(none is mounted)'}"
            try:
                stored = await read(api, f"/api/v1/namespaces/{namespace}/configmaps/{name}") if name else None
            except ApiError as error:
                fix = "use credentials that may read it; this says nothing about the installation"
                return None, Diagnosis("policies", "unknown", f"{where} can't be read: {error}", fix)
            if stored is None:
                return None, Diagnosis("policies", "fail", f"{where} does not exist", _GO_ON)
            folders.append(Path(root, path.strip("/")))
            folders[-1].mkdir(parents=True)
            for file, text in stored.get("data", {}).items():
                (folders[-1] / file).write_text(text)
        try:
            bundle = load_bundle(folders, own_namespace=namespace)
        except PolicyErrors as errors:
            first = msgspec.structs.replace(errors.problems[0], file=errors.problems[0].file.removeprefix(root))
            what = f"the policies are invalid: {first}"
            return None, Diagnosis("policies", "fail", what, _GO_ON)
    return bundle, Diagnosis("policies", "ok", f"{len(bundle.policies)} in force, bundle {bundle.hash}")


async def _replica(api: Api, pod: JSON) -> ServingPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    ready = conditions.get("Ready", {}).get("status") == "True"
    name = metadata["name"]
    replica = partial(ServingPod, name, spec.get("nodeName", ""), ready, _waits(spec, status, conditions))
    ports = [port for container in spec["containers"] for port in container.get("ports", ())]
    number = next((port["containerPort"] for port in ports if port.get("name") == "ops"), 8080)
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{name}:{number}/proxy"
    try:
        version, skew = await read_text(api, f"{path}/version")
        metrics, _ = await read_text(api, f"{path}/metrics")
        return replica(version=msgspec.json.decode(version, type=ReplicaVersion), metrics=metrics, skew=skew)
    except ApiError as error:
        fix = _NOTHING_THERE if error.mentions(*_NO_ROUTE) else _OPEN_PORT
        fix = _ALLOW_PROXY if error.status == HTTPStatus.FORBIDDEN else fix
        return replica(problem=str(error), fix=fix)
    except msgspec.MsgspecError as error:
        problem = f"/version of another version of spotgate: {error}"
        return replica(problem=problem, fix="use the same version of both")


def _waits(spec: JSON, status: JSON, conditions: Mapping[str, JSON]) -> str:
    """Return why a Pod doesn't run: the waiting reason of its container, or the scheduler's message."""
    for container in status.get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            return f"{waiting.get('reason', 'waiting')}: image {spec['containers'][0]['image']}"
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message", "not scheduled")) if scheduled.get("status") == "False" else ""
