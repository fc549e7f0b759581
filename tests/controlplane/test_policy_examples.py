"""examples/policies on a real API server: a request comes out there as `spotgate test` says of its case."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.controlplane.parity_answers import Answer, Identity, connect
from tests.controlplane.parity_corpus import KEPT
from tests.controlplane.populate import CRDS, wait_for_crds
from tests.controlplane.webhook import (
    NAMESPACE,
    SERVICE,
    Webhook,
    create_certificates,
    render_configurations,
    start_on_free_ports,
)
from webhook.commands.test.case import PolicyTestCase, differences
from webhook.commands.test.run import read_tests
from webhook.engine.bundle import load_bundle
from webhook.model.decision import Verdict
from webhook.offline.kinds import ResourceKinds
from webhook.offline.manifests.objects import read_manifests
from webhook.policy.policy_test import ExpectSpec
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.cluster import Cluster
    from tests.controlplane.parity_answers import Server
    from webhook.offline.manifests.objects import Manifest

JSON = dict[str, Any]

POLICIES = Path(__file__).parents[2] / "examples" / "policies"
BUNDLE = load_bundle([POLICIES])

# RBAC lets the one group do everything, and no policy names it. Nobody asks spotgate what the other user may do.
EVERYTHING = "policy-tests"
ARRANGER = Identity("arranger", (EVERYTHING,))
UNKNOWN = "somebody"

OF_EVERY_POD = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""Taints that the API server lets each Pod tolerate for a while."""


def state_of(case: PolicyTestCase) -> list[Manifest]:
    """Return what is in the cluster before the request, its namespace too."""
    files = case.spec.state.files if case.spec.state is not None else ()
    read = (read_manifests([Path(case.test.document.file).parent / name]).objects for name in files)
    objects = [*(each for objects in read for each in objects), *case.inline_state()]
    namespace = case.namespace()
    return [*objects, namespace] if namespace is not None else objects


def key_of(case: PolicyTestCase) -> str:
    return json.dumps([each.value for each in state_of(case)], sort_keys=True)


CASES = sorted(
    (
        PolicyTestCase(test, number)
        for test in read_tests([POLICIES]).documents
        for number in range(len(test.spec.cases))
    ),
    key=key_of,  # so that each state is made once
)


def why_not(case: PolicyTestCase) -> str:
    """Why a case can't be told to an API server as a request; empty: it can."""
    if case.spec.kubernetes_version is not None:
        return "this API server has one version"
    if case.spec.expect.outcome is Verdict.INDETERMINATE:
        return "nothing is unknown to a webhook that sees the cluster"
    if case.spec.expect.outcome is Verdict.AUDITED:
        return "a request on trial is not in the audit log"
    if case.spec.date is not None:
        return "it is today for an API server"
    if case.spec.expect.golden is not None:
        return "golden files are without the API server's defaults"
    return ""


class Arranged:
    """The cluster as one case after another takes it for, and the webhook that has seen all of it."""

    def __init__(self, server: Server, webhook: Webhook) -> None:
        self.server = server
        self._webhook = webhook
        self._key = ""
        self._there: list[JSON] = []

    def be(self, case: PolicyTestCase) -> None:
        """Make it what the case says is there."""
        if key_of(case) == self._key:
            return
        self._webhook.stop()
        self.clear()
        self._key = key_of(case)
        self._there = sorted((each.value for each in state_of(case)), key=lambda thing: thing["kind"] != "Namespace")
        for thing in self._there:
            answer = self.server.ask(thing, ARRANGER, store=True)
            assert isinstance(answer, Answer), answer
        self._webhook.start()  # ready when it knows what is there

    def clear(self) -> None:
        """Take away what was put there."""
        for thing in reversed(self._there):
            self._delete(thing)

    def _delete(self, thing: JSON) -> None:
        answer = self.server.ask(thing, ARRANGER, "DELETE", store=True)
        assert isinstance(answer, Answer), answer
        if thing["kind"] == "Namespace":  # without controllers nobody finishes its deletion
            self.server.send("PUT", f"/api/v1/namespaces/{thing['metadata']['name']}/finalize", thing, ARRANGER)

    @contextlib.contextmanager
    def having(self, thing: JSON | None) -> Iterator[None]:
        """Put into the cluster what a request changes or deletes; it may be there already."""
        if thing is None or any(_identity(each) == _identity(thing) for each in self._there):
            yield
            return
        stored = self.server.ask(thing, ARRANGER, store=True)
        assert isinstance(stored, Answer), stored
        try:
            yield
        finally:
            self._delete(thing)


