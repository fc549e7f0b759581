"""Requests that are answered without being judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import hdrs, web

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_TYPE: Final = "application/json"


class RejectedError(Exception):
    """The request is not judged.

    Attributes:
        status: of the HTTP answer.
        reason: a few words, the same for all requests of this sort.
        message: for the person who reads the answer.
        headers: to add to the answer.
    """

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = headers

    def response(self) -> web.Response:
        """Return the HTTP answer: plain JSON, as no UID is known."""
        body = orjson.dumps({"error": self.message})
        headers = {hdrs.SERVER: "spotgate", **(self.headers or {})}  # else aiohttp tells versions
        return web.Response(status=self.status, body=body, headers=headers, content_type=JSON_TYPE)


def too_busy(reason: str) -> RejectedError:
    """Return the error for too many requests. The API server asks again, within its timeout."""
    return RejectedError(429, reason, f"too busy ({reason}); try again in a second", {hdrs.RETRY_AFTER: "1"})
