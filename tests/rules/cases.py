"""Examples in ``webhook/rules/*/cases.yaml``, evaluated by the engine.

A file has a policy ``kind``, named ``objects``, ``defaults`` (members of every example), and ``cases``: the examples of
each behavior. An object is the name of one of the ``objects``, or a map; with ``like`` it is a merge patch (RFC 7386) of
another one. An example has:

``object``, ``old``   the object after and before the request
``objects``           several objects that all give the same result
``spec``              the spec of the policy; or ``policy``, the name of a shipped policy or example policy
``refused``           the spec is rejected, with this text
``cluster``           the manifests of the cluster's state, or ``unknown``; an entry with ``provider`` is a pool as a reader
                      returns it
``view``              fields of the cluster's view that manifests don't have
``kubelet``, ``api``  the versions of the oldest kubelet and of the API server
``request``           other fields of the request
``offline``           findings on unknown state are indeterminate
``patched``           the members of the spec that mutation changes, with their new values; validation then sees the result
``expect``            the findings: outcome and id, ``field``, texts that the message ``says`` and ``lacks``, and the YAML of the
                      ``remedy``
``trace``             steps of the trace, in this order

Without an object, the policy is only loaded. ``why`` is a comment. Other members of the file hold YAML anchors.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonpatch
import msgspec
import yaml
from msgspec.structs import replace

import webhook.rules
from webhook.capacity.providers.pool import Pool
from webhook.capacity.providers.provider import pool_resources
from webhook.capacity.view import ClusterView
from webhook.documents import Document
from webhook.engine.bundle import Bundle, load_bundle
from webhook.engine.engine import decide
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of
from webhook.kube.resources import plural_of
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request, UserInfo
from webhook.rules.context import ASSUMED_VERSION, Context, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.model.decision import Decision, Finding

JSON = dict[str, Any]

RULES = Path(webhook.rules.__file__).parent
ROOT = RULES.parents[1]
NAMESPACE = "team-a"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
UNKNOWN = ClusterView(pools=None, why_unknown="The API server did not answer.", remedy="try again later")


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One example of a behavior."""

    kind: str
    behavior: str
    why: str = ""
    object: Any = None
    old: Any = None
    policy: str = ""
    spec: JSON = {}
    refused: str = ""
    cluster: list[Any] | str = []
    view: JSON = {}
    kubelet: tuple[int, int] = ASSUMED_VERSION
    api: tuple[int, int] = ASSUMED_VERSION
    request: JSON = {}
    offline: bool = False
    patched: JSON | None = None
    trace: list[str] = []
    expect: list[JSON] = []

    @property
    def name(self) -> str:
        """Return the kind and the behavior."""
        return f"{self.kind}: {self.behavior}"

    @property
    def is_judged(self) -> bool:
        """Return whether the example has an object to evaluate."""
        return self.object is not None or self.old is not None


def merged(base: Any, patch: Any) -> Any:
    """Return a value with a merge patch (RFC 7386) applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class CaseFile:
    """The examples of one policy kind."""

    def __init__(self, path: Path) -> None:
        document = yaml.safe_load(path.read_text())
        self.kind: str = document["kind"]
        self._objects: JSON = document.get("objects", {})
        self._defaults: JSON = document.get("defaults", {})
        self._cases: dict[str, list[JSON]] = document["cases"]

    def resolved(self, value: Any) -> Any:
        """Return the object for a name or a map with ``like``."""
        if isinstance(value, str):
            return self.resolved(self._objects[value])
        if isinstance(value, dict) and "like" in value:
            return merged(self.resolved(value["like"]), {key: member for key, member in value.items() if key != "like"})
        return value

    def examples(self) -> Iterator[Example]:
        """Yield every example, with its complete objects."""
        for behavior, written in self._cases.items():
            for own in written:
                fields = {**self._defaults, **own}
                objects = fields.pop("objects", [fields.pop("object", None)])
                cluster = fields.pop("cluster", [])
                if cluster != "unknown":
                    cluster = [self.resolved(value) for value in cluster]
                old = self.resolved(fields.pop("old", None))
                for value in objects:
                    yield msgspec.convert(
                        {
                            **fields,
                            "kind": self.kind,
                            "behavior": behavior,
                            "object": self.resolved(value),
                            "old": old,
                            "cluster": cluster,
                        },
                        Example,
                    )


def load_examples() -> list[Example]:
    """Return the examples of all policy kinds."""
    return [example for path in sorted(RULES.glob("*/cases.yaml")) for example in CaseFile(path).examples()]


@cache
def bundle_of(kind: str, spec: str, folder: Path) -> Bundle:
    """Return a bundle with one policy and the shipped facts."""
    metadata = {"name": re.sub(r"\B([A-Z])", r"-\1", kind).lower()}
    document = {"apiVersion": "spotgate.dev/v1", "kind": kind, "metadata": metadata, "spec": json.loads(spec)}
    file = folder / "policy.yaml"
    file.write_text(json.dumps(document))
    return load_bundle([file])


def bundle_for(example: Example, folder: Path) -> Bundle:
    """Return the bundle of the example's policy."""
    spec = shipped_specs()[example.policy] if example.policy else example.spec
    return bundle_of(example.kind, json.dumps(spec), folder)


