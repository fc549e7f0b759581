"""ReclaimNotice: invariants for any Pod, and the changes of a label that isn't the Pod's own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import jsonpatch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests import strategies
from tests.builders import BUNDLE, NAMESPACE, NOW, labeled, node_pool, pod, pod_spec, review
from webhook.commands import main
from webhook.documents import Document
from webhook.engine.engine import decide
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of
from webhook.kube.notice import ACTIONS, DIRECTORY, EVICT, INFORM, ON_RECLAIM, VOLUME
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase
from webhook.rules.reclaim_notice.rule import ANNOTATION_FIELD

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.model.decision import Finding

JSON = dict[str, Any]

SPOT = {"spotgate.dev/capacity": "spot"}
POOL = node_pool("spot", computeClass="spot", instanceType="turin-gp")
POOLS = view_of(
    [Manifest(Document("pool", 1, POOL), (), POOL["apiVersion"], POOL["kind"], POOL)], BUNDLE.providers, complete=True
)


def context(phase: Phase, action: str) -> Context:
    """Return the context of a Pod in a namespace with this action."""
    labels = {ON_RECLAIM: action} if action else {}
    return Context(phase=phase, now=NOW, view=replace(POOLS, namespaces={NAMESPACE: labels}))


def mutated(value: JSON, action: str = "") -> JSON:
    """Return the Pod as the notice changes it."""
    patch = decide(decode_review(review(value)), BUNDLE.index, context(Phase.MUTATE, action)).patch
    own = [operation.as_json() for operation in patch if operation.policy == "reclaim-notice"]
    changed: JSON = jsonpatch.apply_patch(value, own)
    return changed


def findings(value: JSON, action: str) -> list[Finding]:
    decision = decide(decode_review(review(value)), BUNDLE.index, context(Phase.VALIDATE, action))
    assert not decision.failures
    return [finding for finding in decision.findings if finding.id.startswith("reclaim-notice/")]


_paths = st.sampled_from(
    (
        "/data",
        "/",
        "/var",
        "/run",
        "var/run",
        DIRECTORY,
        f"{DIRECTORY}/",
        "/run/spotgate/x",
        f"{DIRECTORY}2",
        "//run//spotgate",
    )
)
_mounts: st.SearchStrategy[JSON] = st.builds(
    dict, name=st.sampled_from(("data", VOLUME)), mountPath=_paths, readOnly=st.booleans()
)
_notice = {"items": [{"path": "reclaim-at", "fieldRef": {"fieldPath": ANNOTATION_FIELD}}]}
_volumes = st.sampled_from(
    (
        [],
        [{"name": "data", "emptyDir": {}}],
        [{"name": VOLUME, "emptyDir": {}}],
        [{"name": "data", "emptyDir": {}}, {"name": VOLUME, "downwardAPI": _notice}],
    )
)
_pods = strategies.pods(
    labels={"spotgate.dev/capacity": st.just("spot"), ON_RECLAIM: st.sampled_from((*ACTIONS, "", "informs"))},
    annotations={"spotgate.dev/keep": st.sampled_from(("reclaim-notice", "tolerations"))},
)


@st.composite
def pods(draw: st.DrawFn) -> JSON:
    """Return a Pod with volumes, mounts, and perhaps a label."""
    value = draw(_pods)
    spec = value["spec"]
    spec["volumes"] = draw(_volumes)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if draw(st.booleans()):
            container["volumeMounts"] = draw(st.lists(_mounts, max_size=2))
    return value


@given(value=pods(), action=st.sampled_from(("", *ACTIONS, "other")))
def test_nothing_is_overwritten_and_a_second_mutation_changes_nothing(value: JSON, action: str) -> None:
    before = copy.deepcopy(value)
    after = mutated(copy.deepcopy(value), action)
    assert mutated(copy.deepcopy(after), action) == after
    spec = after["spec"]

    labels = before["metadata"].get("labels") or {}
    assert {**labels, ON_RECLAIM: None} == {**(after["metadata"].get("labels") or {}), ON_RECLAIM: None}
    assert labels.get(ON_RECLAIM) in {None, (after["metadata"].get("labels") or {}).get(ON_RECLAIM)}
    kept = len(before["spec"]["volumes"])
    assert spec["volumes"][:kept] == before["spec"]["volumes"]
    for members in ("containers", "initContainers"):
        for old, new in zip(before["spec"].get(members) or (), spec.get(members) or (), strict=True):
            mounts = new.pop("volumeMounts", [])
            own = old.pop("volumeMounts", [])
            assert (old, mounts[: len(own)]) == (new, own)
            # Each mount has its volume, and no two containers' paths are the same.
            added = mounts[len(own) :]
            assert [mount["mountPath"] for mount in added] in ([], [DIRECTORY])
            assert not added or any(volume["name"] == VOLUME for volume in spec["volumes"])

    # What the first mutation adds is what the second phase misses.
    missing = {finding.id for finding in findings(after, action)}
    assert "reclaim-notice/not-injected" not in missing
    assert (after != before) <= any(finding.id == "reclaim-notice/not-injected" for finding in findings(value, action))


def test_a_namespace_or_a_policy_gives_a_pod_its_label() -> None:
    plain = labeled(pod("train"), SPOT)
    assert mutated(plain, EVICT)["metadata"]["labels"] == SPOT | {ON_RECLAIM: EVICT}
    assert (
        mutated(labeled(pod("train"), {**SPOT, ON_RECLAIM: INFORM}), EVICT)["metadata"]["labels"][ON_RECLAIM] == INFORM
    )


def test_fix_writes_what_the_namespace_asks_for_and_then_nothing(tmp_path: Path) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a", "labels": SPOT | {ON_RECLAIM: INFORM}},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "a"}}
    job["spec"] = {"template": {"spec": pod_spec(restartPolicy="Never")}}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([namespace, POOL, job]))
    assert main(["fix", str(file)]) == 0
    template = list(yaml.safe_load_all(file.read_text()))[2]["spec"]["template"]
    assert template["metadata"] == {"labels": {ON_RECLAIM: INFORM}}
    assert [volume["name"] for volume in template["spec"]["volumes"]] == [VOLUME]
    assert main(["fix", "--check", str(file)]) == 0
