"""Whole objects, including pod templates, evaluated by one policy in the engine."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from tests.builders import BUNDLE, cks_pool, view_of
from tests.docs.pages import blocks
from tests.rules.cases import NAMESPACE, NOW, Example, bundle_of, request_for
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.kube.disruption import budget_from
from webhook.model.decision import Decision
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView
    from webhook.engine.index import Index
    from webhook.model.decision import Finding

JSON = dict[str, Any]

SPOT = {"spotgate.dev/capacity": "spot"}
CLUSTER = view_of(cks_pool("cpu-spot", gpu=False), cks_pool("cpu", spot=False, gpu=False))


@cache
def index_of(kind: str, spec: str) -> Index:
    with tempfile.TemporaryDirectory() as folder:
        return bundle_of(kind, spec, Path(folder)).index


def judged(
    value: JSON,
    kind: str,
    *,
    view: ClusterView = CLUSTER,
    old: JSON | None = None,
    offline: bool = False,
    user: str = "jane",
    **spec: Any,
) -> list[Finding]:
    """Return a policy's findings about an object that is created, or updated from ``old``."""
    example = Example(kind=kind, behavior="", object=value, old=old, request={"user": user})
    context = Context(phase=Phase.VALIDATE, now=NOW, view=view, offline=offline)
    return list(
        decide(request_for(example, BUNDLE), index_of(kind, json.dumps(spec, sort_keys=True)), context).findings
    )


def web_pod(name: str = "web", *, metadata: JSON | None = None, **spec: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "Pod", **template(metadata={"name": name, **(metadata or {})}, **spec)}


def template(*, metadata: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "app", "image": "registry.example/app:1", "ports": [{"containerPort": 8080}]}
    return {"metadata": metadata or {}, "spec": {"containers": [container], **spec}}


def workload(
    kind: str = "Deployment", api_version: str = "apps/v1", *, of: JSON, metadata: JSON | None = None, **spec: Any
) -> JSON:
    selector = {"selector": {"matchLabels": {"app": "web"}}} if api_version == "apps/v1" else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": NAMESPACE, **(metadata or {})},
        "spec": {**selector, **spec, "template": of},
    }


def with_budgets(*budgets: JSON, view: ClusterView = CLUSTER) -> ClusterView:
    """Return the cluster with only these PodDisruptionBudgets in the namespace."""
    decoded = tuple(
        budget_from({"metadata": {"name": f"budget-{number}"}, "spec": spec}) for number, spec in enumerate(budgets)
    )
    return msgspec.structs.replace(view, budgets={NAMESPACE: decoded} if decoded else {})


def yaml_of(finding: Finding) -> Any:
    """Return the YAML of a fix, without its first line."""
    lead, _, text = finding.fix.partition("\n")
    assert lead.endswith(":")
    return yaml.safe_load(text)


def warned(findings: list[Finding]) -> str:
    """Return the warnings that a client prints."""
    response = json.loads(respond("u", Decision(findings=tuple(findings)), Phase.VALIDATE))["response"]
    return "\n".join(response["warnings"]) + "\n"


def blocks_of(page: str, language: str = "") -> list[str]:
    """Return the fenced blocks of a page in ``docs/policies``."""
    return blocks(Path(__file__).parents[2] / "docs" / "policies" / page, language)


def loaded(policy: str) -> int:
    """Return the number of policies in these documents, without the shipped facts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(policy)
        return len(load_bundle([file]).policies)
