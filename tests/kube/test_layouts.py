"""Pods whose fields stand elsewhere than in a pod template: shown to rules as Pods, findings and patches mapped back."""

from __future__ import annotations

from typing import Any, Final

import pytest

from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.model.patch import Operation

WORKLOADS: Final = load_bundle([SHIPPED]).index.workloads
GPU: Final = {"limits": {"nvidia.com/gpu": "1"}}
SPOT: Final = {"spotgate.dev/capacity": "spot"}


def found(group: str, resource: str, spec: dict[str, Any], **metadata: Any) -> list[Any]:
    return list(WORKLOADS[group, resource].templates({"metadata": metadata, "spec": spec}))


def moved(template: Any, *pairs: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [(each.path, each.value) for each in template.operations(Operation(*pair) for pair in pairs)]


def test_kserve_has_the_fields_of_a_pod_beside_its_own_and_the_container_in_one_of_them() -> None:
    predictor = {"labels": {"a": "b"}, "minReplicas": 1, "model": {"resources": GPU}, "containers": [{"name": "agent"}]}
    (pod,) = found("serving.kserve.io", "inferenceservices", {"predictor": predictor}, labels=SPOT)
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


def test_an_argo_step_has_what_the_workflow_gives_all_and_steps_make_no_pods() -> None:
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
    train, several = found("argoproj.io", "workflows", spec)
    assert train.value["metadata"]["labels"] == SPOT
    assert (train.value["spec"]["nodeSelector"], train.value["spec"]["tolerations"]) == (selector, [{"key": "t"}])
    assert train.field("spec.nodeSelector") == "spec.nodeSelector"
    assert train.field("spec.tolerations[0]") == "spec.templateDefaults.tolerations[0]"
    assert several.value["spec"]["nodeSelector"] == {"own": "1"}
    assert several.field("spec.containers[0].image") == "spec.templates[2].containerSet.containers[0].image"
    # A selector of its own replaces that of the workflow, so it is copied; a step has no grace period.
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
def test_the_gpus_of_a_spark_executor_count_with_and_without_a_template(
    executor: dict[str, Any], limits: dict[str, Any], field: str
) -> None:
    spec = {"driver": {}, "executor": {**executor, "gpu": {"name": "amd.com/gpu", "quantity": 2}}}
    driver, pod = found("sparkoperator.k8s.io", "sparkapplications", spec)
    assert "containers" not in driver.value["spec"]
    assert pod.value["spec"]["containers"][0]["resources"]["limits"] == limits
    assert pod.field("spec.containers[0].resources") == field


def test_the_gpus_of_a_dynamo_service_count_as_those_of_its_container() -> None:
    service = {"resources": {"limits": {"gpu": "4"}}, "extraPodSpec": {"mainContainer": {"image": "x"}}}
    (pod,) = found("nvidia.com", "dynamographdeployments", {"services": {"worker": service}})
    assert pod.value["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert "resources" not in service["extraPodSpec"]["mainContainer"]
    assert pod.field('metadata.labels["a"]') == 'spec.services.worker.extraPodMetadata.labels["a"]'


def test_a_clique_has_labels_beside_its_spec() -> None:
    clique = {"name": "decode", "labels": SPOT, "spec": {"podSpec": {"containers": [{"name": "a"}]}}}
    (pod,) = found("grove.io", "podcliquesets", {"template": {"cliques": [clique]}})
    assert pod.value == {"metadata": {"labels": SPOT}, "spec": {"containers": [{"name": "a"}]}}
    assert pod.field("spec.nodeSelector") == "spec.template.cliques[0].spec.podSpec.nodeSelector"


def test_what_knative_refuses_is_not_written() -> None:
    (pod,) = found("serving.knative.dev", "services", {"template": {"spec": {"containers": [{}]}}})
    assert moved(pod, ("/spec/nodeSelector", {"a": "b"})) == []


@pytest.mark.parametrize("wrong", [7, [1], "x"])
@pytest.mark.parametrize("member", ["predictor", "model", "labels", "containers", "podMetadata"])
def test_fields_of_wrong_types_are_left_for_whoever_reads_the_pod(member: str, wrong: Any) -> None:
    predictor = {"predictor": wrong} if member == "predictor" else {"predictor": {"model": {}, member: wrong}}
    found("serving.kserve.io", "inferenceservices", predictor, labels=wrong)
    found(
        "argoproj.io", "workflows", {"podMetadata": wrong, "templates": [{"container": {}, "metadata": wrong}, wrong]}
    )
