"""Whatever a Pod or a Deployment looks like: its patch applies to it as it is written, and says everything."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from webhook.bundle import Bundle, load_bundle
from webhook.cli.judging import Judge, Judgement
from webhook.cli.kinds import Kinds
from webhook.cluster.files import view_of
from webhook.cluster.manifests import Manifest
from webhook.context import Context, Phase
from webhook.documents import read_documents
from webhook.review import UserInfo

POOLS: Final = [
    {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "computeClass": "spot",
            "instanceType": instance_type,
            "targetNodes": 1,
            "nodeTaints": [{"key": "spot", "value": "true", "effect": effect}],
        },
    }
    for name, instance_type, effect in (
        ("gpu-spot", "gd-8xh100ib-i128", "NoExecute"),
        ("cpu-spot", "cd-gp-a192-genoa", "NoSchedule"),
    )
]
NULLABLE: Final = ("tolerations", "nodeSelector", "affinity", "terminationGracePeriodSeconds", "initContainers")


def manifest(value: dict[str, Any]) -> Manifest:
    (document,) = read_documents(json.dumps(value).encode(), "x.json")
    return Manifest(document, (), value["apiVersion"], value["kind"], value)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle()


def judge(bundle: Bundle, value: dict[str, Any]) -> Judgement:
    view = view_of(map(manifest, POOLS), bundle.providers, complete=True)
    context = Context(phase=Phase.VALIDATE, now=datetime(2027, 1, 1, tzinfo=UTC), view=view)
    judge = Judge(bundle.index, Kinds(bundle, ()), context, operation="CREATE", user=UserInfo())
    return judge.judge(manifest(value))


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """A Pod or a Deployment as a person may write it: with nulls, and mostly on spot."""
    pod = draw(
        strategies.pods(
            labels={"spotgate.dev/capacity": st.sampled_from(("spot", "spot-preferred")), "app": st.just("x")},
            annotations={"spotgate.dev/node-pool": st.sampled_from(("gpu-spot", "cpu-spot", "none"))},
        )
    )
    for field in draw(st.sets(st.sampled_from(NULLABLE))):
        pod["spec"].setdefault(field, None)
    for container in pod["spec"]["containers"]:
        if draw(st.booleans()):
            container.setdefault("lifecycle", draw(st.sampled_from((None, {"preStop": None}))))
    if draw(st.booleans()):
        return pod
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": template}}


@given(value=written())
def test_patch_applies_to_what_is_written_and_then_nothing_is_left_to_patch(
    bundle: Bundle, value: dict[str, Any]
) -> None:
    judged = judge(bundle, value)
    assert judged.problem is None
    patched = jsonpatch.apply_patch(value, list(judged.patch))
    again = judge(bundle, patched)
    assert again.patch == ()
    assert again.findings == judged.findings


@given(value=written())
def test_judging_leaves_the_manifest_alone_and_comes_to_the_same_again(bundle: Bundle, value: dict[str, Any]) -> None:
    before = json.dumps(value)
    assert judge(bundle, value) == judge(bundle, value)
    assert json.dumps(value) == before
