"""Input that ``review`` accepts and rejects; the golden cases show that it answers as the server does."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests import builders
from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POD, SPOT_POOL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Write


def review(manifest: str, resource: str, **request: Any) -> bytes:
    return builders.review(yaml.safe_load(manifest), resource, user="jane", **request)


DENIED = review(POD, "pods")
WITHOUT_FALLBACK = review(SPOT_POOL, "compute.coreweave.com/nodepools")


def test_the_default_phase_is_validating_and_a_denial_exits_with_0(run: Run, write: Write, policies: Path) -> None:
    done = run("review", write("review.json", DENIED), "--policies", policies)
    assert (done.code, done.json["response"]["allowed"]) == (0, False)


def test_review_is_read_from_standard_input(run: Run, policies: Path) -> None:
    done = run("review", "-", "--policies", policies, stdin=DENIED)
    assert done.json["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"


def test_unknown_pools_are_treated_as_the_server_treats_them(run: Run, write: Write, policies: Path) -> None:
    pool = write("review.json", WITHOUT_FALLBACK)
    done = run("review", pool, "--policies", policies)
    assert "the node pools are unknown" in done.json["response"]["status"]["message"]
    state = write("state.yaml", ON_DEMAND_POOL)
    assert run("review", pool, "--policies", policies, "--state", state).json["response"]["allowed"] is True


def test_patch_follows_the_kubernetes_version(run: Run, write: Write) -> None:
    policy = write(
        "policy.yaml",
        "apiVersion: spotgate.dev/v1\nkind: GracefulTermination\nmetadata: {name: termination}\nspec: {}\n",
    )
    pod = SPOT_POD.replace("resources: {limits: {nvidia.com/gpu: 8}}", "ports: [{containerPort: 80}]")
    pool = write("pool.yaml", SPOT_POOL.replace("gd-8xh100ib-i128", "cd-gp-a192-genoa"))
    body = write("review.json", review(pod, "pods"))

    def patch(version: str) -> str:
        done = run("review", body, "--phase", "mutate", "--policies", policy, "--state", pool, "--kubernetes-version", version)  # fmt: skip
        return base64.b64decode(done.json["response"]["patch"]).decode()

    assert '"sleep":{' in patch("1.34")
    assert '"exec":{' in patch("v1.29.8")


@pytest.mark.parametrize(
    ("body", "position", "says"),
    [
        (b"", "1:1", "not an AdmissionReview"),
        (b"{", "2:1", "not an AdmissionReview"),
        (b'{"a": 1,\n "b": tru}', "2:8", "JSON is malformed"),
        (b'{"a": ' + b"[" * 50_000, "1:106", "nested too deeply"),
        (b"\xff\xfe", "1:1", "not an AdmissionReview"),
        (b"{}", "1:1", "expected admission.k8s.io/v1 AdmissionReview, got (no apiVersion) (no kind)"),
        (POD.encode(), "1:1", "not an AdmissionReview"),
        (b'{"apiVersion": "admission.k8s.io/v1",\n "kind": 5}', "2:2", "not an AdmissionReview: Expected `str`"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "1:1", "has no `request`"),
        (DENIED.replace(b"/v1", b"/v1beta1"), "1:1", "got admission.k8s.io/v1beta1"),
        (DENIED.replace(b'"operation"', b'\n"operation"').replace(b"CREATE", b"PATCH"), "2:1", "`request.operation` is 'PATCH'"),
        (DENIED.replace(b'"userInfo"', b'\n "userInfo"').replace(b'"jane"', b"5"), "2:15", "userInfo.username`"),
    ],
)  # fmt: skip
def test_an_invalid_review_exits_with_2(run: Run, write: Write, body: bytes, position: str, says: str) -> None:
    done = run("review", write("review.json", body))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"review.json:{position}: ")
    assert says in done.err


def test_unreadable_state_exits_with_2(run: Run, write: Write, policies: Path) -> None:
    body = write("review.json", DENIED)
    done = run("review", body, "--policies", policies, "--state", write("bad.yaml", "a: {"), "--state", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert [line.split(": ")[0] for line in done.err.splitlines()] == ["bad.yaml:2:1", "nowhere"]
