"""`spotgate export vap` on a real API server: each case gets the same verdict from Kubernetes and from spotgate."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.exported.cases import ALLOW, CASES, DENY, EVERYTHING, LAST, NAMESPACES, WARN, Case
from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.parity.answers import ADMINISTRATOR, connect
from webhook.capacity.view import ClusterView
from webhook.commands.export.admission_policies.export import export
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.parity.answers import Server
    from webhook.engine.bundle import Bundle

JSON = dict[str, Any]

POLICIES = Path(__file__).parent / "policies.yaml"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of all cases, by name, and the type-checking warnings of all policies, by name."""

    of_kubernetes: dict[str, str] = field(default_factory=dict)
    of_spotgate: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """Return the policies of policies.yaml."""
    return load_bundle([POLICIES])


@pytest.fixture(scope="module")
def outcomes(cluster: Cluster, bundle: Bundle) -> Outcomes:
    """Send all requests at once: installing and removing policies takes longer than two hundred requests.

    These policies cover every shape of the shipped ones.
    """
    kubectl = cluster.kubectl
    result = Outcomes()
    exported, _ = export(bundle, NOW.date())
    kubectl.run("create", "clusterrolebinding", EVERYTHING, "--clusterrole=cluster-admin", f"--group={EVERYTHING}")
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in NAMESPACES.items()
    ]
    kubectl.apply(*namespaces)
    for name in NAMESPACES:
        kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=60s")
    with connect(cluster) as server, contextlib.ExitStack() as stack:
        stack.callback(kubectl, "delete", "namespace", *NAMESPACES, "--wait=false")
        before = {case.name: _store(server, case) for case in CASES if case.old is not None}
        for case in CASES:
            result.of_spotgate[case.name] = _judged(bundle, server, case, before.get(case.name))
        stack.callback(_wait_until, lambda: _verdict(*_ask(server, LAST)) == ALLOW)
        stack.callback(kubectl.run, "delete", "--wait=false", "--filename=-", documents=as_list(*exported))
        for policy in exported:
            status, body, _ = server.send("POST", _collection(server, policy), policy, ADMINISTRATOR)
            assert status == HTTPStatus.CREATED, body["message"]
        _wait_until(lambda: _verdict(*_ask(server, LAST)) == DENY)  # the API server activates policies in order
        for case in CASES:
            status, body, warnings = _ask(server, case)
            result.of_kubernetes[case.name] = _verdict(status, body, warnings)
            result.said[case.name] = body.get("message", "") + " ".join(warnings)
        names = {policy["metadata"]["name"] for policy in exported}
        _wait_until(lambda: _type_checked(server, names, result.warnings))
    return result


def _store(server: Server, case: Case) -> JSON:
    assert case.old is not None
    status, body, _ = server.send("POST", _collection(server, case.old), case.old, ADMINISTRATOR)
    assert status == HTTPStatus.CREATED, body["message"]
    if case.subresource:
        body = server.send("GET", f"{_path(server, case)}", {}, ADMINISTRATOR)[1]
    return body


def _collection(server: Server, thing: JSON) -> str:
    return server.collections[thing["apiVersion"], thing["kind"]].format(thing["metadata"].get("namespace", ""))


def _path(server: Server, case: Case) -> str:
    if case.operation == "CREATE":
        return _collection(server, case.object)
    assert case.old is not None
    return "/".join(filter(None, (_collection(server, case.old), case.old["metadata"]["name"], case.subresource)))


def _ask(server: Server, case: Case) -> tuple[int, JSON, list[str]]:
    """Send the request in a dry run, and return the answer."""
    thing, path = case.object, _path(server, case)
    if case.operation == "UPDATE":
        there = server.send("GET", path, {}, ADMINISTRATOR)[1]
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}}
        if thing["kind"] == "Pod":  # most fields of which are immutable
            images = [container["image"] for container in thing["spec"]["containers"]]
            containers = zip(there["spec"]["containers"], images, strict=True)
            given = [{**container, "image": image} for container, image in containers]
            thing = {**thing, "spec": {**there["spec"], "containers": given}}
    method = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}[case.operation]
    return server.send(method, f"{path}?dryRun=All", thing, case.identity)


def _verdict(status: int, body: JSON, warnings: list[str]) -> str:
    if status >= HTTPStatus.BAD_REQUEST:
        assert "ValidatingAdmissionPolicy" in body["message"], body["message"]
        return DENY
    return WARN if any("ValidatingAdmissionPolicy" in warning for warning in warnings) else ALLOW


def _judged(bundle: Bundle, server: Server, case: Case, old: JSON | None) -> str:
    """Return spotgate's verdict on the request as the API server sends it; a denial lowered to a warning counts as allowed."""
    status, admitted, _ = _ask(server, case)
    assert status < HTTPStatus.BAD_REQUEST, (case.name, admitted["message"])
    of = case.object if case.old is None else case.old
    group, _, version = of["apiVersion"].rpartition("/")
    thing_group, _, thing_version = case.object["apiVersion"].rpartition("/")
    request = {
        "uid": "1",
        "kind": {"group": thing_group, "version": thing_version, "kind": case.object["kind"]},
        "resource": {"group": group, "version": version, "resource": _collection(server, of).rpartition("/")[2]},
        "subResource": case.subresource,
        "name": case.object["metadata"]["name"],
        "namespace": case.object["metadata"].get("namespace", ""),
        "operation": case.operation,
        "userInfo": {"username": case.user, "groups": list(case.identity.groups)},
        "object": None if case.operation == "DELETE" else admitted,
        "oldObject": old,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    labels = {name: {**given, "kubernetes.io/metadata.name": name} for name, given in NAMESPACES.items()}
    context = Context(phase=Phase.VALIDATE, now=NOW, view=ClusterView(namespaces=labels, pools=()))
    findings = decide(decode_review(json.dumps(review).encode()), bundle.index, context).findings
    outcomes = {str(item.outcome) for item in findings if "Not denied" not in item.detail}
    return next((verdict for verdict in (DENY, WARN) if verdict in outcomes), ALLOW)


def _type_checked(server: Server, names: set[str], warnings: dict[str, Any]) -> bool:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    for policy in server.send("GET", path, {}, ADMINISTRATOR)[1]["items"]:
        status = policy.get("status", {})
        if "typeChecking" in status and status.get("observedGeneration") == policy["metadata"]["generation"]:
            warnings[policy["metadata"]["name"]] = status["typeChecking"].get("expressionWarnings", [])
    return names <= set(warnings)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("case", CASES, ids=[case.key for case in CASES])
def test_kubernetes_and_spotgate_give_the_same_verdict(case: Case, outcomes: Outcomes) -> None:
    verdicts = (outcomes.of_spotgate[case.name], outcomes.of_kubernetes[case.name])
    assert verdicts == (case.verdict, case.verdict), outcomes.said[case.name]


def test_kubernetes_type_checks_every_expression_without_warnings(outcomes: Outcomes) -> None:
    assert {name: warnings for name, warnings in outcomes.warnings.items() if warnings} == {}
