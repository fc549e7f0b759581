"""Keep a copy of one resource of an API server up to date: list it once, then watch it.

What was seen last is kept while the API server can't be reached: a copy that is a little old places Pods well enough.
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

from webhook.cluster.api import ApiError
from webhook.cluster.source import T, metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger

    from webhook.cluster.api import Api
    from webhook.cluster.source import ObjectKey, WatchedResource

log: FilteringBoundLogger = structlog.get_logger()

_GO_ON: Final = frozenset(
    {
        0,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""After these a watch continues. After others, as 410 (too old) or 504 (too new), all objects are listed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals and timeouts of requests to an API server, in seconds.

    Attributes:
        first: the pause after a failure; doubled each time, and varied so that replicas don't ask all at once.
        most: the longest pause; a resource that the cluster does not have is looked for at this interval.
        steady: who has watched so long begins with the first pause again.
        answer: for an answer that is no watch. The API server's own calls to a webhook last 3 s in our configuration.
        watch: after which a new watch begins; client-go takes five to ten minutes.
        silence: without data a connection counts as lost; the API server sends something every minute.
        version: between looks at the API server's version.
        forbidden: after so long of nothing but 403 what was known is unknown. An API server that starts refuses
            everybody until it has read the roles: seconds, and in a large cluster tens of them.
        apart: between the starts of two fresh readings, whatever is asked: at most ten a second, each a list of all
            node pools. Who needs one waits that long at most, of the 2 s that a request has for it.
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
        """Yield the delays before one retry after the other."""
        pause = self.first
        while True:
            yield pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            pause = min(2 * pause, self.most)


class Mirror(Generic[T]):
    """An up-to-date copy of one resource.

    ``replaced`` is called with what was kept of an object and what is kept now; None: there is none.

    Attributes:
        items: the part of each object that is kept.
        changes: counts the changes of `items`.
        known: they have been listed and are watched, or the cluster does not have such a resource. That stays so while
            the API server can't be reached or does not know us (401), and ends when it keeps forbidding it (403).
        problem: what keeps it from being up to date; None while nothing does.
        heard: when the API server was last heard of, by `time.monotonic`.
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
        self.changes = 0
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
            except Exception as error:  # noqa: BLE001 - one object that we can't digest must not end the server
                self._resource_version = ""
                frame = traceback.extract_tb(error.__traceback__)[-1]
                self._failed(ApiError(f"a bug in spotgate: {type(error).__name__} at {frame.filename}:{frame.lineno}"))
            if monotonic() - began > self._pace.steady:
                pauses = self._pace.pauses()
            await asyncio.sleep(next(pauses))

    async def _follow(self) -> None:
        """List the objects if needed, then watch until the watch ends."""
        if not self._resource_version and not await self._list():
            return
        seconds = self._pace.watch * random.uniform(1, 1.5)  # noqa: S311 - no secret
        async with self.source.watch(
            self._api, self._version, self._resource_version, seconds=seconds, silence=self._pace.silence
        ) as lines:
            self._succeeded()
            async for line in lines:
                self.heard = monotonic()
                self._take(line)

    async def _list(self) -> bool:
        """List the objects. Return False if the cluster has no such resource."""
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
        """Keep this part of an object; None: it is gone. Return whether that is a change."""
        before = self.items.get(key)
        if before == item:
            return False
        if item is None:
            del self.items[key]
        else:
            self.items[key] = item
        self.changes += 1
        self._replaced(before, item)
        return True

    def _succeeded(self) -> None:
        self.heard = monotonic()
        self._forbidden_since = math.inf
        if self.problem is not None:
            self.problem = None
            log.info("resource followed again", resource=str(self.source))
        self.known = True
        self._changed()

    def _failed(self, error: ApiError) -> None:
        if error.status not in _GO_ON:
            self._resource_version = ""
        if error.status == HTTPStatus.GONE:
            return  # nothing is wrong: the API server forgets what happened long ago
        if str(error) != str(self.problem):
            log.warning("resource not followed", resource=str(self.source), problem=str(error))
        self.problem = error
        now = monotonic()
        forbidden = error.status == HTTPStatus.FORBIDDEN
        self._forbidden_since = min(self._forbidden_since, now) if forbidden else math.inf
        self.known = self.known and now - self._forbidden_since < self._pace.forbidden
        self._changed()


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw
