"""Pods with fields outside a pod template: rules see Pods, and findings and patches are mapped back."""

from __future__ import annotations

from typing import Any, Final

import pytest

from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.model.patch import Operation

WORKLOADS: Final = load_bundle([SHIPPED]).index.workloads
GPU: Final = {"limits": {"nvidia.com/gpu": "1"}}
SPOT: Final = {"spotgate.dev/capacity": "spot"}


def pods_of(group: str, resource: str, spec: dict[str, Any], **metadata: Any) -> list[Any]:
    return list(WORKLOADS[group, resource].templates({"metadata": metadata, "spec": spec}))


def moved(template: Any, *pairs: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [(operation.path, operation.value) for operation in template.operations(Operation(*pair) for pair in pairs)]


def test_kserve_mixes_pod_fields_with_its_own_and_the_container() -> None:
    predictor = {"labels": {"a": "b"}, "minReplicas": 1, "model": {"resources": GPU}, "containers": [{"name": "agent"}]}
    (pod,) = pods_of("serving.kserve.io", "inferenceservices", {"predictor": predictor}, labels=SPOT)
    assert pod.value["metadata"] == {"labels": {"a": "b", **SPOT}}
    assert pod.value["spec"]["containers"] == [{"name": "agent"}, {"resources": GPU}]
    assert pod.field("spec.containers[1].lifecycle") == "spec.predictor.model.lifecycle"
    assert pod.field("spec.containers[0].lifecycle") == "spec.predictor.containers[0].lifecycle"
    assert pod.field('metadata.labels["a"]') == 'spec.predictor.labels["a"]'
    assert pod.field('metadata.labels["spotgate.dev/capacity"]') == 'metadata.labels["spotgate.dev/capacity"]'
    assert moved(
        pod,
        ("/spec/terminationGracePeriodSeconds", 60),
        ("/spec/containers/1/lifecycle", {}),
        ("/spec/tolerations/-", {}),
    ) == [
        ("/spec/predictor/terminationGracePeriodSeconds", 60),
        ("/spec/predictor/model/lifecycle", {}),
        ("/spec/predictor/tolerations/-", {}),
    ]


def test_an_argo_step_inherits_from_the_workflow_and_step_lists_make_no_pods() -> None:
    selector = {"disk": "ssd"}
    spec = {
        "podMetadata": {"labels": SPOT},
        "nodeSelector": selector,
        "templateDefaults": {"tolerations": [{"key": "t"}]},
        "templates": [
            {"name": "main", "steps": [[{"name": "a", "template": "train"}]]},
            {"name": "train", "container": {"resources": GPU}},
            {"name": "set", "containerSet": {"containers": [{"name": "x"}]}, "nodeSelector": {"own": "1"}},
        ],
    }
    train, several = pods_of("argoproj.io", "workflows", spec)
    assert train.value["metadata"]["labels"] == SPOT
    assert (train.value["spec"]["nodeSelector"], train.value["spec"]["tolerations"]) == (selector, [{"key": "t"}])
    assert train.field("spec.nodeSelector") == "spec.nodeSelector"
    assert train.field("spec.tolerations[0]") == "spec.templateDefaults.tolerations[0]"
    assert several.value["spec"]["nodeSelector"] == {"own": "1"}
    assert several.field("spec.containers[0].image") == "spec.templates[2].containerSet.containers[0].image"
    # A step's selector replaces that of the workflow, so it is copied; a step has no grace period.
    assert moved(train, ("/spec/nodeSelector/spot", "1"), ("/spec/terminationGracePeriodSeconds", 60)) == [
        ("/spec/templates/1/nodeSelector", selector),
        ("/spec/templates/1/nodeSelector/spot", "1"),
    ]
    assert moved(several, ("/spec/nodeSelector/spot", "1")) == [("/spec/templates/2/nodeSelector/spot", "1")]
    assert selector == {"disk": "ssd"}


@pytest.mark.parametrize(
    ("executor", "limits", "field"),
    [
        ({}, {"amd.com/gpu": 2}, "spec.executor.resources"),
        ({"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "4"}}}, {}]}}}, {"amd.com/gpu": 2, "cpu": "4"}, "spec.executor.template.spec.containers[0].resources"),
    ],
)  # fmt: skip
def test_spark_executor_gpus_count_with_and_without_a_template(
    executor: dict[str, Any], limits: dict[str, Any], field: str
) -> None:
    spec = {"driver": {}, "executor": {**executor, "gpu": {"name": "amd.com/gpu", "quantity": 2}}}
    driver, pod = pods_of("sparkoperator.k8s.io", "sparkapplications", spec)
    assert "containers" not in driver.value["spec"]
    assert pod.value["spec"]["containers"][0]["resources"]["limits"] == limits
    assert pod.field("spec.containers[0].resources") == field


def test_dynamo_service_gpus_count_as_container_gpus() -> None:
    service = {"resources": {"limits": {"gpu": "4"}}, "extraPodSpec": {"mainContainer": {"image": "x"}}}
    (pod,) = pods_of("nvidia.com", "dynamographdeployments", {"services": {"worker": service}})
    assert pod.value["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert "resources" not in service["extraPodSpec"]["mainContainer"]
    assert pod.field('metadata.labels["a"]') == 'spec.services.worker.extraPodMetadata.labels["a"]'


def test_a_clique_has_labels_next_to_its_spec() -> None:
    clique = {"name": "decode", "labels": SPOT, "spec": {"podSpec": {"containers": [{"name": "a"}]}}}
    (pod,) = pods_of("grove.io", "podcliquesets", {"template": {"cliques": [clique]}})
    assert pod.value == {"metadata": {"labels": SPOT}, "spec": {"containers": [{"name": "a"}]}}
    assert pod.field("spec.nodeSelector") == "spec.template.cliques[0].spec.podSpec.nodeSelector"


@pytest.mark.parametrize("wrong", [True, [{}], "x"])
def test_a_value_of_the_wrong_type_above_the_spec_is_kept_for_the_pod_parser(wrong: Any) -> None:
    (pod,) = pods_of("grove.io", "podcliquesets", {"template": {"cliques": [{"name": "decode", "spec": wrong}]}})
    assert pod.value["spec"] == wrong


def test_fields_that_knative_rejects_are_not_written() -> None:
    (pod,) = pods_of("serving.knative.dev", "services", {"template": {"spec": {"containers": [{}]}}})
    assert moved(pod, ("/spec/nodeSelector", {"a": "b"})) == []


def test_the_listener_of_github_runners_is_not_placed() -> None:
    spec = {"template": {"spec": {}}, "listenerTemplate": {"metadata": {"labels": SPOT}}}
    runner, listener = pods_of("actions.github.com", "autoscalingrunnersets", spec)
    assert moved(runner, ("/spec/nodeSelector", {"a": "b"})) == [("/spec/template/spec/nodeSelector", {"a": "b"})]
    assert listener.value["metadata"] == {"labels": SPOT}
    assert moved(listener, ("/spec/nodeSelector", {"a": "b"}), ("/spec/terminationGracePeriodSeconds", 60)) == []


@pytest.mark.parametrize("wrong", [7, [1], "x"])
@pytest.mark.parametrize("member", ["predictor", "model", "labels", "containers", "podMetadata"])
def test_fields_of_wrong_types_are_kept_for_the_pod_parser(member: str, wrong: Any) -> None:
    predictor = {"predictor": wrong} if member == "predictor" else {"predictor": {"model": {}, member: wrong}}
    pods_of("serving.kserve.io", "inferenceservices", predictor, labels=wrong)
    pods_of(
        "argoproj.io", "workflows", {"podMetadata": wrong, "templates": [{"container": {}, "metadata": wrong}, wrong]}
    )
