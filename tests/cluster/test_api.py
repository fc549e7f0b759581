"""Requests to an API server, and the renewal of their credentials."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from webhook.cluster.api import Api, ApiError
from webhook.cluster.resources import api_server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kubernetes.aio.client.api_client import ApiClient


async def status_for(client: ApiClient) -> int:
    request = await client.param_serialize("GET", "/", header_params={}, auth_settings=["BearerToken"])
    async with (await client.call_api(*request)).response as response:
        status: int = response.status
        return status


@asynccontextmanager
async def connected(
    tmp_path: Path, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> AsyncIterator[Api]:
    """Connect to a server that answers each request like this."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        kubeconfig = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": str(server.make_url(""))}}],
            "users": [{"name": "a", "user": {"token": "a"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        api = await Api.connect(tmp_path / "kubeconfig")
        yield api
        await api.close()


async def test_a_renewal_of_credentials_closes_the_old_client_after_its_last_request(tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=401)

    async with connected(tmp_path, refuse) as api:
        async with api.client() as old:
            with pytest.raises(ApiError, match="401"):
                await api.read("/", 5)
            async with api.client() as new:
                assert new is not old
            assert await status_for(old) == 401, "it isn't closed yet"
        with pytest.raises(RuntimeError, match="Session is closed"):
            await status_for(old)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (403, '{"message": "no"}', "403 Forbidden: no"),
        (403, '{"message": null, "metadata": null}', "403 Forbidden: "),
        (403, '{"message": ["no"], "metadata": "no"}', '403 Forbidden: {"message": ["no"], "metadata": "no"}'),
        (502, "<html>", "502 Bad Gateway: <html>"),
        (200, "<html>", "the API server's answer is malformed: "),
        (200, '{"gitVersion": 5}', "the API server's answer is malformed: "),
        (0, "", "the connection broke"),
    ],
)
async def test_a_failed_request_for_the_version_is_an_api_error(
    tmp_path: Path, status: int, body: str, says: str
) -> None:
    """`LiveState` handles no other error, so another one would end the server."""

    async def answer(request: web.Request) -> web.Response:
        if not status and request.transport is not None:
            request.transport.abort()
        return web.Response(status=status or 200, text=body, content_type="application/json")

    async with connected(tmp_path, answer) as api:
        with pytest.raises(ApiError) as raised:
            await api_server_version(api, 5)
    assert str(raised.value).startswith(says.strip())


async def test_a_server_that_does_not_answer_or_listen_is_an_api_error(tmp_path: Path) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(tmp_path, never) as api:
        with pytest.raises(ApiError, match="didn't answer in time"):
            await api_server_version(api, 0.05)
    api = await Api.connect(tmp_path / "kubeconfig")
    with pytest.raises(ApiError, match="Cannot connect to host"):
        await api_server_version(api, 5)
    await api.close()
