"""How `LiveState` shares readings, and how its copies resume after a failure. The API server is a script."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.answers import Answer, Lines, Silence
from tests.builders import BUNDLE
from webhook.cluster.api import Api, ApiError
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Mirror, Pace
from webhook.cluster.source import WatchedResource
from webhook.runtime.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import aiohttp

    from webhook.capacity.view import ClusterView

PROVIDERS = {"cks": BUNDLE.providers["cks"]}
HASTE = Pace(first=0.001, most=0.002)


@pytest.fixture(autouse=True)
def written() -> io.BytesIO:
    """Return the log."""
    file = io.BytesIO()
    configure_logging(file)
    return file


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is elsewhere
            await asyncio.sleep(0.001)


def names(view: ClusterView) -> list[str]:
    assert view.pools is not None, view.why_unknown
    return [pool.name for pool in view.pools]


# Fresh


class SlowServer(Api):
    """A server that answers with the pools at the time of the request, once the gate is open."""

    def __init__(self) -> None:
        self.pools: list[Any] = ["first"]
        self.asked = 0
        self.gate = asyncio.Event()

    @asynccontextmanager
    async def get(self, path: str, *_: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        assert "/nodepools" in path
        self.asked += 1
        pools = [{"metadata": {"name": name}} for name in self.pools]
        await self.gate.wait()
        yield cast("aiohttp.ClientResponse", Answer({"metadata": {"resourceVersion": "1"}, "items": pools}))


async def test_concurrent_requests_share_a_reading() -> None:
    server = SlowServer()
    server.gate.set()
    state = LiveState(server, PROVIDERS)
    views = await asyncio.gather(*(state.fresh() for _ in range(100)))
    assert [names(view) for view in views] == [["first"]] * 100
    assert server.asked == 1


async def test_a_request_never_gets_a_reading_that_began_before_it() -> None:
    server = SlowServer()
    state = LiveState(server, PROVIDERS)
    early = asyncio.create_task(state.fresh())
    await until(lambda: server.asked == 1)
    server.pools = ["second"]
    late = [asyncio.create_task(state.fresh()) for _ in range(3)]
    await asyncio.sleep(0)
    server.gate.set()
    assert names(await early) == ["first"]
    assert [names(view) for view in await asyncio.gather(*late)] == [["second"]] * 3
    assert server.asked == 2
    server.pools = ["third"]
    assert names(await state.fresh()) == ["third"]


async def test_readings_start_one_pause_apart_under_any_load() -> None:
    server = SlowServer()
    server.gate.set()
    state = LiveState(server, PROVIDERS, Pace(apart=3600))
    await state.fresh()
    waiting = [asyncio.create_task(state.fresh()) for _ in range(1000)]
    await asyncio.sleep(0.05)
    assert server.asked == 1
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    state = LiveState(server, PROVIDERS, Pace(apart=0.001))
    for _ in range(5):
        await state.fresh()
    assert server.asked == 6


async def test_a_canceled_request_does_not_cancel_a_shared_reading() -> None:
    server = SlowServer()
    state = LiveState(server, PROVIDERS)
    impatient, patient = asyncio.create_task(state.fresh()), asyncio.create_task(state.fresh())
    await until(lambda: server.asked == 1)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    server.gate.set()
    assert names(await patient) == ["first"]


async def test_a_bug_in_a_reader_makes_the_pools_unknown() -> None:
    server = SlowServer()
    server.gate.set()
    server.pools = [object()]  # no JSON
    view = await LiveState(server, PROVIDERS).fresh()
    assert view.pools is None
    assert view.why_unknown == (
        "nodepools.compute.coreweave.com can't be read because of a bug in spotgate (TypeError)."
    )


# Copies


def lines(*events: tuple[str, dict[str, Any]] | Exception) -> Lines:
    """Return the response to a watch with these events."""
    return Lines(
        event if isinstance(event, Exception) else json.dumps({"type": event[0], "object": event[1]}).encode()
        for event in events
    )


class Script(Api):
    """A server that gives a list of answers, then none, and records the requests."""

    def __init__(self, *answers: Answer | Lines | Exception) -> None:
        self.asked: list[str] = []
        self._answers = iter(answers)

    @asynccontextmanager
    async def get(self, path: str, *_: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        query = parse_qs(urlsplit(path).query)
        self.asked.append(f"watch from {query['resourceVersion'][0]}" if "watch" in query else "list")
        answer = next(self._answers, None)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        yield cast("aiohttp.ClientResponse", answer)


def thing(name: str, version: str, text: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version, "labels": {"text": text}}}


def listing(version: str, *things: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": version}, "items": things})


def bookmark(version: str) -> tuple[str, dict[str, Any]]:
    return "BOOKMARK", {"metadata": {"resourceVersion": version}}


THINGS = WatchedResource(resource="things", read=lambda metadata, _: (metadata.labels or {})["text"])


@asynccontextmanager
async def mirror_of(script: Script, pace: Pace = HASTE) -> AsyncIterator[Mirror[str]]:
    mirror = Mirror(script, THINGS, pace, lambda: None)
    run = asyncio.create_task(mirror.run())
    yield mirror
    run.cancel()
    await asyncio.wait([run])


async def test_a_copy_follows_every_event() -> None:
    script = Script(
        listing("1", thing("a", "1", "one"), thing("b", "1", "one")),
        lines(
            ("ADDED", thing("c", "2", "one")), ("MODIFIED", thing("a", "3", "two")), ("DELETED", thing("b", "4", "one"))
        ),
    )
    async with mirror_of(script) as mirror:
        await until(lambda: len(script.asked) == 3)
        assert mirror.items == {("", "a"): "two", ("", "c"): "one"}
        assert script.asked == ["list", "watch from 1", "watch from 4"]


@pytest.mark.parametrize("status", [0, 401, 429, 500, 502, 503])
async def test_a_watch_resumes_after_a_transient_failure(status: int) -> None:
    script = Script(listing("1", thing("a", "1")), lines(bookmark("7"), ApiError("it failed", status)))
    async with mirror_of(script) as mirror:
        await until(lambda: len(script.asked) == 3)
        assert script.asked == ["list", "watch from 1", "watch from 7"]
        assert mirror.items.keys() == {("", "a")}
        assert mirror.known


async def test_state_that_a_starting_api_server_forbids_stays_known(written: io.BytesIO) -> None:
    refused = ApiError.refused(403, "things is forbidden: RBAC")
    script = Script(listing("1", thing("a", "1", "one")), lines(), refused, refused, refused, listing("2"), lines())
    async with mirror_of(script) as mirror:
        await until(lambda: mirror.known)
        await until(lambda: mirror.problem)
        assert mirror.known
        assert mirror.items == {("", "a"): "one"}
        await until(lambda: not mirror.items)
        assert (mirror.known, mirror.problem) == (True, None)
    assert b"403 Forbidden" in written.getvalue()


async def test_state_forbidden_for_long_is_unknown_until_allowed() -> None:
    refused = ApiError.refused(403, "things is forbidden: RBAC")
    script = Script(listing("1"), lines(), *[refused] * 1000)
    async with mirror_of(script, replace(HASTE, forbidden=0.05)) as mirror:
        await until(lambda: mirror.known)
        await until(lambda: not mirror.known)
        assert mirror.problem is refused


async def test_only_consecutive_refusals_count() -> None:
    refused, gone = ApiError.refused(403, "no"), ApiError("connection refused")
    script = Script(listing("1"), lines(), *[refused, gone] * 500)
    async with mirror_of(script, replace(HASTE, forbidden=0.05)) as mirror:
        await until(lambda: len(script.asked) > 200)
        assert mirror.known


@pytest.mark.parametrize("status", [400, 404, 410, 504])
async def test_a_watch_that_can_not_resume_lists_again(status: int) -> None:
    script = Script(
        listing("1", thing("a", "1")),
        lines(("ERROR", {"code": status, "message": "no"})),
        listing("9", thing("b", "9")),
    )
    async with mirror_of(script) as mirror:
        await until(lambda: len(script.asked) == 4)
        assert script.asked == ["list", "watch from 1", "list", "watch from 9"]
        assert mirror.items.keys() == {("", "b")}


async def test_an_unreadable_object_does_not_end_the_watch(written: io.BytesIO) -> None:
    script = Script(
        listing("1"),
        lines(("ADDED", {"metadata": {"name": "a", "resourceVersion": "2"}})),
        listing("3", thing("a", "3", "mended")),
    )
    async with mirror_of(script) as mirror:
        await until(lambda: mirror.items)
        assert mirror.items == {("", "a"): "mended"}
    assert b"a bug in spotgate: KeyError at " in written.getvalue()


async def test_a_problem_is_reported_until_it_is_resolved() -> None:
    script = Script(ApiError("no way"), ApiError("no way"), listing("1"), lines())
    async with mirror_of(script) as mirror:
        await until(lambda: mirror.problem)
        assert (str(mirror.problem), mirror.known) == ("no way", False)
        await until(lambda: mirror.known)
        assert mirror.problem is None


def test_pauses_double_up_to_a_maximum_with_jitter() -> None:
    def some(pauses: Iterator[float]) -> list[float]:
        return list(itertools.islice(pauses, 8))

    pace = Pace(first=1, most=30)
    pauses = some(pace.pauses())
    for pause, middle in zip(pauses, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert 0.5 * middle <= pause <= 1.5 * middle
    assert pauses != some(pace.pauses())


async def test_a_copy_is_not_live_if_nothing_arrives_although_the_connection_stays_open() -> None:
    pace = replace(HASTE, silence=0.05)
    async with mirror_of(Script(listing("1"), Silence()), pace) as mirror:
        await until(lambda: mirror.known)
        assert mirror.live
        await until(lambda: not mirror.live)
        assert mirror.problem is None


async def test_the_next_watch_follows_a_long_one_without_a_pause() -> None:
    script = Script(listing("1"), *[lines(bookmark(str(version))) for version in range(2, 9)])
    async with mirror_of(script, replace(HASTE, first=3600, steady=0)):
        await until(lambda: script.asked[-1:] == ["watch from 8"])


async def test_a_watch_that_ends_too_soon_is_followed_by_a_pause() -> None:
    script = Script(listing("1"), lines(bookmark("2")), lines())
    async with mirror_of(script, replace(HASTE, first=3600)):
        await until(lambda: len(script.asked) == 2)
        await asyncio.sleep(0.05)
        assert script.asked == ["list", "watch from 1"]
