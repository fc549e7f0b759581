"""Keep a copy of one resource up to date with a list and a watch, like an informer of client-go.

While the API server is unreachable, the copy stays in use: a stale copy is good enough to place Pods.
"""

from __future__ import annotations

import asyncio
import math
import random
import traceback
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic

import msgspec
import structlog

from webhook.cluster.api import ANSWER_AT_MOST, NO_ANSWER, Api, ApiError
from webhook.cluster.source import ObjectKey, T, WatchedResource, metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger


log: FilteringBoundLogger = structlog.get_logger()

_CONTINUABLE: Final = frozenset({NO_ANSWER, 401, 429, 500, 502, 503})
"""The status codes after which a watch continues. After others, such as 410 (too old) or 504 (too new), relist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals and timeouts of requests to an API server, in seconds.

    Attributes:
        first: the pause after the first failure. It doubles each time, with jitter so that replicas don't synchronize.
        most: the longest pause, and the interval to look for a resource that the cluster doesn't have.
        steady: the length of a watch after which the next one starts without a pause.
        answer: the timeout of a request other than a watch. The API server waits 3 s for spotgate's webhooks.
        watch: the length of a watch; client-go uses five to ten minutes.
        silence: the time without data after which a connection counts as lost. The API server sends a bookmark every
            minute.
        version: the interval to read the API server's version.
        forbidden: the time of only 403 responses after which the resource is unknown. A starting API server returns 403
            until it has read all roles, which takes seconds, or tens of seconds in a large cluster.
        apart: the minimum interval between two fresh reads, each a list of all node pools: at most ten a second. A
            request waits at most this long, of the 2 s that it has for a read.
    """

    first: float = 0.5
    most: float = 30
    steady: float = 10
    answer: float = 5
    watch: float = 300
    silence: float = 90
    version: float = 300
    forbidden: float = 60
    apart: float = 0.1

    def pauses(self) -> Iterator[float]:
        """Yield the delays before each retry."""
        pause = self.first
        while True:
            yield pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            pause = min(2 * pause, self.most)


class Mirror(Generic[T]):
    """An up-to-date copy of one resource.

    ``changed`` is called after any change. ``replaced`` is called with the previous and the new part of an object, each
    None if the object doesn't exist.

    Attributes:
        items: the stored part of each object.
        known: whether the objects have been listed, or the cluster doesn't have the resource. Stays True while the API
            server is unreachable or rejects the credentials (401); becomes False if it keeps returning 403.
        problem: why the copy isn't up to date; None if it is.
        heard: the time of the API server's last message, by `time.monotonic`.
    """

    def __init__(
        self,
        api: Api,
        source: WatchedResource[T],
        pace: Pace,
        changed: Callable[[], None],
        replaced: Callable[[T | None, T | None], None] = lambda _before, _after: None,
    ) -> None:
        self.source = source
        self.items: dict[ObjectKey, T] = {}
        self.known = False
        self.problem: ApiError | None = None
        self.heard = monotonic()
        self._api = api
        self._pace = pace
        self._changed = changed
        self._replaced = replaced
        self._version = ""
        self._resource_version = ""
        self._forbidden_since = math.inf

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        pauses = self._pace.pauses()
        while True:
            began = monotonic()
            try:
                await self._follow()
            except ApiError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - an object that spotgate can't handle must not stop the server
                self._resource_version = ""
                frame = traceback.extract_tb(error.__traceback__)[-1]
                self._failed(ApiError(f"a bug in spotgate: {type(error).__name__} at {frame.filename}:{frame.lineno}"))
            if monotonic() - began > self._pace.steady:
                pauses = self._pace.pauses()
            await asyncio.sleep(next(pauses))

    @property
    def live(self) -> bool:
        """Return whether the watch works. It is known to for `silence`, if `watch` is shorter."""
        return self.problem is None and monotonic() - self.heard < self._pace.silence

    async def _follow(self) -> None:
        """List the objects if needed, then watch until a watch ends too soon."""
        if not self._resource_version and not await self._list():
            return
        began = -math.inf
        while monotonic() - began > self._pace.steady:
            began = monotonic()
            await self._watch()

    async def _watch(self) -> None:
        seconds = self._pace.watch * random.uniform(1, 1.5)  # noqa: S311 - no secret
        async with self.source.watch(
            self._api, self._version, self._resource_version, seconds=seconds, silence=self._pace.silence
        ) as lines:
            self._succeeded()
            while line := await lines.readline(max_line_length=ANSWER_AT_MOST):
                self.heard = monotonic()
                self._take(line)
            self.heard = monotonic()

    async def _list(self) -> bool:
        """List the objects. Return False if the cluster doesn't have the resource."""
        listing = await self.source.list(self._api, self._pace.answer)
        if listing is None:
            self._replace_all({})
            self._succeeded()
            return False
        self._replace_all(listing.items)
        self._version, self._resource_version = listing.version, listing.resource_version
        self._changed()
        return True

    def _take(self, line: bytes) -> None:
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object)
            raise ApiError.refused(status.get("code", 0), status.get("message", ""))
        metadata = metadata_of(event.object)
        self._resource_version = metadata.resourceVersion
        if event.type != "BOOKMARK":
            item = None if event.type == "DELETED" else self.source.read(metadata, event.object)
            if self._replace(metadata.key, item):
                self._changed()

    def _replace_all(self, items: dict[ObjectKey, T]) -> None:
        for key in self.items.keys() - items.keys():
            self._replace(key, None)
        for key, item in items.items():
            self._replace(key, item)

    def _replace(self, key: ObjectKey, item: T | None) -> bool:
        """Store a part of an object, or delete it if None. Return whether the copy has changed."""
        before = self.items.get(key)
        if before == item:
            return False
        if item is None:
            del self.items[key]
        else:
            self.items[key] = item
        self._replaced(before, item)
        return True

    def _succeeded(self) -> None:
        self.heard = monotonic()
        self._forbidden_since = math.inf
        if self.problem is not None:
            self.problem = None
            log.info("resource watched again", resource=str(self.source))
        self.known = True
        self._changed()

    def _failed(self, error: ApiError) -> None:
        if error.status not in _CONTINUABLE:
            self._resource_version = ""
        if error.status == HTTPStatus.GONE:
            return  # not a problem: the API server discards old events
        if str(error) != str(self.problem):
            log.warning("resource not watched", resource=str(self.source), problem=str(error))
        self.problem = error
        now = monotonic()
        forbidden = error.status == HTTPStatus.FORBIDDEN
        self._forbidden_since = min(self._forbidden_since, now) if forbidden else math.inf
        self.known = self.known and now - self._forbidden_since < self._pace.forbidden
        self._changed()


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw
