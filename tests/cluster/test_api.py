"""Requests to an API server, and the renewal of their credentials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from webhook.cluster.api import Api, ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from kubernetes.aio.client.api_client import ApiClient


async def status_for(client: ApiClient) -> int:
    request = await client.param_serialize("GET", "/", header_params={}, auth_settings=["BearerToken"])
    async with (await client.call_api(*request)).response as response:
        status: int = response.status
        return status


async def test_a_renewal_of_credentials_closes_the_old_client_after_its_last_request(tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=401)

    app = web.Application()
    app.router.add_get("/", refuse)
    async with TestServer(app) as server:
        kubeconfig = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": str(server.make_url(""))}}],
            "users": [{"name": "a", "user": {"token": "a"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        api = await Api.connect(tmp_path / "kubeconfig")
        async with api.client() as old:
            with pytest.raises(ApiError, match="401"):
                await api.read("/", 5)
            async with api.client() as new:
                assert new is not old
            assert await status_for(old) == 401, "it isn't closed yet"
        with pytest.raises(RuntimeError, match="Session is closed"):
            await status_for(old)
        await api.close()