def _identity(thing: JSON) -> tuple[str, ...]:
    metadata = thing["metadata"]
    return thing["apiVersion"], thing["kind"], metadata.get("namespace", ""), metadata["name"]


@pytest.fixture(scope="module")
def arranged(bare_cluster: Cluster) -> Iterator[Arranged]:
    """Yield a webhook with these policies on that API server; its answers bind everybody but the arranger."""
    kubectl, directory = bare_cluster.kubectl, bare_cluster.directory / "policy-examples"
    authority = create_certificates(directory)
    process = Process("spotgate", (), directory / "spotgate.log")
    flags = [
        f"--policies={POLICIES}",
        f"--tls-cert={directory / 'tls.crt'}",
        f"--tls-key={directory / 'tls.key'}",
        f"--kubeconfig={kubectl.kubeconfig}",
    ]
    with contextlib.ExitStack() as stack:
        crds = [f"--filename={CRDS / name}" for name in ("karpenter.yaml", "jobset.yaml")]
        kubectl("apply", *crds)
        stack.callback(kubectl, "delete", *crds)
        wait_for_crds(kubectl)
        stack.callback(process.kill)
        port, ops_port = start_on_free_ports(process, flags)
        configurations = [*yaml.safe_load_all(render_configurations(POLICIES, port, f"--ca-file={authority}"))]
        for entry in (entry for each in configurations for entry in each["webhooks"]):
            expression = f"request.userInfo.username != '{ARRANGER.user}'"
            entry["matchConditions"] = [
                *entry.get("matchConditions", ()),
                {"name": "arranger", "expression": expression},
            ]
        binding = "policy-tests"
        kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", f"--group={EVERYTHING}")
        stack.callback(kubectl, "delete", "clusterrolebinding", binding)
        kubectl("create", "service", "externalname", SERVICE, "--external-name=localhost", f"--namespace={NAMESPACE}")
        stack.callback(kubectl, "delete", "service", SERVICE, f"--namespace={NAMESPACE}")
        kubectl.apply(*configurations)
        names = [f"{each['kind']}/{each['metadata']['name']}" for each in configurations]
        stack.callback(kubectl, "delete", *names)
        webhook = Webhook(bare_cluster, directory, process, port, f"127.0.0.1:{ops_port}")
        server = stack.enter_context(connect(bare_cluster))
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}}
        probe["spec"] = {"containers": [{"name": "main", "image": "foreign.example/probe:1"}]}

        def is_asked() -> bool:
            answer = server.ask(probe, Identity(UNKNOWN, (EVERYTHING,)))
            return isinstance(answer, Answer) and bool(answer.denial)

        webhook.wait(is_asked, "the API server asks spotgate")
        here = Arranged(server, webhook)
        stack.callback(here.clear)
        yield here


