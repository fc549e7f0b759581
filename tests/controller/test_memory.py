"""The controller stays below the memory limit of its Deployment, whatever Pods a tenant creates."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.programs import peak_mib
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, FLOOR_GATE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DEPLOYMENT = Path(__file__).parents[2] / "manifests" / "components" / "on-demand-floor" / "deployment.yaml"
SPOTGATE = Path(sys.executable).with_name("spotgate")
LARGE = 1_250_000
"""Characters of a Pod that etcd still stores."""
TERMINATING, ASSIGNED = 260, 40
LAST = "zz-last"


def pod(name: str) -> bytes:
    """Return a gated Pod of a ReplicaSet as JSON. Large Pods of a number below `TERMINATING` are terminating."""
    number = int(name.removeprefix("large-")) if name != LAST else -1
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "hostile",
        "uid": name,
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-26T00:00:00Z",
        "labels": {"app": "web", "spotgate.dev/capacity": "spot"},
        "annotations": {FLOOR_ANNOTATION: "1"},
        "ownerReferences": [owner],
    }
    if 0 <= number < TERMINATING:
        metadata["deletionTimestamp"] = "2026-11-28T00:00:00Z"
    container = {"name": "web", "image": "web", "args": ["ARGS"]}
    text = json.dumps(
        {"metadata": metadata, "spec": {"containers": [container], "schedulingGates": [{"name": FLOOR_GATE}]}}
    )
    # Go's JSON has six characters for each `<`.
    args = "" if number < 0 else LARGE * "\\u003c" if number % 20 == 0 else LARGE * "a"
    return text.replace("ARGS", args).encode()


NAMES = [f"large-{number:03}" for number in range(TERMINATING + ASSIGNED)]


class ApiServer:
    """An API server with only large Pods, each of which changes once, and the Lease."""

    def __init__(self) -> None:
        self.lease: bytes | None = None
        self.patched: set[str] = set()
        self.told = False

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 24)
        leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        one: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "GET": self.get_lease,
            "PUT": self.put_lease,
        }
        for method, handler in one.items():
            app.router.add_route(method, leases + "/{name}", handler)
        app.router.add_post(leases, self.put_lease)
        app.router.add_get("/api/v1/namespaces/hostile/pods/{name}", self.get_pod)
        app.router.add_patch("/api/v1/namespaces/hostile/pods/{name}", self.patch_pod)
        app.router.add_get("/{path:.*}", self.list_or_watch)
        return app

    async def get_lease(self, _: web.Request) -> web.Response:
        if self.lease is None:
            return web.json_response({"code": 404}, status=404)
        return web.Response(body=self.lease, content_type="application/json")

    async def put_lease(self, request: web.Request) -> web.Response:
        self.lease = await request.read()
        return web.Response(body=self.lease, content_type="application/json")

    async def get_pod(self, request: web.Request) -> web.Response:
        return web.Response(body=pod(request.match_info["name"]), content_type="application/json")

    async def patch_pod(self, request: web.Request) -> web.Response:
        self.patched.add(request.match_info["name"])
        return await self.get_pod(request)

    async def list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.37.2"})
        of_pods, response = request.path == "/api/v1/pods", web.StreamResponse()
        await response.prepare(request)
        if "watch" in request.query:
            if of_pods and not self.told:
                self.told = True
                for name in (*NAMES, LAST):
                    await response.write(b'{"type":"MODIFIED","object":' + pod(name) + b"}\n")
            await asyncio.sleep(float(request.query["timeoutSeconds"]))
            return response
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        names = NAMES[start:end] if of_pods else []
        token = str(end) if of_pods and end < len(NAMES) else ""
        await response.write(b'{"metadata":{"resourceVersion":"1","continue":"%s"},"items":[' % token.encode())
        for number, name in enumerate(names):
            await response.write(pod(name) if number == 0 else b"," + pod(name))
        await response.write(b"]}")
        return response


def limit_mib() -> float:
    """Return the memory limit in the manifest of the controller."""
    documents = list(yaml.safe_load_all(DEPLOYMENT.read_text()))
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    text: str = container["resources"]["limits"]["memory"]
    return float(text.removesuffix("Mi"))


async def test_large_pods_do_not_exceed_the_memory_limit(tmp_path: Path) -> None:
    api_server = ApiServer()
    async with TestServer(api_server.app(), port=0) as server:
        kubeconfig = tmp_path / "kubeconfig"
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        config = {
            "current-context": "x",
            "contexts": [context],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
            "users": [{"name": "x", "user": {"token": "x"}}],
        }
        kubeconfig.write_text(json.dumps(config))
        process = await asyncio.create_subprocess_exec(
            SPOTGATE, "controller", f"--kubeconfig={kubeconfig}", "--ops=127.0.0.1:0", stdout=asyncio.subprocess.DEVNULL
        )
        try:
            while not {LAST, *NAMES[TERMINATING:]} <= api_server.patched:
                assert process.returncode is None
                await asyncio.sleep(0.1)
            assert peak_mib(process.pid) < limit_mib()
        finally:
            process.kill()
            await process.wait()
