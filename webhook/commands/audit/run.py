"""Evaluate the objects of a live cluster. Read them slowly, page by page; never read Secrets or ConfigMaps."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.exits import CannotJudgeError
from webhook.cluster.api import JSON_TYPE, Api, ApiError
from webhook.cluster.discovery import ServedResource, served_resources
from webhook.cluster.resources import read_cluster
from webhook.cluster.source import METADATA_LIST, PAGE_SECONDS, pages
from webhook.commands.audit.on_spot import OnSpot
from webhook.documents import Document
from webhook.inputs.objects import Identity, Manifest
from webhook.judging.judge import Judge
from webhook.judging.kinds import ResourceKinds
from webhook.judging.session import Judged
from webhook.kube.affinity import Tristate
from webhook.kube.pod import ObjectMeta
from webhook.model.review import UserInfo
from webhook.policy.errors import Problem
from webhook.report.report import ObjectReport, object_reports
from webhook.rules.context import ASSUMED_VERSION, Context, Phase, utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Index

_APART: Final = 0.05
"""Seconds between the starts of two requests: 20 a second, less than half of kubectl's limit."""

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds before each retry. After the last one, the request fails."""

_PASSING: Final = frozenset({0, 429, 500, 502, 503, 504})
"""Status codes to retry; 0 means no response."""

_NEVER: Final = frozenset({("", "secrets"), ("", "configmaps")})
"""Resources that audit never reads, even if a policy matches them: listing them returns their contents."""

_FIRST: Final = (("", "pods"), ("apps", "replicasets"), ("batch", "jobs"))
"""Resources to read before the others: Pods show where workloads run, and the owners of these two come later."""

PODS: Final = ("", "pods")
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Reader:
    """A rate-limited reader of an API server: sends one request at a time, and retries transient failures."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._last = 0.0

    async def fetch(self, path: str, accept: str = JSON_TYPE) -> bytes:
        """Return the body of a GET response. Raise ApiError."""
        pauses = iter(_PAUSES)
        while True:
            await asyncio.sleep(max(0.0, self._last + _APART - monotonic()))
            self._last = monotonic()
            try:
                return await self._api.read(path, PAGE_SECONDS, accept)
            except ApiError as error:
                pause = next(pauses, None)
                if pause is None or error.status not in _PASSING:
                    raise
            await asyncio.sleep(pause)

    async def objects(self, listed: Listed, namespaces: Iterable[str]) -> AsyncIterator[list[msgspec.Raw]]:
        """Yield the objects of a resource, one page at a time. Without namespaces, read all. Raise ApiError."""
        served = listed.served
        accept = METADATA_LIST if listed.metadata_only else JSON_TYPE
        query = {"fieldSelector": _RUNNING} if listed.key == PODS else {}
        for namespace in namespaces or ("",):
            try:
                path = served.path_in(namespace)
                async for page in pages(lambda url: self.fetch(url, accept), path, query, renew=True):
                    yield page.items or []
            except msgspec.MsgspecError as error:
                raise ApiError(f"the API server's answer is malformed: {error}") from error


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A resource to list, as whole objects or as metadata only. ``workload``: policies evaluate its pod templates."""

    served: ServedResource
    workload: bool
    metadata_only: bool

    @property
    def key(self) -> tuple[str, str]:
        """Return the API group and the plural."""
        return self.served.resource.group, self.served.resource.plural


def listed_resources(index: Index, served: Iterable[ServedResource], *, cluster_scoped: bool) -> list[Listed]:
    """Return the resources that a policy evaluates on CREATE, in reading order."""
    order = {key: number for number, key in enumerate(_FIRST)}
    resources: list[Listed] = []
    for kind in served:
        key = kind.resource.group, kind.resource.plural
        if "list" not in kind.verbs or key in _NEVER or not (kind.resource.namespaced or cluster_scoped):
            continue
        route = index.route_of(Phase.VALIDATE, "CREATE", *key)
        if route is None or not (route.direct or route.projected):
            continue
        any_size = all(policy.kind.any_size for policy in route.direct)
        whole = bool(route.projected) or key in index.pools or key == PODS or not any_size
        resources.append(Listed(served=kind, workload=bool(route.projected), metadata_only=not whole))
    return sorted(resources, key=lambda listed: (order.get(listed.key, len(_FIRST)), listed.key))


_NAMESPACES: Final = ("", "namespaces")


async def audit(api: Api, bundle: Bundle, namespaces: Sequence[str]) -> Audited:
    """Evaluate every object of the cluster that a policy matches, as if it were created now.

    Without ``namespaces``, evaluate all namespaces and the cluster-scoped objects. Raise ApiError if the API server
    doesn't respond or rejects the credentials, and CannotJudgeError if a namespace doesn't exist.
    """
    view, errors = await read_cluster(api, bundle.providers, budgets=True, seconds=PAGE_SECONDS)
    if view.namespaces and (missing := next((name for name in namespaces if name not in view.namespaces), "")):
        raise CannotJudgeError(f"error: -n {missing}: {api.url} has no such namespace")
    reader = Reader(api)
    served = await served_resources(reader.fetch)
    listed = listed_resources(bundle.index, served, cluster_scoped=not namespaces)
    audited = Audited(bundle, view, listed, served)
    for resource in listed:
        try:
            async for page in reader.objects(resource, namespaces):
                audited.take(resource, page)
        except ApiError as error:
            errors[resource.key] = error
    audited.problems += [Problem(api.url, 0, 0, "", sentence) for sentence in errors.sentences]
    audited.forbidden = errors.forbidden
    return audited


class _Metadata(ObjectMeta):
    deletionTimestamp: str | None = None


class _Spec(msgspec.Struct):
    nodeName: str | None = None


class _Head(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class Audited:
    """The result of an audit, collected one page at a time.

    Attributes:
        judged: the number of evaluated objects.
        objects: the objects with findings.
        on_spot: the workloads on spot Nodes.
        problems: the resources and objects that can't be read or evaluated.
        forbidden: the API group and plural of each resource that the credentials can't list.
        served: the resources that the API server serves.
    """

    def __init__(
        self, bundle: Bundle, view: ClusterView, listed: Iterable[Listed], served: Sequence[ServedResource]
    ) -> None:
        context = Context(phase=Phase.VALIDATE, now=utc_now()).seeing(view, ASSUMED_VERSION)
        kinds = ResourceKinds(bundle, (), [resource.served.resource for resource in listed])
        self._judge = Judge(bundle.index, kinds, context, operation="CREATE", user=UserInfo())
        self._bundle = bundle
        self._view = view
        self._workloads = {(item.served.resource.group, item.served.resource.kind) for item in listed if item.workload}
        self.judged = 0
        self.objects: list[ObjectReport] = []
        self.on_spot = OnSpot(bundle, view, self._judge)
        self.problems: list[Problem] = []
        self.forbidden: list[tuple[str, str]] = []
        self.served = served

    def take(self, listed: Listed, raws: Iterable[msgspec.Raw]) -> None:
        """Evaluate one page of objects."""
        judged = [pair for raw in raws if (pair := self._take(listed, raw)) is not None]
        self.judged += len(judged)
        self.problems += [judgement.problem for _, judgement in judged if judgement.problem is not None]
        reports = object_reports(Judged(self._bundle, judged, [], 0, self._view))
        self.objects += [report for report in reports if report.results]

    def _take(self, listed: Listed, raw: msgspec.Raw) -> tuple[Manifest, Any] | None:
        """Evaluate an object. Return None if it is terminating, a system namespace, or evaluated with its owner."""
        is_pod = listed.key == PODS
        head = msgspec.json.decode(raw, type=_Head)
        resource, metadata = listed.served.resource, head.metadata
        system = self._bundle.index.system_namespaces
        is_system = listed.key == _NAMESPACES and system.contains(metadata.name, self._view) is Tristate.YES
        if metadata.deletionTimestamp is not None or is_system:
            return None
        identity: Identity = (resource.group, resource.kind, metadata.namespace, metadata.name)
        owner = metadata.controller
        if is_pod:
            node = msgspec.json.decode(head.spec, type=_Spec).nodeName or ""
            self.on_spot.take_pod(identity, owner, node, raw)
        if owner is not None and (owner.group, owner.kind) in self._workloads:
            if not is_pod:
                self.on_spot.pass_on(identity, owner)
            return None
        manifest = _as_new(listed, metadata, raw)
        if listed.key == _NAMESPACES:
            labels = manifest.value["metadata"].get("labels") or {}
            for provider in self._bundle.providers.values():
                for label in provider.system_namespaces.labels:  # providers set them on users' namespaces, too
                    labels.pop(label.key, None)
        judgement = self._judge.judge(manifest)
        self.on_spot.take_object(identity, manifest, judgement.findings)
        return manifest, replace(judgement, patch=())


def _as_new(listed: Listed, metadata: _Metadata, raw: msgspec.Raw) -> Manifest:
    """Return the object as a user would create it now: without status, managedFields, and nodeName."""
    kind = listed.served.resource.kind
    value: dict[str, Any] = {**msgspec.json.decode(raw), "apiVersion": listed.served.api_version, "kind": kind}
    value.pop("status", None)
    value["metadata"].pop("managedFields", None)
    if listed.key == PODS:
        value["spec"].pop("nodeName", None)
    place = "/".join(filter(None, (kind, metadata.namespace, metadata.name)))
    return Manifest(Document(place, 0, value), (), listed.served.api_version, kind, value)
