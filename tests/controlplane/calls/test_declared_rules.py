"""The API server acts on every rule and every exclusion of the installed webhook configurations.

The API server accepts a rule with a misspelt resource, which never fires: only a request shows the mistake (I10).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.harness.api import Answer, Api
from tests.controlplane.harness.populate import wait_for_crds
from tests.controlplane.harness.registration import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.webhook import Webhook

FIELDS = Path(__file__).parents[2] / "policy" / "workload_fields.yaml"
# Controllers write Pods, ReplicaSets, and Nodes at any time, and the counters include their requests: then try again.
TRIES = 5

LABELS = {"app": "declared"}
# Meets restricted Pod Security, which the webhook's namespace enforces. The scheduler ignores these Pods.
POD_SPEC = {
    "schedulerName": "nobody",
    "nodeSelector": {"example.com/nowhere": "true"},
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/app:1",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
JOB = {"suspend": True, "template": {"spec": POD_SPEC | {"restartPolicy": "Never"}}}
SELECTED = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
# Valid objects for which no controller creates anything; custom resources accept any spec.
BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("", "nodes"): {"spec": {"unschedulable": True}},
    ("", "pods"): {"spec": POD_SPEC},
    ("", "podtemplates"): {"template": TEMPLATE},
    ("", "replicationcontrollers"): {"spec": {"replicas": 0, "selector": LABELS, "template": TEMPLATE}},
    ("apps", "daemonsets"): {"spec": SELECTED},
    ("apps", "deployments"): {"spec": SELECTED | {"replicas": 0}},
    ("apps", "replicasets"): {"spec": SELECTED | {"replicas": 0}},
    ("apps", "statefulsets"): {"spec": SELECTED | {"replicas": 0, "serviceName": "declared"}},
    ("batch", "cronjobs"): {"spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": JOB}}},
    ("batch", "jobs"): {"spec": JOB},
    ("compute.coreweave.com", "nodepools"): {"spec": {"instanceType": "cd-gp-i64-erapids", "targetNodes": 2}},
    ("infrastructure.cluster.x-k8s.io", "azureasomanagedmachinepools"): {
        "spec": {"resources": [{"kind": "ManagedClustersAgentPool", "spec": {"mode": "User"}}]}
    },
    ("cluster.x-k8s.io", "machinepools"): {"spec": {"replicas": 2}},
    ("cluster.x-k8s.io", "machinedeployments"): {"spec": {"replicas": 2}},
    ("machine.openshift.io", "machinesets"): {"spec": {"replicas": 2}},
    ("karpenter.sh", "nodepools"): {
        "spec": {"replicas": 2, "template": {"spec": {"nodeClassRef": NODE_CLASS, "requirements": [ON_DEMAND]}}}
    },
}
# Metadata that policies only warn about. On Namespaces they deny it to users, and exempt the platform.
OWN_KEY = {"labels": {"spotgate.dev/declared": "rule"}}
CONCERNS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("", "namespaces"): {"labels": {"x.coreweave.cloud/declared": "rule"}}
}
TARGET = {"target": {"kind": "Node", "name": "nowhere"}}


@pytest.fixture(scope="module", autouse=True)
def workload_kinds(cluster: Cluster) -> Iterator[None]:
    """Serve the workload kinds that only this file needs, under the names that their projects use."""
    there = {crd["metadata"]["name"] for crd in cluster.kubectl.get("customresourcedefinitions")["items"]}
    crds = [crd for crd in map(definition, *_kinds()) if crd["metadata"]["name"] not in there]
    cluster.kubectl.apply(*crds)
    wait_for_crds(cluster.kubectl)
    yield
    names = [crd["metadata"]["name"] for crd in crds]
    cluster.kubectl("delete", "customresourcedefinitions", *names, "--wait=false")


def _kinds() -> tuple[Iterable[str], Iterable[dict[str, Any]]]:
    kinds = yaml.safe_load(FIELDS.read_text())
    return kinds.keys(), kinds.values()


def definition(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Return the CRD of a kind, such as `CloneSet.apps.kruise.io`, that accepts any fields."""
    title, _, group = name.partition(".")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind['resource']}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved"},
        },
        "spec": {
            "group": group,
            "scope": kind["scope"],
            "names": {"kind": title, "plural": kind["resource"]},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A request that a configuration declares; `resource` is `nodepools` or `nodepools/scale`."""

    phase: str
    group: str
    resource: str
    operation: str


@dataclass(frozen=True, slots=True)
class Served:
    """A resource as the API server serves it."""

    group_version: str
    kind: str
    namespaced: bool

    def path(self, plural: str, namespace: str) -> str:
        """Return the path of the collection."""
        base = f"/apis/{self.group_version}" if "/" in self.group_version else f"/api/{self.group_version}"
        return f"{base}/namespaces/{namespace}/{plural}" if self.namespaced else f"{base}/{plural}"


def declared(entries: list[dict[str, Any]]) -> list[Rule]:
    """Return the rules of these entries, one for each request."""
    return sorted(
        {
            Rule(entry["clientConfig"]["service"]["path"].strip("/"), group, resource, operation)
            for entry in entries
            for rule in entry["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for operation in rule["operations"]
        }
    )


def discover(api: Api) -> dict[tuple[str, str], Served]:
    """Return all resources of the API server by group and plural, each in its preferred version."""
    lists = [("", api.get("/api/v1"))]
    for group in api.get("/apis")["groups"]:
        # The last version wins, so the preferred one comes last. It doesn't serve all resources.
        versions = reversed([version["groupVersion"] for version in group["versions"]])
        lists += [(group["name"], api.get(f"/apis/{version}")) for version in versions]
    return {
        (group, resource["name"]): Served(listed["groupVersion"], resource["kind"], resource["namespaced"])
        for group, listed in lists
        for resource in listed["resources"]
    }


Counts = dict[tuple[str, str], int]
"""Numbers of requests by phase and resource."""


def expected(rules: Iterable[Rule], times: int = 1) -> Counts:
    """Return spotgate's counts for rules that each fire this many times."""
    counts: Counts = {}
    for rule in rules:
        counts[rule.phase, rule.resource] = counts.get((rule.phase, rule.resource), 0) + times
    return counts


def moved(webhook: Webhook, sends: Iterable[Callable[[], Answer]], wanted: Counts) -> Counts:
    """Send requests, and return how far the expected counters move."""
    sends = list(sends)
    for _ in range(TRIES):
        before = decisions(webhook)
        for send in sends:
            answer = send()
            assert not answer.message, answer.message
        after = decisions(webhook)
        counts = {key: after[key] - before[key] for key in wanted}
        if all(counts[key] <= times for key, times in wanted.items()):
            break
    return counts


def decisions(webhook: Webhook) -> Counter[tuple[str, str]]:
    """Return spotgate's counts so far."""
    counts: Counter[tuple[str, str]] = Counter()
    for labels, value in webhook.samples("spotgate_decisions_total"):
        counts[labels["phase"], labels["resource"]] += int(value)
    return counts


class Requests:
    """Dry-run requests as rules declare them; an object that they change is created on first use."""

    def __init__(
        self, api: Api, namespace: str, made: contextlib.ExitStack, served: Mapping[tuple[str, str], Served]
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.served = served
        self._made = made
        self._names: dict[str, str] = {}

    def of_all(self, rules: Iterable[Rule]) -> Iterator[Callable[[], Answer]]:
        """Yield a sender for each request of these rules, one for both phases."""
        return (self.of(rule) for rule in {replace(rule, phase="") for rule in rules})

    def of(self, rule: Rule) -> Callable[[], Answer]:  # noqa: PLR0911 - one for each kind of request
        """Return a function that sends the request of a rule."""
        plural, _, subresource = rule.resource.partition("/")
        served = self.served[rule.group, plural]
        path = served.path(plural, self.namespace)
        thing: dict[str, Any] = {
            "apiVersion": served.group_version,
            "kind": served.kind,
            "metadata": {"generateName": "declared-"},
        }
        thing |= BODIES.get((rule.group, plural), {"spec": {}})
        concerns = CONCERNS.get((rule.group, plural), OWN_KEY)
        if rule.operation == "CREATE" and not subresource and plural != "bindings":
            concerning = {**thing, "metadata": thing["metadata"] | concerns}
            return lambda: self.api.create(path, concerning, dry_run=True)
        if plural == "bindings":
            pods = served.path("pods", self.namespace)
            bound = {
                "metadata": {"name": self._name(pods, {"metadata": thing["metadata"]} | BODIES["", "pods"])} | concerns
            }
            return lambda: self.api.create(path, bound | TARGET, dry_run=True)
        one = f"{path}/{self._name(path, thing)}"
        there = f"{one}/{subresource}".rstrip("/")
        if subresource == "binding":
            bound = {"metadata": {"name": self._name(path, thing)} | concerns}
            return lambda: self.api.create(there, bound | TARGET, dry_run=True)
        if subresource == "finalize":
            stored = self.api.get(one)
            changed = {**stored, "metadata": stored["metadata"] | concerns}
            return lambda: self.api.send("PUT", there, changed, dry_run=True)
        if subresource == "scale":
            return lambda: self.api.patch(there, {"spec": {"replicas": 1}}, dry_run=True)
        if rule.operation == "UPDATE":
            return lambda: self.api.patch(there, {"metadata": concerns}, dry_run=True)
        if rule.operation == "DELETE" and not subresource:
            return lambda: self.api.delete(one, dry_run=True)
        raise NotImplementedError(f"{rule}: say here how it is requested")

    def _name(self, path: str, thing: dict[str, Any]) -> str:
        """Return the name of an existing object."""
        if path not in self._names:
            self._names[path] = self._made.enter_context(self.api.created(path, thing))["metadata"]["name"]
        return self._names[path]


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(cluster)


@pytest.fixture(scope="module")
def requests(api: Api) -> Iterator[Requests]:
    """Yield requests in an ordinary namespace."""
    with contextlib.ExitStack() as made:
        yield Requests(api, made.enter_context(api.namespace("declared")), made, discover(api))


# Rules


def test_I10_every_declared_rule_fires(webhook: Webhook, requests: Requests) -> None:
    rules = declared(installed(requests.api))
    assert {rule.phase for rule in rules} == {"mutate", "validate"}
    assert Rule("validate", "compute.coreweave.com", "nodepools/scale", "UPDATE") in rules
    assert [rule for rule in rules if (rule.group, rule.resource) not in requests.served] == []
    wanted = expected(rules)
    assert moved(webhook, requests.of_all(rules), wanted) == wanted


# Exclusions


@pytest.mark.parametrize("name", ["kube-system", "kube-node-lease", "spotgate-system"])
def test_requests_in_a_system_namespace_do_not_reach_spotgate(name: str, webhook: Webhook, requests: Requests) -> None:
    with contextlib.ExitStack() as made:
        there = Requests(requests.api, name, made, requests.served)
        rules = [
            rule
            for rule in declared(installed(requests.api))
            if rule.operation == "CREATE" and there.served[rule.group, rule.resource].namespaced
        ]
        assert {rule.resource for rule in rules} >= {"pods", "deployments", "rayclusters"}
        wanted = expected(rules, 0)
        assert moved(webhook, there.of_all(rules), wanted) == wanted


@pytest.mark.parametrize(("groups", "times"), [(("system:nodes", "system:masters"), 0), (("system:masters",), 1)])
def test_a_mirror_pod_reaches_spotgate_unless_a_node_creates_it(
    groups: tuple[str, ...], times: int, webhook: Webhook, requests: Requests
) -> None:
    mirror = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "0123"}} | OWN_KEY,
        "spec": POD_SPEC | {"nodeName": "cpu-spot-0"},
    }
    kubectl = webhook.cluster.kubectl
    flags = (f"--namespace={requests.namespace}", "--as=kubelet", *(f"--as-group={group}" for group in groups))

    def send() -> Answer:
        done = kubectl.run("create", "--dry-run=server", "--filename=-", *flags, documents=json.dumps(mirror))
        return Answer(done.returncode and 400, {"message": done.stderr}, [])

    wanted = expected([Rule("validate", "", "pods", "CREATE")], times)
    assert moved(webhook, [send], wanted) == wanted
