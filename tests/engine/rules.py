"""Minimal rules, policies, and requests for tests of the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from webhook.base.globs import Globs
from webhook.engine.engine import decide
from webhook.engine.index import Index, Policy
from webhook.kube.pod import OwnerReference, Toleration
from webhook.kube.templates import TemplatePath, Workload
from webhook.model.decision import Decision, Outcome, Violation
from webhook.model.review import Request, decode_review
from webhook.policy.common import MatchSpec, PolicySpec
from webhook.policy.match import PODS_CREATE, Matcher, ResourceRule
from webhook.rules.context import Context, Phase
from webhook.rules.protocol import PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.kube.edit import PodEditor
    from webhook.rules.subject import Subject

NOW = datetime(2026, 11, 21, tzinfo=UTC)
WRONG = Violation(id="unwanted", reason="it is wrong", field="spec.x", fix="make it right")
REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
POOLS = ResourceRule(api_groups=("example.com",), resources=("pools", "pools/scale"), operations=("*",))


@dataclass(frozen=True)
class Finds:
    """A rule that finds the given violations."""

    violations: tuple[Violation, ...] = (WRONG,)

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        subject.trace.say("it looked at %s in %s", subject.operation, context.phase)
        return self.violations


@dataclass(frozen=True)
class Tolerates:
    """A rule that adds a toleration, and reports a missing one."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        del context
        if not subject.pod.spec.tolerations:
            editor.add_toleration(Toleration(key="spot", operator="Exists"))

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        if not subject.pod.spec.tolerations:
            yield Violation(id="unwanted", reason="no toleration", field="spec.tolerations")


@dataclass(frozen=True)
class JudgesPools:
    """A rule about an object other than a Pod."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        value = subject.object or subject.old_object or {}
        if value.get("spec", {}).get("bad"):
            yield WRONG


def policy(rule: Any, name: str = "policy", **changes: Any) -> Policy:
    defaults: dict[str, Any] = {
        "enforcement": Outcome.DENY,
        "rules": (PODS_CREATE,),
        "exclude": (),
        "matcher": Matcher(MatchSpec()),
        "exemptions": (),
        "break_glass": Globs(()),
        "controller_denies": False,
        "mutator": rule if hasattr(rule, "mutate") else None,
        "validator": rule if hasattr(rule, "validate") else None,
    }
    kind_fields = {key: changes.pop(key) for key in changes.keys() - set(Policy.__struct_fields__)}
    kind = PolicyKind(**{"name": "Test", "spec": PolicySpec, "compile": None, "rules": None, **kind_fields})
    return Policy(name=name, kind=kind, **{**defaults, **changes})


DEPLOYMENTS = Workload(
    "apps",
    "Deployment",
    "deployments",
    (TemplatePath("spec.template"),),
    OwnerReference(kind="ReplicaSet", apiVersion="apps/v1"),
)
RAY = Workload(
    "ray.io",
    "RayCluster",
    "rayclusters",
    (TemplatePath("spec.head.template"), TemplatePath("spec.workers[*].template")),
)


def index(*policies: Policy) -> Index:
    return Index(policies, [DEPLOYMENTS, RAY], {}, "spotgate-system")


def request(
    obj: Any = None, *, resource: str = "pods", group: str = "", operation: str = "CREATE", **changes: Any
) -> Request:
    resource, _, subresource = resource.partition("/")
    body = {
        "uid": "u",
        "operation": operation,
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": subresource,
        "namespace": "team-a",
        "userInfo": {"username": "jane", "groups": ["devs"]},
        "object": obj,
        **changes,
    }
    return decode_review(
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()
    )


def validate(index: Index, request: Request, **changes: Any) -> Decision:
    return decide(request, index, replace(Context(phase=Phase.VALIDATE, now=NOW), **changes))


def mutate(index: Index, request: Request, **changes: Any) -> Decision:
    return decide(request, index, replace(Context(phase=Phase.MUTATE, now=NOW), **changes))


EVERYTHING = ResourceRule(api_groups=("",), resources=("*/*",), operations=("*",))
POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a"}]}}
DEPLOYMENT: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": TEMPLATE}}


def outcomes(decision: Decision) -> list[str]:
    return [str(finding.outcome) for finding in decision.findings]
