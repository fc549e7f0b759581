"""PodDisruptionBudgets from files and from an API server, and unknown ones."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest

from tests.answers import Answer, Silence
from tests.builders import BUNDLE
from webhook.cluster.api import Api, ApiError
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Pace
from webhook.inputs.objects import read_manifests
from webhook.inputs.state import view_of
from webhook.runtime.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from webhook.capacity.view import ClusterView

PROVIDERS = {"cks": BUNDLE.providers["cks"]}
LIST = "/apis/policy/v1/poddisruptionbudgets"


def budget(name: str, namespace: str = "shop", bound: str = "maxUnavailable: 1") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return (
        f"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}{where}}}\n"
        f"spec: {{selector: {{}}, {bound}}}\n"
    )


def load(folder: Path, *documents: str, complete: bool = False) -> ClusterView:
    (folder / "state.yaml").write_text("---\n".join(documents))
    return view_of(read_manifests([folder / "state.yaml"]).objects, PROVIDERS, complete=complete)


def names(view: ClusterView) -> dict[str, list[str]] | None:
    if view.budgets is None:
        return None
    return {namespace: [budget.name for budget in budgets] for namespace, budgets in view.budgets.items()}


# From files


def test_budgets_are_grouped_by_namespace(tmp_path: Path) -> None:
    view = load(tmp_path, budget("web"), budget("api"), budget("worker", "batch"), budget("other", ""))
    assert names(view) == {"batch": ["worker"], "default": ["other"], "shop": ["api", "web"]}


def test_the_later_of_two_budgets_with_the_same_name_wins(tmp_path: Path) -> None:
    view = load(tmp_path, budget("web"), budget("web", bound="maxUnavailable: 0"))
    assert view.budgets is not None
    assert [budget.bound for budget in view.budgets["shop"]] == ["maxUnavailable: 0"]


def test_budgets_missing_from_incomplete_files_are_unknown(tmp_path: Path) -> None:
    assert names(load(tmp_path)) is None
    assert names(load(tmp_path, complete=True)) == {}


@pytest.mark.parametrize("complete", [False, True])
def test_an_unreadable_budget_makes_budgets_unknown(tmp_path: Path, *, complete: bool) -> None:
    view = load(tmp_path, budget("web"), budget("api", bound="minAvailable: []"), complete=complete)
    assert names(view) is None


# From an API server


class Server(Api):
    """An API server with only PodDisruptionBudgets, which it may forbid to read."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked: set[str] = set()
        self.refuses = refuses

    @asynccontextmanager
    async def get(self, path: str, *_: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        url = urlsplit(path)
        self.asked.add(url.path)
        if url.path == "/version":
            raise ApiError("404 Not Found", 404)
        if url.path == LIST and self.refuses:
            raise ApiError("403 Forbidden: poddisruptionbudgets.policy is forbidden", 403)
        if "watch" in url.query:
            yield cast("aiohttp.ClientResponse", Silence())
            return
        items = [{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {}, "minAvailable": "50%"}}]
        yield cast(
            "aiohttp.ClientResponse",
            Answer({"metadata": {"resourceVersion": "1"}, "items": items if url.path == LIST else []}),
        )


@asynccontextmanager
async def following(server: Server, *, budgets: bool) -> AsyncIterator[LiveState]:
    configure_logging(io.BytesIO())
    state = LiveState(server, PROVIDERS, Pace(first=0.001, most=0.002), budgets=budgets)
    run = asyncio.create_task(state.run())
    async with asyncio.timeout(20):
        await state.synced()
    yield state
    run.cancel()
    await asyncio.wait([run])


async def test_budgets_are_watched_if_a_policy_needs_them() -> None:
    async with following(Server(), budgets=True) as state:
        assert names(state.view()) == {"shop": ["web"]}
        assert names(await state.fresh()) == {"shop": ["web"]}


async def test_budgets_are_not_read_unless_a_policy_needs_them() -> None:
    server = Server()
    async with following(server, budgets=False) as state:
        assert names(state.view()) is None
    assert LIST not in server.asked


async def test_forbidden_budgets_are_unknown_without_a_wait() -> None:
    async with following(Server(refuses=True), budgets=True) as state:
        assert names(state.view()) is None
        assert state.view().pools == ()
        assert state.why_not_synced() == ""