@pytest.mark.parametrize("case", CASES, ids=[f"{case.test.name}: {case.spec.name}" for case in CASES])
def test_a_case_comes_out_as_its_test_says(case: PolicyTestCase, arranged: Arranged) -> None:
    if reason := why_not(case):
        pytest.skip(reason)
    arranged.be(case)
    kinds = ResourceKinds(BUNDLE, state_of(case))
    subject, before = case.subject(kinds).value, case.before(kinds)
    there = subject if case.operation == "DELETE" else before.value if before is not None else None
    identity = Identity(case.spec.user or UNKNOWN, (*case.spec.groups, EVERYTHING))
    expect = case.spec.expect
    with arranged.having(there):
        answer = arranged.server.ask(subject, identity, case.operation)
        assert isinstance(answer, Answer), f"refused by the API server itself: {answer}"
        if expect.changed is not None or expect.object is not None:
            changed, made = thing_that_changes(subject, expect.object)
            compare(arranged.server, identity, changed, made, differs=expect.changed)
    said = "\n".join((answer.denial, *answer.warnings))
    assert (_verdict(answer), said) == (expect.outcome, said)
    if expect.policies is not None:
        assert set(re.findall(r"^\[([a-z0-9.-]+)\]", said, re.MULTILINE)) == set(expect.policies)
    for text in expect.messages:
        assert " ".join(text.split()) in " ".join(said.split())


def thing_that_changes(subject: JSON, part: JSON | None) -> tuple[JSON, JSON | None]:
    """Return the object, and the part of it that is to come out. Of a workload, the Pod that its controller makes of its template."""
    api_version, kind = subject["apiVersion"], subject["kind"]
    group = api_version.rpartition("/")[0]
    workload = next(
        (each for each in BUNDLE.index.workloads.values() if (each.group, each.kind) == (group, kind)), None
    )
    if workload is None:
        return subject, part
    template, metadata = subject["spec"]["template"], subject["metadata"]
    owner = {"apiVersion": api_version, "kind": kind, "controller": True, "uid": "u"}
    if workload.pod_owner is not None:
        owner |= {"apiVersion": workload.pod_owner.apiVersion, "kind": workload.pod_owner.kind}
    about = {**template.get("metadata", {}), "name": "made", "namespace": metadata["namespace"]}
    about["ownerReferences"] = [{**owner, "name": metadata["name"]}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}
    return pod, part["spec"]["template"] if part is not None else None


def compare(server: Server, identity: Identity, thing: JSON, part: JSON | None, *, differs: bool | None) -> None:
    """Compare what is created with the expected part of it, and with what it would be without spotgate."""
    answer, bare = server.ask(thing, identity), server.ask(thing, ARRANGER)
    assert isinstance(answer, Answer), answer
    assert isinstance(bare, Answer), bare
    if part is not None:
        expected = ExpectSpec(outcome=Verdict.ALLOWED, object=part)
        assert list(differences(expected, (), {}, _essence(answer.object))) == []
    if differs is not None:
        assert (_essence(answer.object) != _essence(bare.object)) == differs


def _verdict(answer: Answer) -> Verdict:
    if answer.denial:
        return Verdict.DENIED
    return Verdict.WARNED if answer.warnings else Verdict.ALLOWED


def _essence(thing: JSON | None) -> JSON:
    """Return the object without what the API server writes by itself."""
    assert thing is not None
    metadata = {key: value for key, value in thing["metadata"].items() if key not in KEPT}
    tolerations = [each for each in thing["spec"].get("tolerations", ()) if each["key"] not in OF_EVERY_POD]
    return {**thing, "metadata": metadata, "spec": {**thing["spec"], "tolerations": tolerations}}


def test_hardly_any_case_is_left_out() -> None:
    left_out = {case.spec.name: why_not(case) for case in CASES if why_not(case)}
    assert left_out == {
        "unknown node pools decide nothing": "nothing is unknown to a webhook that sees the cluster",
        "after its last day the exemption holds no longer": "it is today for an API server",
        "a label that a person puts on a Node is noted": "a request on trial is not in the audit log",
        "so it is when the Node is created": "a request on trial is not in the audit log",
        "reclaims are no failures of a Job, and its Pods are replaced at once": "a request on trial is not in the audit log",
        "a long grace period delays the next try": "a request on trial is not in the audit log",
    }