@cache
def shipped_specs() -> dict[str, JSON]:
    """Return the specs of the shipped policies and example policies, by name."""
    files = (*(ROOT / "policies").glob("*.yaml"), *(ROOT / "examples" / "policies").glob("*.yaml"))
    documents = (document for file in files for document in yaml.safe_load_all(file.read_text()))
    return {document["metadata"]["name"]: document["spec"] for document in documents}


def view_for(example: Example, bundle: Bundle) -> ClusterView:
    """Return the view of the example's cluster."""
    if isinstance(example.cluster, str):
        view = UNKNOWN
    else:
        objects = [value for value in example.cluster if "provider" not in value]
        manifests = [
            Manifest(Document("cluster.yaml", 1, value), (), value["apiVersion"], value["kind"], value)
            for value in objects
        ]
        view = view_of(manifests, bundle.providers, complete=True)
        pools = tuple(msgspec.convert(value, Pool) for value in example.cluster if "provider" in value)
        providers = view.providers.union(pool.provider for pool in pools if not pool.elsewhere)
        assert view.pools is not None
        view = replace(view, pools=(*view.pools, *pools), providers=providers)
    return replace(view, **{name: msgspec.convert(value, _TYPES[name]) for name, value in example.view.items()})


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(ClusterView)}


def request_for(example: Example, bundle: Bundle) -> Request:
    """Return the request of the example."""
    value = example.object if example.object is not None else example.old
    group, _, version = value["apiVersion"].rpartition("/")
    kind = value["kind"]
    resources = {(known.group, known.kind): known for known in pool_resources(bundle.providers.values())}
    resource = resources.get((group, kind))
    cluster_scoped = (resource is not None and not resource.namespaced) or (group, kind) in {
        ("", "Namespace"),
        ("", "Node"),
    }
    operation = "CREATE" if example.old is None else "DELETE" if example.object is None else "UPDATE"
    more = dict(example.request)
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return Request(
        uid="u",
        operation=more.pop("operation", operation),
        kind=GroupVersionKind(group, version, kind),
        resource=GroupVersionResource(
            group, version, more.pop("resource", resource.plural if resource else plural_of(kind))
        ),
        sub_resource=more.pop("subResource", ""),
        name=more.pop("name", metadata.get("name", "")),
        namespace=more.pop("namespace", "" if cluster_scoped else metadata.get("namespace", NAMESPACE)),
        object=_raw(example.object),
        old_object=_raw(example.old),
        user_info=UserInfo(more.pop("user", "jane"), tuple(more.pop("groups", ()))),
        dry_run=more.pop("dryRun", False),
    )


def _raw(value: JSON | None) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def judged(example: Example, folder: Path) -> tuple[JSON, Decision]:
    """Return the members of the spec that mutation changes, if the example has ``patched``, and the decision."""
    bundle = bundle_for(example, folder)
    request = request_for(example, bundle)
    context = Context(
        phase=Phase.MUTATE,
        now=NOW,
        view=view_for(example, bundle),
        offline=example.offline,
        oldest_kubelet=example.kubelet,
        api_server=example.api,
    )
    changed: JSON = {}
    if example.patched is not None:
        after = example.object
        patch = [operation.as_json() for operation in decide(request, bundle.index, context).patch]
        after = jsonpatch.apply_patch(after, patch)
        request = replace(request, object=_raw(after))
        assert not decide(request, bundle.index, context).patch, "a second mutation changes the result of the first"
        before = example.object["spec"]
        changed = {key: value for key, value in after["spec"].items() if before.get(key) != value}
    return changed, decide(request, bundle.index, replace(context, phase=Phase.VALIDATE, trace=bool(example.trace)))


def shown(finding: Finding, expected: JSON) -> JSON:
    """Return the parts of a finding that the example expects."""
    of_kind = not finding.id.startswith("object/")
    result: JSON = {str(finding.outcome): finding.id.partition("/")[2] if of_kind else finding.id}
    if finding.field or "field" in expected:
        result["field"] = finding.field
    message = f"{finding.reason}\n{finding.detail}\n{finding.fix}"
    says = expected.get("says", [])
    if "says" in expected:
        texts = [says] if isinstance(says, str) else says
        missing = [text for text in texts if text not in message]
        result["says"] = says if not missing else message
    if "lacks" in expected:
        texts = [expected["lacks"]] if isinstance(expected["lacks"], str) else expected["lacks"]
        result["lacks"] = message if any(text in message for text in texts) else expected["lacks"]
    if "remedy" in expected:
        lead, _, text = finding.fix.partition(":\n")
        assert lead
        result["remedy"] = yaml.safe_load(text)
    return result
