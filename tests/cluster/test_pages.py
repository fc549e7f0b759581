"""Lists are read page by page, even after the API server has dropped the state of the first page."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec
import pytest

from webhook.cluster.api import TOO_LARGE, ApiError
from webhook.cluster.source import PAGE, pages

GONE = HTTPStatus.GONE


class Api:
    """An API server with a given answer for each continue token: items and the next token, or an error."""

    def __init__(self, answers: dict[str, tuple[list[int], str] | ApiError]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def fetch(self, path: str) -> bytes:
        query = parse_qs(path.partition("?")[2])
        token = query.get("continue", [""])[0]
        self.asked.append(token)
        answer = self.answers[token]
        if isinstance(answer, ApiError):
            raise answer
        return msgspec.json.encode({"metadata": {"continue": answer[1]}, "items": answer[0]})


async def read(api: Api, *, renew: bool) -> list[int]:
    return [
        msgspec.json.decode(raw)
        async for page in pages(api.fetch, "/api/v1/pods", renew=renew)
        for raw in page.items or ()
    ]


async def test_each_page_is_requested_with_the_previous_token() -> None:
    api = Api({"": ([1, 2], "a"), "a": ([], "b"), "b": ([3], "")})
    assert await read(api, renew=False) == [1, 2, 3]
    assert api.asked == ["", "a", "b"]


async def test_an_expired_list_resumes_after_its_last_object() -> None:
    api = Api({"": ([1], "a"), "a": ApiError.refused(GONE, "too old", "fresh"), "fresh": ([2], "")})
    assert await read(api, renew=True) == [1, 2]


@pytest.mark.parametrize(
    ("error", "renew"),
    [
        (ApiError.refused(GONE, "too old", "fresh"), False),
        (ApiError.refused(GONE, "too old"), True),
        (ApiError.refused(GONE, "too old", "a"), True),
        (ApiError.refused(HTTPStatus.FORBIDDEN, "no", "fresh"), True),
    ],
    ids=["watched", "without a token", "the same token", "not about its age"],
)
async def test_other_failures_end_the_list(error: ApiError, *, renew: bool) -> None:
    api = Api({"": ([1], "a"), "a": error, "fresh": ([2], "")})
    with pytest.raises(ApiError):
        await read(api, renew=renew)


@pytest.mark.parametrize("size", [1, 9, 13, 500, 900])
async def test_pages_of_large_objects_have_fewer_objects(size: int) -> None:
    stored, limits = list(range(1200)), []

    async def fetch(path: str) -> bytes:
        query = parse_qs(path.partition("?")[2])
        limit, start = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        if limit > size:
            raise ApiError.refused(TOO_LARGE, "too large")
        limits.append(limit)
        end = start + limit
        token = str(end) if end < len(stored) else ""
        return msgspec.json.encode({"metadata": {"continue": token}, "items": stored[start:end]})

    read = [msgspec.json.decode(raw) async for page in pages(fetch, "/api/v1/pods") for raw in page.items or ()]
    assert read == stored
    assert max(limits) > min(size, PAGE) / 4  # it grows again


async def test_one_object_that_is_too_large_is_an_error() -> None:
    with pytest.raises(ApiError):
        await read(Api({"": ApiError.refused(TOO_LARGE, "too large")}), renew=False)
