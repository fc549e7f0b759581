"""The match conditions of the configurations, evaluated by the API server itself.

Another webhook takes spotgate's place and records the reviews that the API server sends: these tests check which
requests arrive, not the answers. `test_parity.py` checks that the API server sends every request that spotgate evaluates.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import deployment, job, labeled, pod, pod_spec
from tests.controlplane.harness.api import Api, pods_in
from tests.controlplane.harness.other_webhook import serve
from tests.controlplane.harness.registration import MUTATING, VALIDATING
from tests.controlplane.harness.webhook import WebhookError
from webhook.engine.bundle import load_bundle
from webhook.registration.configurations import configurations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.other_webhook import OtherWebhook

JSON = dict[str, Any]

SPOT = {"spotgate.dev/capacity": "spot"}
RESERVED = {"x.coreweave.cloud/y": "z"}
LABELLED = {"metadata": {"labels": RESERVED}}
MANY = 30_000
"""Keys of a map: the API server sorts them in quadratic time, so that 115,000, the most that fit, take 5 s."""
LONG = "k" * 1_000_000
TRIES = 100


class Asking:
    """The calls of the API server for one namespace, by the names of webhooks."""

    def __init__(self, cluster: Cluster, other: OtherWebhook, namespace: str) -> None:
        self.api = Api(cluster)
        self.namespace = namespace
        self._other = other

    def seen(self) -> list[JSON]:
        """Return the requests since the last call of this method."""
        requests, self._other.seen[:] = list(self._other.seen), []
        return requests

    def about(self, path: str, thing: JSON, user: str = "") -> set[str]:
        """Create the object in a dry run, and return the webhooks that the API server calls."""
        self.seen()
        answer = self.api.send("POST", path, thing, dry_run=True, user=user)
        assert answer.status in {201, 422}, answer.message  # 422: too large, checked after admission
        return {request["webhook"] for request in self.seen()}


@pytest.fixture(scope="module")
def asking(cluster: Cluster) -> Iterator[Asking]:
    api = Api(cluster)
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(serve())
        namespace = stack.enter_context(api.namespace("conditions"))
        here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
        client = {"service": {"name": "spotgate", "namespace": "spotgate-system"}}
        for path, configuration in zip((MUTATING, VALIDATING), configurations(load_bundle(), client), strict=True):
            configuration["metadata"] = {"name": "conditions"}
            for webhook in configuration["webhooks"]:
                name = webhook["name"].removesuffix(".spotgate.dev")

                def allow(request: JSON, name: str = name) -> JSON:
                    request["webhook"] = name
                    return {"allowed": True}

                other.answers[f"/{name}"] = allow
                webhook["clientConfig"] = other.client(f"/{name}")
                if "namespaceSelector" in webhook:
                    webhook["namespaceSelector"]["matchExpressions"].append(here)
            stack.enter_context(api.created(path, configuration))
        calls = Asking(cluster, other, namespace)
        for _ in range(TRIES):
            if calls.about(pods_in(namespace), labeled(pod("x"), SPOT)) == {"mutate", "workloads"}:
                break
        else:
            raise WebhookError("the other webhook is not called")
        yield calls


LONGEST = {f"{number:0>50}.example.com/{'n' * 63}": "v" for number in range(64)}


def many(count: int = MANY) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


def tolerating(count: int) -> list[JSON]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def affinity(terms: int, requirements: int) -> JSON:
    items = [{"key": "kubernetes.io/os", "operator": "Exists"}] * requirements
    required = {"nodeSelectorTerms": [{"matchExpressions": items}] * terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("labels", "spec"),
    [
        pytest.param(RESERVED, {"nodeSelector": many()}, id="30,000 selectors"),
        pytest.param(many() | RESERVED, {}, id="30,000 labels"),
        pytest.param(
            {f"{number:0>63}.example.com/{'n' * 63}": "v" for number in range(63)} | RESERVED, {}, id="long labels"
        ),
        pytest.param(RESERVED, {"tolerations": tolerating(30_000)}, id="30,000 tolerations"),
        pytest.param(RESERVED, {"affinity": affinity(200, 200)}, id="40,000 requirements"),
        pytest.param({}, {"nodeSelector": many(1000)}, id="1,000 selectors"),
    ],
)
def test_a_pod_of_any_size_is_sent(labels: JSON, spec: JSON, asking: Asking) -> None:
    assert "workloads" in asking.about(pods_in(asking.namespace), labeled(pod("hostile", **spec), labels))


CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
COSTLY_SPEC = {"nodeSelector": many(60), "tolerations": tolerating(16), "affinity": affinity(16, 16)}


@pytest.mark.parametrize(
    ("user", "labels", "spec", "called"),
    [
        ("", SPOT, {}, {"mutate", "workloads"}),
        ("", RESERVED, {}, {"workloads"}),
        ("", {}, {}, set()),
        (CONTROLLER, SPOT, {}, {"mutate"}),
        (CONTROLLER, RESERVED, {}, {"mutate"}),
        (CONTROLLER, LONGEST, COSTLY_SPEC, {"mutate"}),
        (CONTROLLER, RESERVED, {"nodeSelector": many()}, {"mutate"}),
        (CONTROLLER, {}, {}, set()),
    ],
)
def test_the_pod_of_a_controller_takes_at_most_one_call(
    user: str, labels: JSON, spec: JSON, called: set[str], asking: Asking
) -> None:
    assert asking.about(pods_in(asking.namespace), labeled(pod("x", **spec), labels), user) == called


def test_an_invalid_pod_is_sent_before_the_api_server_rejects_it(asking: Asking) -> None:
    for spec in ({"nodeSelector": {LONG: "v"}}, {"affinity": affinity(0, 0)}):
        thing = labeled(pod("hostile", **spec), SPOT)
        assert "mutate" in asking.about(pods_in(asking.namespace), thing)


def groups(*templates: Any) -> JSON:
    return {"workerGroupSpecs": [{"groupName": f"g{number}", "template": pod} for number, pod in enumerate(templates)]}


COSTLY: JSON = {
    "metadata": {"labels": LONGEST, "annotations": LONGEST},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": affinity(16, 16),
        "tolerations": [{"key": key, "operator": "Exists"} for key in list(LONGEST)[:16]],
        "containers": [{"name": f"c{number}", "image": "i" * 250} for number in range(16)],
    },
}
CUSTOM = {
    "wrong types": {"workerGroupSpecs": [7, {"template": LABELLED}]},
    "1,000 groups": groups(*[{"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}] * 1000, LABELLED),
    "a key of 1 MB": groups({"metadata": {"labels": {LONG: "v"}}}, LABELLED),
}


def test_a_built_in_workload_of_any_size_is_sent(asking: Asking) -> None:
    """Make each searched place of a CronJob as costly as possible, with the label in the last place."""
    last = COSTLY | {"metadata": COSTLY["metadata"] | {"labels": dict(list(LONGEST.items())[1:]) | RESERVED}}
    cron_job = {
        "metadata": COSTLY["metadata"] | {"name": "hostile"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"metadata": COSTLY["metadata"], "spec": {"template": last}}},
    }
    assert asking.about(f"/apis/batch/v1/namespaces/{asking.namespace}/cronjobs", cron_job) == {"workloads"}


@pytest.mark.parametrize("name", CUSTOM)
def test_a_custom_resource_of_any_size_and_types_is_sent(name: str, asking: Asking) -> None:
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "hostile"}, "spec": CUSTOM[name]}
    path = f"/apis/ray.io/v1/namespaces/{asking.namespace}/rayclusters"
    assert asking.about(path, cluster) == {"workloads"}


def test_requests_of_ordinary_workloads_are_not_sent(asking: Asking, kubectl: Kubectl) -> None:
    """Replay ten minutes of a cluster: create 10 replicas, scale to 30, roll out, run a Job, cordon a node."""
    here = f"--namespace={asking.namespace}"
    asking.seen()
    thing = deployment("web", 10)
    thing["metadata"]["namespace"] = asking.namespace
    kubectl.apply(thing)
    kubectl("rollout", "status", "deployment/web", here, "--timeout=90s")
    kubectl("scale", "deployment/web", "--replicas=30", here)
    kubectl("set", "image", "deployment/web", "main=registry.example.com/app:2", here)
    kubectl("rollout", "status", "deployment/web", here, "--timeout=90s")
    work = job("work")
    work["metadata"]["namespace"] = asking.namespace
    kubectl.apply(work)
    kubectl("wait", "--for=create", "pod", "--selector=job-name=work", here, "--timeout=60s")
    node = kubectl.get("nodes")["items"][0]["metadata"]["name"]
    kubectl("cordon", node)
    kubectl("uncordon", node)
    kubectl("delete", "deployment/web", "job/work", here, "--cascade=foreground", "--timeout=90s")
    assert asking.seen() == []


def test_each_pod_in_a_namespace_with_a_capacity_label_is_sent_once(asking: Asking, kubectl: Kubectl) -> None:
    path = pods_in(asking.namespace)
    kubectl("label", "namespace", asking.namespace, "spotgate.dev/capacity=spot")
    try:
        for _ in range(TRIES):  # until the API server has seen the label
            if called := asking.about(path, pod("plain")):
                break
        assert called == {"mutate-spot-namespaces", "spot-namespaces"}
        assert asking.about(path, pod("plain"), CONTROLLER) == {"mutate-spot-namespaces"}
        assert asking.about(path, labeled(pod("plain"), RESERVED)) == called
    finally:
        kubectl("label", "namespace", asking.namespace, "spotgate.dev/capacity-")


def test_a_namespace_cannot_exclude_itself(asking: Asking) -> None:
    for thing in (
        {"metadata": {"name": "cw-mine"}},
        {"metadata": {"name": "mine", "labels": {"ns.coreweave.cloud/org": "control-plane"}}},
        {"metadata": {"name": "mine", "labels": SPOT | RESERVED}},
    ):
        assert asking.about("/api/v1/namespaces", thing) == {"namespaces"}


def test_a_pod_with_empty_fields_is_not_sent(asking: Asking) -> None:
    thing = pod("plain") | {"spec": pod_spec(nodeSelector={}, affinity={}, tolerations=[])}
    assert asking.about(pods_in(asking.namespace), thing) == set()
