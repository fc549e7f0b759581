"""``review`` answers as the server does, byte for byte."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.conftest import NODE, ON_DEMAND_POOL, POD, POLICIES, SPOT_POD, SPOT_POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

    Write = Callable[[str, str | bytes], Path]


def review(manifest: str, resource: str, group: str = "", operation: str = "CREATE", **request: Any) -> bytes:
    body = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": operation,
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": "x",
        "userInfo": {"username": "jane", "groups": ["developers"]},
        "object": yaml.safe_load(manifest),
        **request,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()


REVIEWS = {
    "denied Pod": review(POD, "pods", namespace="team-a"),
    "Pod that needs nothing": review(POD.replace("example.com/", ""), "pods", namespace="team-a"),
    "spot Pod": review(SPOT_POD, "pods", namespace="team-a"),
    "spot Pod with a port": review(
        SPOT_POD.replace("resources: {limits: {nvidia.com/gpu: 8}}", "ports: [{containerPort: 80}]"), "pods"
    ),
    "malformed Pod": review(POD.replace("containers:", "containers: 5\n  x:"), "pods", namespace="team-a"),
    "pool without a fallback": review(SPOT_POOL, "nodepools", "compute.coreweave.com"),
    "pool by those on call": review(
        SPOT_POOL.replace("name: gpu-spot", "name: gpu-spot\n  annotations: {spotgate.dev/break-glass: outage}"),
        "nodepools",
        "compute.coreweave.com",
        userInfo={"username": "joe", "groups": ["admins"]},
    ),
    "deleted pool": review("null", "nodepools", "compute.coreweave.com", "DELETE", oldObject=yaml.safe_load(SPOT_POOL)),
    "nobody's business": review("{}", "secrets"),
}


class Server:
    """A running ``spotgate serve``."""

    def __init__(self, arguments: list[str]) -> None:
        program = "import sys; from webhook.cli import main; sys.exit(main())"
        addresses = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--self-signed"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", *addresses, *arguments], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        lines = (json.loads(line) for line in self.process.stdout)
        self.port = next(line["port"] for line in lines if line["event"] == "listening")

    def answer(self, phase: str, body: bytes) -> bytes:
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}/{phase}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, context=trusting) as response:  # noqa: S310
            answer: bytes = response.read()
        return answer

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("serve")
    for name, text in {"policies": POLICIES, "state": f"{ON_DEMAND_POOL}---\n{SPOT_POOL}---\n{NODE}"}.items():
        (folder / name).mkdir()
        (folder / name / "all.yaml").write_text(text)
    return {"policies": str(folder / "policies"), "state": str(folder / "state")}


@pytest.fixture(scope="module", params=["without state", "with state"])
def arguments(request: pytest.FixtureRequest, files: dict[str, str]) -> list[str]:
    state = ["--state", files["state"]] if request.param == "with state" else []
    return ["--policies", files["policies"], *state]


@pytest.fixture(scope="module")
def server(arguments: list[str]) -> Iterator[Server]:
    server = Server(arguments)
    yield server
    server.stop()


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@pytest.mark.parametrize("case", REVIEWS)
def test_answer_is_the_servers_byte_for_byte(
    run: Run, write: Write, server: Server, arguments: list[str], phase: str, case: str
) -> None:
    done = run("review", write("review.json", REVIEWS[case]), "--phase", phase, *arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.encode() == server.answer(phase, REVIEWS[case])


def test_validating_is_the_default_and_a_denial_is_no_failure(run: Run, write: Write, policies: Path) -> None:
    done = run("review", write("review.json", REVIEWS["denied Pod"]), "--policies", policies)
    assert (done.code, done.json["response"]["allowed"]) == (0, False)


def test_review_is_read_from_standard_input(run: Run, policies: Path) -> None:
    done = run("review", "-", "--policies", policies, stdin=REVIEWS["denied Pod"])
    assert done.json["response"]["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"


def test_unknown_pools_are_what_they_are_to_the_server(run: Run, write: Write, policies: Path) -> None:
    pool = write("review.json", REVIEWS["pool without a fallback"])
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
    body = write("review.json", review(pod, "pods", namespace="team-a"))

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
        (REVIEWS["denied Pod"].replace(b"/v1", b"/v1beta1"), "1:1", "got admission.k8s.io/v1beta1"),
        (REVIEWS["denied Pod"].replace(b'"operation"', b'\n"operation"').replace(b"CREATE", b"PATCH"), "2:1", "`request.operation` is 'PATCH'"),
        (REVIEWS["denied Pod"].replace(b'"userInfo"', b'\n "userInfo"').replace(b'"jane"', b"5"), "2:15", "userInfo.username`"),
    ],
)  # fmt: skip
def test_what_is_no_review_is_exit_code_2(run: Run, write: Write, body: bytes, position: str, says: str) -> None:
    done = run("review", write("review.json", body))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"review.json:{position}: ")
    assert says in done.err


def test_state_that_cannot_be_read_is_exit_code_2(run: Run, write: Write, policies: Path) -> None:
    body = write("review.json", REVIEWS["denied Pod"])
    done = run("review", body, "--policies", policies, "--state", write("bad.yaml", "a: {"), "--state", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert [line.split(": ")[0] for line in done.err.splitlines()] == ["bad.yaml:2:1", "nowhere"]


def test_missing_file_is_exit_code_2(run: Run) -> None:
    done = run("review", "nowhere.json")
    assert (done.code, done.err) == (2, "nowhere.json: can't be read: No such file or directory\n")
