"""The main promise of the product: `spotgate check` predicts the outcome in the cluster.

The tests compare verdict, findings, and final object of the same request, offline and through the API server.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.builders import pod
from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.parity.answers import Identity, Offline, Refusal, connect
from tests.controlplane.parity.changes import deployments, pools, ray_clusters, relabelled
from tests.controlplane.parity.cluster import having, pods_of, populated, runnable, there
from tests.controlplane.parity.compare import Parity, assert_same_pod
from tests.controlplane.parity.corpus import ALICE, ON_CALL, SPOT, examples, golden, identities, namespaces_of
from tests.controlplane.parity.objects import objects
from tests.controlplane.parity.pods import everything as pod_with_everything
from tests.controlplane.parity.pods import pods
from tests.controlplane.parity.workloads import BUILT_IN, built_in_workloads, custom_workloads, everything, node_pools
from tests.programs import VERSION
from webhook.engine.bundle import load_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis import strategies as st

    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook
    from tests.controlplane.parity.cluster import Live
    from tests.controlplane.parity.corpus import Golden

JSON = dict[str, Any]

EXAMPLES = dict(examples())
GOLDEN = list(golden())
REFUSED_AT_MOST = 0.2


@pytest.fixture(scope="module")
def live(webhook: Webhook, alice: Kubectl) -> Iterator[Live]:
    del alice  # creates the group with all permissions
    with populated(webhook, namespaces_of([*EXAMPLES.values(), *(case.thing for case in GOLDEN)])) as things:
        yield things


@pytest.fixture(scope="module")
def both(webhook: Webhook, live: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parity]:
    directory = tmp_path_factory.mktemp("parity")
    state = directory / "state"
    state.mkdir()
    (state / "live.json").write_text(as_list(*live.values()))
    bundle = load_bundle([webhook.directory / "policies"])
    flags = (f"--state={state}", f"--kubernetes-version={VERSION}")
    with pytest.MonkeyPatch.context() as patch, connect(webhook.cluster) as server:
        patch.setattr("webhook.judging.session.read_policies", lambda _, **__: bundle)  # load them only once
        yield Parity(server, Offline(directory, state, flags))


@pytest.fixture
def parity(both: Parity) -> Parity:
    both.seen.clear()
    both.refusals.clear()
    return both


def for_each(things: st.SearchStrategy[JSON], count: int, compare: Any) -> None:
    """Compare generated objects, the same ones in every run, each sent by one of the identities."""

    @settings(max_examples=count, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @given(things, identities)
    def run(thing: JSON, identity: Identity) -> None:
        compare(thing, identity)

    run()


def skip_unserved(thing: JSON, parity: Parity) -> None:
    if not parity.server.serves(thing):
        pytest.skip(f"crds/ has no CustomResourceDefinition of {thing['apiVersion']} {thing['kind']}")


# Creating


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gets_the_same_verdict(name: str, parity: Parity) -> None:
    parity.of(EXAMPLES[name], ALICE)
    assert not parity.refusals


@pytest.mark.parametrize("review", [case for case in GOLDEN if case.old is None], ids=attrgetter("name"))
def test_a_golden_creation_gets_the_same_verdict(review: Golden, parity: Parity, live: Live) -> None:
    thing = review.thing
    skip_unserved(thing, parity)
    if there(thing, live):
        thing = {**thing, "metadata": {**thing["metadata"], "name": review.name}}
    parity.of(thing, review.identity)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]},
        {"resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "network"}]},
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "unknown"}]},
        {"runtimeClassName": "sandbox"},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "far"}}]},
    ],
    ids=str,
)
def test_objects_that_a_pod_names_count_offline_as_in_the_cluster(spec: JSON, parity: Parity) -> None:
    thing = pod("names")
    parity.of({**thing, "metadata": {"name": "names", "namespace": SPOT}, "spec": {**thing["spec"], **spec}}, ALICE)
    assert not parity.refusals


@pytest.mark.parametrize("kind", ["Pod", *BUILT_IN])
def test_defaults(kind: str, parity: Parity) -> None:
    parity.of(pod_with_everything() if kind == "Pod" else everything(kind), ALICE)
    assert not parity.refusals


@pytest.mark.parametrize("thing", list(objects()), ids="{apiVersion} {kind}".format_map)
def test_defaults_of_kinds_without_pods(thing: JSON, parity: Parity) -> None:
    parity.of(thing, ALICE)
    assert not parity.refusals


@pytest.mark.parametrize(
    ("things", "count", "outcomes"),
    [
        (pods(), 140, {"denied", "warned", "patched"}),
        (built_in_workloads(), 120, {"denied", "warned", "patched"}),
        (custom_workloads(), 40, {"denied", "warned", "patched"}),
        (node_pools(), 60, {"denied", "warned"}),
    ],
    ids=["Pods", "built-in workloads", "custom workloads", "node pools"],
)
def test_generated(things: st.SearchStrategy[JSON], count: int, outcomes: set[str], parity: Parity) -> None:
    for_each(things, count, parity.of)

    assert parity.seen["all"] == count
    assert len(parity.refusals) < REFUSED_AT_MOST * parity.seen["all"], parity.refusals
    assert {outcome for outcome, times in parity.seen.items() if times} == {*outcomes, "all"}


# Changing and deleting


@pytest.mark.parametrize(
    ("things", "count"),
    [(deployments(), 40), (ray_clusters(), 40), (pools(), 40)],
    ids=["Deployment", "RayCluster", "node pools"],
)
def test_changes(things: st.SearchStrategy[JSON], count: int, parity: Parity) -> None:
    for_each(things, count, partial(parity.of, operation="UPDATE"))

    assert parity.seen["all"] == count
    assert len(parity.refusals) < REFUSED_AT_MOST * parity.seen["all"], parity.refusals
    assert parity.seen["denied"]
    assert parity.seen["warned"]


def test_changes_of_a_running_pod(parity: Parity, live: Live) -> None:
    for_each(relabelled(live["Pod", "old"]), 30, partial(parity.of, operation="UPDATE"))

    assert not parity.refusals
    assert parity.seen["denied"]


@pytest.mark.parametrize("identity", [ALICE, ON_CALL], ids=lambda identity: identity.user)
def test_deletion_of_every_node_pool(identity: Identity, parity: Parity, live: Live) -> None:
    for (kind, _), thing in live.items():
        if kind == "NodePool":
            parity.of(thing, identity, "DELETE")

    assert not parity.refusals


# Pods from controllers


def test_the_pods_of_workloads_are_as_check_predicts(parity: Parity) -> None:
    expected: dict[str, JSON] = {}

    def create(thing: JSON, _: Identity) -> None:
        thing = runnable(thing, f"w{len(expected)}")
        checked = parity.offline.check(thing, ALICE)
        answer = parity.server.ask(thing, ALICE, store=True)
        if isinstance(answer, Refusal) or answer.denial:
            return
        assert not isinstance(checked, Refusal)
        template = (checked.written or thing)["spec"]["template"]
        made = {"apiVersion": "v1", "kind": "Pod", **template}
        made["metadata"] = {**template["metadata"], "namespace": thing["metadata"]["namespace"]}
        expected[thing["metadata"]["name"]] = parity.offline.defaulted(made)

    for_each(built_in_workloads(("Deployment",)), 26, create)
    assert len(expected) >= 20
    for_each(built_in_workloads(("Job", "StatefulSet")), 14, create)
    assert len(expected) >= 30
    for name, made in pods_of(parity.server.cluster.kubectl, expected).items():
        assert_same_pod(made, expected[name])


# Golden reviews of changes; last, because the webhook needs a moment to forget their node pools.


@pytest.mark.parametrize(
    ("review", "old"), [(case, case.old) for case in GOLDEN if case.old], ids=lambda case: getattr(case, "name", "")
)
def test_a_golden_change_gets_the_same_verdict(review: Golden, old: JSON, parity: Parity, live: Live) -> None:
    skip_unserved(old, parity)
    with having(old, parity, live):
        parity.of(review.thing, review.identity, review.operation)
    assert not parity.refusals
