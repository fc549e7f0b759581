"""The admission of a Kubernetes API server: set defaults, call /mutate, apply the patch, and call /validate.

It omits the built-in admission plugins, which add a priority and the service account's token.
"""

from __future__ import annotations

import base64
import copy
import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import yaml

from webhook.base.field_paths import field_path, parse_pointer
from webhook.kube.defaults import default_object, default_pod, default_tolerations, drop_nulls
from webhook.kube.resources import Resource, resource_of
from webhook.kube.templates import TemplatePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.served import Webhook
    from webhook.base.field_paths import FieldPath

Object = dict[str, Any]

NODE_POOL: Final = Resource("compute.coreweave.com", "NodePool", "nodepools", namespaced=False)
RAY_CLUSTER: Final = Resource("ray.io", "RayCluster", "rayclusters", namespaced=True)
_CUSTOM: Final = {(resource.group, resource.kind): resource for resource in (NODE_POOL, RAY_CLUSTER)}
_SUFFIX: Final = "x7k2p"
"""The suffix that the API server appends to a generateName."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The user who sends a request."""

    name: str
    groups: tuple[str, ...] = ()


ENGINEER: Final = User(name="maya@acme.example", groups=("acme:ml-platform",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the API server. ``object`` is the object to create or delete."""

    operation: str
    object: Object
    user: User = ENGINEER

    @property
    def resource(self) -> Resource:
        """The resource of the object."""
        group = self.object["apiVersion"].rpartition("/")[0]
        kind = self.object["kind"]
        return resource_of(group, kind) or _CUSTOM[group, kind]

    def described(self) -> str:
        """Return the name of the object as kubectl prints it: ``deployment.apps/web``."""
        metadata = self.object["metadata"]
        kind = f"{self.resource.kind.lower()}.{self.resource.group}".rstrip(".")
        return f"{kind}/{metadata.get('name') or metadata['generateName'] + _SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field that the mutating webhook changed. ``before`` is None for a new field."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer to a request.

    Attributes:
        object: the object to store.
        called: whether the API server called a webhook.
        denied_by: the name of the webhook that denied the request, or an empty string.
    """

    object: Object
    called: bool = False
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    denied_by: str = ""
    reason: str = ""
    message: str = ""


class ApiServer:
    """An API server with the webhook configurations that ``spotgate webhook-config`` prints."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        configurations = yaml.safe_load_all(webhook.configurations())
        self._entries = [entry for configuration in configurations for entry in configuration["webhooks"]]

    def admit(self, request: Request) -> Answer:
        """Admit or deny a request."""
        answer = self._call("/mutate", request, Answer(object=_decoded(request)))
        if answer.denied_by:
            return answer
        metadata = answer.object["metadata"]
        metadata["uid"] = str(uuid.uuid4())
        if not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + _SUFFIX
        return self._call("/validate", request, answer)

    def _call(self, path: str, request: Request, answer: Answer) -> Answer:
        """Call the first webhook whose rules match. With selectors and conditions, at most one webhook matches."""
        for entry in self._entries:
            if entry["clientConfig"]["service"]["path"] == path and _names(entry, request):
                response = self.webhook.ask(path, review(replace(request, object=answer.object)))
                return _answered(answer, entry["name"], response)
        return answer


def _names(entry: Object, request: Request) -> bool:
    """Return whether a rule of the webhook matches the request, and no condition excludes a controller's Pod.

    Ignores the other conditions and the selectors, which exclude no example.
    """
    resource = request.resource
    excluded = {condition["name"]: condition["expression"] for condition in entry.get("matchConditions", ())}
    if resource.plural == "pods" and f"'{request.user.name}'" in excluded.get("not-decided-by-mutate", ""):
        return False
    return any(
        resource.group in rule["apiGroups"]
        and resource.plural in rule["resources"]
        and request.operation in rule["operations"]
        for rule in entry["rules"]
    )


def review(request: Request) -> Object:
    """Return the AdmissionReview of a request whose object has its defaults."""
    resource, metadata = request.resource, request.object["metadata"]
    version = request.object["apiVersion"].rpartition("/")[2]
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    plural = {"group": resource.group, "version": version, "resource": resource.plural}
    deleted = request.operation == "DELETE"
    options = {"kind": "DeleteOptions" if deleted else "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": plural,
            "requestKind": kind,
            "requestResource": plural,
            **{key: metadata[key] for key in ("name", "namespace") if key in metadata},
            "operation": request.operation,
            "userInfo": {"username": request.user.name, "groups": [*request.user.groups, "system:authenticated"]},
            "object": None if deleted else request.object,
            "oldObject": request.object if deleted else None,
            "dryRun": False,
            "options": options,
        },
    }


def _decoded(request: Request) -> Object:
    value = copy.deepcopy(request.object)
    if request.resource.namespaced:
        value["metadata"].setdefault("namespace", "default")
    if request.resource in _CUSTOM.values() or request.operation == "DELETE":
        return value
    drop_nulls(value)
    if request.resource.plural == "pods":
        default_pod(value)
        default_tolerations(value)
    default_object(request.resource.group, request.resource.kind, value)
    return value


def _answered(so_far: Answer, webhook: str, response: Object) -> Answer:
    """Return the answer with a webhook's response added."""
    so_far = replace(so_far, called=True, warnings=(*so_far.warnings, *response.get("warnings", ())))
    if not response["allowed"]:
        status = response["status"]
        return replace(so_far, denied_by=webhook, reason=status["reason"], message=status["message"])
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    value, places = _patched(so_far.object, patch)
    changes = (
        Change(field=field_path(path), before=_at(so_far.object, path), after=_at(value, path)) for path in places
    )
    return replace(so_far, object=value, changes=(*so_far.changes, *changes))


def _patched(value: Object, patch: list[Object]) -> tuple[Object, list[FieldPath]]:
    """Return the patched object, and the changed fields, without the subfields of a new field."""
    places: list[FieldPath] = []
    for operation in patch:
        value = jsonpatch.apply_patch(value, [operation])
        path = parse_pointer(operation["path"])
        if path[-1] == "-":
            path = (*path[:-1], len(_at(value, path[:-1])) - 1)
        if not any(path[: len(place)] == place for place in places):
            places.append(path)
    return value, places


def _at(value: Any, path: FieldPath) -> Any:
    """Return the value at a path, or None if the path doesn't exist."""
    for step in path:
        if isinstance(value, list):
            value = value[step] if isinstance(step, int) and step < len(value) else None
        else:
            value = value.get(str(step)) if isinstance(value, dict) else None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller that creates the Pods of a workload.

    Attributes:
        title: the name for messages.
        user: the service account.
        owner: the apiVersion and kind of the Pods' owner.
        pods: the name prefixes of its Pods, with the paths of their templates.
        labels: the labels that it adds to its Pods.
    """

    title: str
    user: User
    owner: tuple[str, str]
    pods: tuple[tuple[str, TemplatePath], ...]
    labels: dict[str, str]


def _builtin(name: str) -> User:
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
    return User(name=f"system:serviceaccount:kube-system:{name}", groups=groups)


_HASH: Final = "6b9f7c8d54"
_CONTROLLERS: Final = {
    "Deployment": Controller(
        title="ReplicaSet controller",
        user=_builtin("replicaset-controller"),
        owner=("apps/v1", "ReplicaSet"),
        pods=((f"{{name}}-{_HASH}-", TemplatePath("spec.template")),),
        labels={"pod-template-hash": _HASH},
    ),
    "Job": Controller(
        title="Job controller",
        user=_builtin("job-controller"),
        owner=("batch/v1", "Job"),
        pods=(("{name}-", TemplatePath("spec.template")),),
        labels={"batch.kubernetes.io/job-name": "{name}", "job-name": "{name}"},
    ),
    "RayCluster": Controller(
        title="Ray operator",
        user=User(
            name="system:serviceaccount:kuberay:kuberay-operator",
            groups=("system:serviceaccounts", "system:serviceaccounts:kuberay"),
        ),
        owner=("ray.io/v1", "RayCluster"),
        pods=(
            ("{name}-head-", TemplatePath("spec.headGroupSpec.template")),
            ("{name}-worker-", TemplatePath("spec.workerGroupSpecs[*].template")),
        ),
        labels={"ray.io/cluster": "{name}"},
    ),
}


def pods_of(workload: Object) -> Iterator[tuple[str, Request]]:
    """Yield the controller's title and its request to create a Pod, for each pod template of a workload."""
    controller = _CONTROLLERS.get(workload["kind"])
    if controller is None:
        return
    name = workload["metadata"]["name"]
    api_version, kind = controller.owner
    owner = {
        "apiVersion": api_version,
        "kind": kind,
        "name": f"{name}-{_HASH}" if kind == "ReplicaSet" else name,
        "uid": str(uuid.uuid4()),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    added = {key: label.format(name=name) for key, label in controller.labels.items()}
    for prefix, path in controller.pods:
        for place in path.find(workload):
            template = copy.deepcopy(place.value)
            metadata = template.setdefault("metadata", {})
            metadata["generateName"] = prefix.format(name=name)
            metadata["namespace"] = workload["metadata"]["namespace"]
            metadata["labels"] = {**metadata.get("labels", {}), **added}
            metadata["ownerReferences"] = [owner]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            yield controller.title, Request(operation="CREATE", object=pod, user=controller.user)
