"""SpotSuitability: what does not belong on spot, or is not ready for a reclaim, is said once, where its author is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.objects import KARPENTER, cks_pool, view_of
from tests.rules.conftest import owned_by, subject_of
from tests.rules.judged import (
    CLUSTER,
    NAMESPACE,
    SPOT,
    blocks_of,
    in_template,
    judged,
    loaded,
    pod,
    template,
    warned,
    with_budgets,
    workload,
    yaml_of,
)
from tests.strategies import pods
from webhook.model.decision import Finding, Outcome
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.protocol import Facts
from webhook.rules.spot_suitability.jobs import job_violations
from webhook.rules.spot_suitability.rule import KIND as POLICY_KIND
from webhook.rules.spot_suitability.rule import SpotSuitability

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

KIND = "SpotSuitability"
PROBE = {"httpGet": {"path": "/ready", "port": 8080}}
READY: JSON = {"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}], "readinessProbe": PROBE}
COVERED = with_budgets({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"})
UNCOVERED = with_budgets()
ON_DEMAND = {"metadata": {"labels": {"spotgate.dev/capacity": "on-demand"}}}
REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


def said(value: JSON, view: ClusterView = COVERED, **how: Any) -> list[Finding]:
    return judged(value, KIND, view=view, **how)


def one(value: JSON, view: ClusterView = COVERED, **how: Any) -> Finding:
    (finding,) = said(value, view, **how)
    assert finding.outcome is Outcome.WARN
    assert len(finding.reason) <= 115
    assert yaml_of(finding)
    return finding


def reasons(value: JSON, view: ClusterView = COVERED, **how: Any) -> list[str]:
    return [finding.reason.partition(":")[0] for finding in said(value, view, **how)]


def spot(*, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> JSON:
    """Return a template that is fit for spot."""
    metadata = {"labels": {"app": "web", **SPOT, **(labels or {})}, "annotations": annotations or {}}
    return template(metadata=metadata, **{"containers": [READY], **spec})


def service(replicas: int = 6, kind: str = "Deployment", **spec: Any) -> JSON:
    return workload(kind, of=spot(**spec), replicas=replicas)


def mounted(name: str, path: str, *, read_only: bool = False, **source: Any) -> JSON:
    """Return a container that sees such a volume."""
    container = {**READY, "volumeMounts": [{"name": name, "mountPath": path, "readOnly": read_only}]}
    return {"containers": [container], "volumes": [{"name": name, **source}]}


# Nothing to say


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("a service with replicas, a probe and a budget", service()),
        ("a replicated database", service(3, "StatefulSet")),
        ("a Job", workload("Job", "batch/v1", of=spot(containers=[{"name": "app"}]))),
        ("workers that do lost work again", workload(of=spot(labels={"spotgate.dev/workload-class": "queue-worker"}, containers=[{"name": "app"}]), replicas=2)),
        ("a queue worker, which declares no port", workload(of=spot(containers=[{"name": "app"}]), replicas=2)),
        ("a service whose replicas are not known yet", workload(of=spot(), replicas="${N}")),
        ("a service that is scaled to zero", workload(of=spot(containers=[{"name": "app"}]), replicas=0)),
        ("a singleton that is not on spot", workload("StatefulSet", of=template(), replicas=1)),
        ("a singleton that stays on demand", workload(of=template(metadata={"labels": {"spotgate.dev/capacity": "on-demand"}}), replicas=1)),
        ("a bare Pod that is not on spot", pod()),
        ("a Pod of a Deployment, which was judged itself", pod(metadata={"labels": SPOT, "ownerReferences": owned_by("ReplicaSet", "apps/v1")})),
        ("a ReplicaSet of a Deployment, while it is rolled out", workload("ReplicaSet", of=spot(), replicas=1, metadata={"ownerReferences": owned_by("Deployment", "apps/v1")})),
        ("an executor, which its driver makes", pod(metadata={"labels": {**SPOT, "spark-role": "executor"}, "ownerReferences": owned_by("Pod", "v1")})),
        ("workers of a Ray cluster", {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"groupName": "g", "template": spot()}]}}),
    ],
)  # fmt: skip
def test_nothing_is_said_of(what: str, value: JSON) -> None:
    assert said(value) == [], what


# Which work belongs on spot


@pytest.mark.parametrize(
    ("value", "name", "at"),
    [
        ({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {"headGroupSpec": {"template": spot()}}}, "Ray head", "spec.headGroupSpec.template"),
        ({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": {"mpiReplicaSpecs": {"Launcher": {"template": spot()}, "Worker": {"template": spot()}}}}, "MPI launcher", "spec.mpiReplicaSpecs.Launcher.template"),
        (pod(metadata={"labels": {**SPOT, "spark-role": "driver"}}), "Spark driver", ""),
        (workload(of=spot(labels={"dask.org/component": "scheduler"}), replicas=1), "Dask scheduler", "spec.template"),
    ],
)  # fmt: skip
def test_what_leads_the_work_of_others_belongs_on_demand(value: JSON, name: str, at: str) -> None:
    finding = one(value)
    assert finding.reason == f"the {name} holds the state of the whole job: one reclaimed node ends all of it"
    assert finding.field == f'{at}.metadata.labels["spotgate.dev/capacity"]'.lstrip(".")
    to_write: JSON = ON_DEMAND
    for step in reversed(at.split(".") if at else []):
        to_write = {step: to_write}
    assert yaml_of(finding) == to_write


def ray(kind: str, *, metadata: JSON | None = None, head: JSON | None = None, **cluster: Any) -> JSON:
    inner = {"RayCluster": [], "RayService": ["rayClusterConfig"], "RayJob": ["rayClusterSpec"]}[kind]
    spec: JSON = {"headGroupSpec": {"template": head or spot()}, **cluster}
    for member in inner:
        spec = {member: spec}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "r", **(metadata or {})}, "spec": spec}


@pytest.mark.parametrize(
    ("driver", "field"),
    [
        ({"labels": SPOT}, "spec.driver.labels"),
        ({"template": spot()}, "spec.driver.template.metadata.labels"),
        ({"labels": SPOT, "template": template()}, "spec.driver.labels"),
    ],
)
def test_a_spark_driver_is_judged_by_the_operators_fields_and_by_its_template_once(driver: JSON, field: str) -> None:
    spec = {"driver": driver, "executor": driver}
    metadata = {"name": "s"}
    for kind, inner in (("SparkApplication", spec), ("ScheduledSparkApplication", {"template": spec})):
        value = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": inner}
        place = "spec" if kind == "SparkApplication" else "spec.template"
        finding = one(value)
        assert finding.field == f'{place}{field.removeprefix("spec")}["spotgate.dev/capacity"]'
        to_write: JSON = {"driver": {"labels": {"spotgate.dev/capacity": "on-demand"}}}
        assert yaml_of(finding) == {"spec": to_write if kind == "SparkApplication" else {"template": to_write}}


LOST_HEAD = ["the Ray head holds the state of the whole job"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (ray("RayCluster", gcsFaultToleranceOptions={"redisAddress": "redis:6379"}), []),
        (ray("RayService", gcsFaultToleranceOptions={}), []),
        (ray("RayJob", gcsFaultToleranceOptions={"backend": "rocksdb"}), []),
        (ray("RayCluster", gcsFaultToleranceOptions=None), LOST_HEAD),
        (ray("RayService", metadata={"annotations": {"ray.io/ft-enabled": "true"}}), []),
        (ray("RayCluster", metadata={"annotations": {"ray.io/ft-enabled": "false"}}), LOST_HEAD),
        (ray("RayCluster", head=spot(annotations={"ray.io/ft-enabled": "true"})), []),
    ],
)
def test_a_ray_head_whose_state_is_kept_elsewhere_may_be_on_spot(value: JSON, found: list[str]) -> None:
    assert reasons(value) == found


def test_a_bare_pod_is_gone_for_good() -> None:
    finding = one(pod(metadata={"labels": SPOT}))
    assert finding.id == "spot-suitability/bare-pod"
    assert yaml_of(finding)["kind"] == "Job"


@pytest.mark.parametrize(
    "value",
    [
        service(1, "StatefulSet"),
        service(1, **mounted("store", "/store", persistentVolumeClaim={"claimName": "store"})),
    ],
)
def test_a_stateful_singleton_belongs_on_demand(value: JSON) -> None:
    finding = one(value)
    assert finding.id == "spot-suitability/stateful-singleton"
    assert yaml_of(finding) == in_template(ON_DEMAND)


def test_a_claim_counts_for_a_singleton_without_a_port_too() -> None:
    stored = mounted("store", "/store", persistentVolumeClaim={"claimName": "store"})
    stored["containers"][0]["ports"] = []
    assert reasons(service(1, **stored), UNCOVERED) == ["its only replica holds state"]


def test_a_singleton_that_only_reads_a_claim_is_not_stateful() -> None:
    claim = mounted("models", "/models", persistentVolumeClaim={"claimName": "models", "readOnly": True})
    assert reasons(service(1, **claim)) == ["it has one replica"]


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        (1, "it has one replica: unless an autoscaler keeps more, one reclaim may stop the service"),
        (2, "it has 2 replicas: unless an autoscaler keeps more, one reclaim may stop the service"),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_a_service_needs_replicas_to_spare(kind: str, replicas: int, reason: str) -> None:
    loose = with_budgets({"selector": {}, "maxUnavailable": 1})
    finding = one(service(replicas, kind), loose)
    assert finding.reason == reason
    assert (finding.field, yaml_of(finding)) == ("spec.replicas", {"spec": {"replicas": 3}})
    assert reasons(service(replicas, kind), loose, minimumReplicas=replicas) == []


def test_replicas_that_are_not_written_are_one() -> None:
    assert reasons(workload(of=spot()), UNCOVERED) == ["it has one replica"]


def test_who_chose_spot_without_the_label_is_told_to_remove_that() -> None:
    selecting = template(containers=[READY], nodeSelector={"compute.coreweave.com/node-pool": "cpu-spot"})
    finding = one(workload("StatefulSet", of=selecting, replicas=1))
    assert finding.field == "spec.template.spec.nodeSelector"
    assert finding.fix.startswith("run it on demand, and remove its own choice of spot:\n")


# Readiness


def test_a_service_without_a_readiness_probe() -> None:
    finding = one(service(containers=[{"name": "sidecar"}, {"name": "app", "ports": [{"containerPort": 9000}]}]))
    assert finding.id == "spot-suitability/readiness-probe"
    assert finding.field == "spec.template.spec.containers[1].readinessProbe"
    (container,) = yaml_of(finding)["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["readinessProbe"]["httpGet"]["port"]) == ("app", 9000)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"labels": {"spotgate.dev/workload-class": "stateless"}}, ["no container has a readiness probe"]),
        ({"labels": {"spotgate.dev/workload-class": "batch"}}, []),
        ({}, []),
    ],
)
def test_the_class_says_whether_pods_without_a_port_serve(how: JSON, found: list[str]) -> None:
    assert reasons(service(containers=[{"name": "app"}], **how)) == found


def test_a_single_replica_is_not_asked_for_readiness_as_well() -> None:
    assert reasons(service(1, containers=[{**READY, "readinessProbe": None}])) == ["it has one replica"]


# PodDisruptionBudgets


def test_a_service_that_no_budget_covers() -> None:
    finding = one(service(), UNCOVERED)
    assert finding.id == "spot-suitability/disruption-budget-missing"
    budget = yaml_of(finding)
    assert (budget["metadata"], budget["spec"]["selector"]) == (
        {"name": "web", "namespace": NAMESPACE},
        {"matchLabels": {"app": "web"}},
    )
    assert said(service(), with_budgets(budget["spec"])) == []


@pytest.mark.parametrize(
    "selector",
    [
        None,
        {"matchLabels": {"app": "api"}},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    ],
)
def test_a_budget_of_other_pods_covers_nothing_here(selector: JSON | None) -> None:
    view = with_budgets({"selector": selector, "minAvailable": 1})
    assert reasons(service(), view) == ["no PodDisruptionBudget covers its Pods"]


def test_a_budget_in_another_namespace_covers_nothing_here() -> None:
    assert COVERED.budgets is not None
    view = msgspec.structs.replace(COVERED, budgets={"team-b": COVERED.budgets[NAMESPACE]})
    assert reasons(service(), view) == ["no PodDisruptionBudget covers its Pods"]


def test_unknown_budgets_are_said_to_be_unknown_and_not_missing() -> None:
    (finding,) = said(service(), CLUSTER)
    assert finding.id == "spot-suitability/disruption-budget-unknown"
    assert finding.outcome is Outcome.WARN
    assert "ServiceAccount" in finding.fix
    (finding,) = said(service(), CLUSTER, offline=True)
    assert finding.outcome is Outcome.INDETERMINATE
    assert "--state" in finding.fix
    assert reasons(service(1), CLUSTER) == ["it has one replica"]


@pytest.mark.parametrize(
    ("bound", "replicas", "blocks"),
    [
        ({"maxUnavailable": 0}, 6, True),
        ({"maxUnavailable": "0%"}, 6, True),
        ({"maxUnavailable": "1%"}, 6, False),
        ({"minAvailable": "100%"}, 6, True),
        ({"minAvailable": 6}, 6, True),
        ({"minAvailable": 5}, 6, False),
        ({"minAvailable": "90%"}, 6, True),
        ({"minAvailable": "50%"}, 3, False),
        ({"minAvailable": "50"}, 3, False),
    ],
)
def test_a_budget_that_blocks_every_eviction(bound: JSON, replicas: int, *, blocks: bool) -> None:
    found = reasons(service(replicas), with_budgets({"selector": {}, **bound}))
    assert found == (["PodDisruptionBudget budget-0 blocks every eviction"] if blocks else [])


def test_a_budget_blocks_the_pods_of_jobs_too() -> None:
    job = workload("Job", "batch/v1", of=spot(), parallelism=4)
    finding = one(job, with_budgets({"selector": {}, "maxUnavailable": 0}))
    assert finding.id == "spot-suitability/disruption-budget-blocks"
    assert yaml_of(finding) == {"spec": {"maxUnavailable": 1}}
    assert said(job, with_budgets({"selector": {}, "minAvailable": 4})) == []


def test_two_budgets_block_each_other() -> None:
    view = with_budgets({"selector": {}, "maxUnavailable": 1}, {"selector": {}, "minAvailable": 1})
    assert one(service(), view).id == "spot-suitability/disruption-budget-several"


# Taken for protection


@pytest.mark.parametrize(
    ("key", "value"),
    [("karpenter.sh/do-not-disrupt", "true"), ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")],
)
def test_an_annotation_that_does_not_stop_a_reclaim(key: str, value: str) -> None:
    finding = one(service(annotations={key: value}))
    assert finding.reason == f"{key} does not stop a reclaim: the provider takes the node all the same"
    assert finding.field == f'spec.template.metadata.annotations["{key}"]'
    assert said(service(annotations={key: "maybe"})) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("true", "karpenter.sh/do-not-disrupt blocks its eviction: a reclaim kills it without SIGTERM"),
        (
            "1h30m",
            "karpenter.sh/do-not-disrupt blocks its eviction for its first 1h30m: a reclaim kills it without SIGTERM",
        ),
        *((malformed, None) for malformed in ("True", "maybe", "30", "0s", "-5m", "30 m", "")),
    ],
)
def test_on_karpenter_an_annotation_keeps_the_drain_from_stopping_the_pod(value: str, reason: str | None) -> None:
    view = replace(COVERED, pools=(), providers=frozenset({"karpenter"}))
    value_of = service(
        annotations={"karpenter.sh/do-not-disrupt": value}, nodeSelector={"karpenter.sh/capacity-type": "spot"}
    )

    assert [each.reason for each in said(value_of, view)] == ([reason] if reason else [])


# Data on the node


@pytest.mark.parametrize(
    "volume",
    [
        mounted("data", "/srv", hostPath={"path": "/mnt/disk", "type": "Directory"}),
        mounted("work", "/checkpoints", hostPath={"path": "/mnt/disk"}),
        mounted("pg", "/var/lib/postgresql/data", hostPath={"path": "/mnt/disk"}),
    ],
)
def test_data_on_the_node_is_lost_with_it(volume: JSON) -> None:
    finding = one(service(**volume))
    assert finding.field == "spec.template.spec.volumes[0].hostPath"
    name, path = volume["volumes"][0]["name"], volume["containers"][0]["volumeMounts"][0]["mountPath"]
    assert finding.reason == f"what is written to {path} is lost with the spot node: `{name}` is a hostPath"
    (mended,) = yaml_of(finding)["spec"]["template"]["spec"]["volumes"]
    assert said(service(**{**volume, "volumes": [mended]})) == []


@pytest.mark.parametrize(
    ("what", "volume"),
    [
        ("scratch", mounted("scratch", "/scratch", hostPath={"path": "/mnt/disk"})),
        ("a cache of data", mounted("data-cache", "/data", hostPath={"path": "/mnt/disk"})),
        ("what ends with its Pod", mounted("checkpoints", "/checkpoints", emptyDir={})),
        ("what is only read", mounted("data", "/data", read_only=True, hostPath={"path": "/mnt/data"})),
        ("a socket", mounted("data", "/run/data", hostPath={"path": "/run/data.sock", "type": "Socket"})),
        ("a claim", mounted("data", "/data", persistentVolumeClaim={"claimName": "data"})),
    ],
)
def test_no_data_on_the_node(what: str, volume: JSON) -> None:
    assert said(service(**volume)) == [], what


# Node Termination Handler


def test_node_termination_handler_beside_karpenter() -> None:
    handler = template(containers=[{"name": "h", "image": "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25"}])
    rule = POLICY_KIND.compile(POLICY_KIND.spec(), Facts({"karpenter": KARPENTER}))
    assert isinstance(rule, SpotSuitability)
    subject = subject_of({"metadata": {}, **handler}, template=True)
    subject.request.object = msgspec.Raw(b"{}")
    for shown, found in (("karpenter", 1), ("eks", 0)):
        context = Context(phase=Phase.VALIDATE, now=utc_now(), view=view_of(shown=(shown,)))
        violations = list(rule.validate(subject, context))
        assert len(violations) == found
    assert said(workload("DaemonSet", of=handler)) == []


# What a policy can set


def test_a_team_turns_findings_to_denials() -> None:
    for value in (service(1, "StatefulSet"), pod(metadata={"labels": SPOT})):
        assert [each.outcome for each in said(value, enforcement="deny")] == [Outcome.DENY]
    findings = {"statefulSingleton": "warn", "barePod": "off"}
    assert [each.outcome for each in said(service(1, "StatefulSet"), enforcement="deny", findings=findings)] == [
        Outcome.WARN
    ]
    assert said(pod(metadata={"labels": SPOT}), enforcement="deny", findings=findings) == []


def test_controllers_pods_are_judged_where_denials_reach_them() -> None:
    owned = {"labels": SPOT, "ownerReferences": owned_by("ReplicaSet", "apps/v1")}
    annotated = pod(metadata={**owned, "annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    assert said(annotated, user=REPLICASET_CONTROLLER, enforcement="deny") == []
    (finding,) = said(annotated, user=REPLICASET_CONTROLLER, enforcement="deny", controllerCreated="deny")
    assert finding.outcome is Outcome.DENY


def test_what_an_unknown_controller_makes_is_judged_itself() -> None:
    operator = {"ownerReferences": owned_by("Postgres", "acme.example/v1")}
    assert reasons(workload("StatefulSet", of=spot(), replicas=1, metadata=operator)) == [
        "its only replica holds state"
    ]
    assert said(pod(metadata={"labels": SPOT, **operator})) == []


def test_a_template_that_an_update_leaves_alone_is_not_judged_again() -> None:
    before, after = service(1), service(1) | {"metadata": {"name": "web", "labels": {"a": "b"}}}
    assert said(after, old=before) == []
    assert reasons(service(1, labels={"version": "2"}), old=before) == ["it has one replica"]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param(6, 1, ["it has one replica"], id="to one"),
        pytest.param(6, 2, ["it has 2 replicas"], id="to too few"),
        pytest.param(2, 1, ["it has one replica"], id="fewer than too few"),
        pytest.param(0, 1, ["it has one replica"], id="from none"),
        pytest.param(6, 3, [], id="to enough"),
        pytest.param(1, 6, [], id="to more"),
        pytest.param(1, 2, [], id="to more, and still too few"),
        pytest.param(6, 0, [], id="to none"),
        pytest.param(1, 1, [], id="as before"),
    ],
)
def test_an_update_of_replicas_alone_is_told_of_what_it_changes(before: int, after: int, found: list[str]) -> None:
    unready: JSON = {
        "containers": [{**READY, "readinessProbe": None}],
        "annotations": {"karpenter.sh/do-not-disrupt": "true"},
    }
    assert reasons(service(after, **unready), old=service(before, **unready), view=with_budgets()) == found


def test_a_stateful_service_that_becomes_a_singleton_is_told() -> None:
    assert reasons(service(1, "StatefulSet"), old=service(6, "StatefulSet")) == ["its only replica holds state"]


def test_fewer_replicas_may_make_a_budget_block_every_eviction() -> None:
    view = with_budgets({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 3})
    (found,) = said(service(3), view, old=service(4))
    assert found.reason.startswith("PodDisruptionBudget budget-0 blocks every eviction")
    assert found.field == "spec.template.metadata.labels"
    assert said(service(4), view, old=service(5)) == []


def test_other_policies_are_not_asked_of_a_template_that_stays() -> None:
    bad = {"qos.coreweave.cloud/interruptible": "true"}
    assert (
        judged(service(2, labels=bad), "ReservedLabels", old=service(3, labels=bad), domains=["coreweave.cloud"]) == []
    )


def test_a_pool_without_spot_has_nothing_to_be_said_of() -> None:
    selecting = template(nodeSelector={"compute.coreweave.com/node-pool": "cpu"})
    assert said(workload(of=selecting, replicas=1), view_of(cks_pool("cpu", spot=False))) == []


# Its page


def test_the_page_says_what_the_webhook_says() -> None:
    (policy,) = blocks_of("spot-suitability.md", "yaml")
    (message,) = blocks_of("spot-suitability.md")
    assert loaded(policy) == 1
    blocking = with_budgets({"selector": {}, "maxUnavailable": 0})
    assert blocking.budgets is not None
    (budget,) = blocking.budgets[NAMESPACE]
    view = msgspec.structs.replace(blocking, budgets={NAMESPACE: (msgspec.structs.replace(budget, name="ledger"),)})
    assert warned(said(service(3), view)) == message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{minimumReplicas: 0}", "minimumReplicas"),
        ("{minimumReplicas: '3'}", "minimumReplicas"),
        ("{provider: ckz}", "there is no CapacityProvider `ckz`, did you mean `cks`?"),
        ("{drivers: [{name: nobody}]}", "say which Pods are meant"),
        ("{findings: {barePods: warn}}", "did you mean `barePod`?"),
    ],
)
def test_a_spec_that_means_nothing_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(PolicyErrors) as refused:
        loaded(f"apiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {{name: p}}\nspec: {spec}\n")
    assert problem in str(refused.value)


@pytest.mark.parametrize("off", ["off", '"off"'])
def test_off_is_a_word_though_yaml_takes_it_for_false(off: str) -> None:
    policy = "apiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: p}\nspec: "
    assert loaded(f"{policy}{{enforcement: {off}}}") == 0
    assert loaded(f"{policy}{{findings: {{driver: {off}}}}}") == 1


# Whatever the Pod

NOISE = {"karpenter.sh/do-not-disrupt": st.just("true")}


@given(pods(labels={"spotgate.dev/capacity": st.sampled_from(("on-demand", "Spot", ""))}, annotations=NOISE))
def test_nothing_is_said_of_a_pod_that_does_not_target_spot(value: JSON) -> None:
    assert said(value) == []


@given(pods(labels={"spotgate.dev/capacity": st.just("spot")}, annotations=NOISE), st.integers(0, 4))
def test_every_finding_names_its_place_and_ends_in_yaml(value: JSON, replicas: int) -> None:
    of = {"metadata": value["metadata"], "spec": value["spec"]}
    for thing in (value, workload(of=of, replicas=replicas)):
        for finding in said(thing, UNCOVERED):
            assert finding.field
            assert yaml_of(finding)


IGNORING: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
FAILING: Final = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize(
    ("around", "restart", "grace", "expected"),
    [
        ({}, "Never", 30, ["job-failure-policy"]),
        ({}, "OnFailure", 30, []),
        ({"backoffLimit": 0}, "Never", 30, ["job-fails"]),
        ({"backoffLimit": 0}, "OnFailure", 30, ["job-fails"]),
        ({"backoffLimit": 0, "podFailurePolicy": FAILING}, "Never", 30, ["job-fails"]),
        ({"backoffLimit": 0, "podFailurePolicy": IGNORING}, "Never", 30, []),
        ({"podFailurePolicy": IGNORING, "podReplacementPolicy": "Failed"}, "Never", 200, []),
        ({"podReplacementPolicy": "Failed"}, "OnFailure", 61, ["late-replacement"]),
        ({"podReplacementPolicy": "Failed"}, "OnFailure", 60, []),
        ({"podFailurePolicy": {"rules": [7, {"action": "Ignore", "onPodConditions": [7]}]}}, "Never", 30, []),
    ],
)
def test_what_a_reclaim_does_to_a_job_is_read_around_its_template(
    around: dict[str, Any], restart: str, grace: int, expected: list[str]
) -> None:
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": grace, "containers": [{"name": "main"}]}
    pod = {"metadata": {"ownerReferences": owned_by("Job", "batch/v1")}, "spec": spec}
    subject = subject_of(pod, template=True, path=("spec", "template"), object={"spec": {**around, "template": pod}})
    assert [violation.id for violation in job_violations(subject)] == expected
