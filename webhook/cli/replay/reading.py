"""Reading of reviews: recordings of ``spotgate serve --record``, and AdmissionReviews of the API server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cli.judging.review_errors import position_of
from webhook.manifests.files import STDIN
from webhook.policy.errors import Problem, printable, unreadable
from webhook.review import BadReviewError, decode_review
from webhook.server.recording import SUFFIX, decode_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.review import Request
    from webhook.server.recording import Recorded

_SUFFIXES: Final = (SUFFIX, ".json")


class Review(msgspec.Struct, frozen=True):
    """Describe one review.

    Attributes:
        line: where it begins.
        recorded: the recorded answer and context; None for a plain AdmissionReview.
    """

    file: str
    line: int
    request: Request
    recorded: Recorded | None


class _Notes(msgspec.Struct):
    spotgate: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_notes_decoder: Final = msgspec.json.Decoder(_Notes)


def read_reviews(paths: list[str], problems: list[Problem]) -> Iterator[Review]:
    """Yield the reviews in files, folders and standard input, in order. Mistakes are added to ``problems``."""
    for path in paths:
        for file in _files(Path(path), problems) if path != STDIN else (path,):
            try:
                data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
            except OSError as error:
                problems.append(unreadable(printable(file), error))
                continue
            yield from _reviews(printable(file), data, problems)


def _files(path: Path, problems: list[Problem]) -> list[str]:
    if not path.is_dir():
        return [str(path)]
    inside = (each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
    found = sorted(
        str(each) for each in inside if not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not found:
        problems.append(
            Problem(str(path), 0, 0, "", f"holds no reviews ({', '.join(f'*{each}' for each in _SUFFIXES)})")
        )
    return found


def _reviews(file: str, data: bytes, problems: list[Problem]) -> Iterator[Review]:
    """Yield the one review of a file, or the review on each line."""
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    if not lines:
        problems.append(Problem(file, 1, 1, "", "is empty; it should hold reviews"))
    elif file.endswith(SUFFIX) or any(_is_review(line) for _, line in lines):
        for number, line in lines:
            yield from _review(file, number, line, problems)
    else:
        yield from _review(file, 1, data, problems)


def _is_review(line: bytes) -> bool:
    try:
        decode_review(line)
    except BadReviewError:
        return False
    return True


def _review(file: str, line: int, data: bytes, problems: list[Problem]) -> Iterator[Review]:
    try:
        request = decode_review(data)
    except BadReviewError as error:
        row, column = position_of(data, str(error))
        row = min(row, data.count(b"\n") + 1)  # what is cut off is wrong behind its end
        problems.append(Problem(file, line + row - 1, column, "", str(error)))
        return
    try:
        recorded = None if _notes_decoder.decode(data).spotgate is msgspec.UNSET else decode_notes(data)
    except msgspec.MsgspecError as error:
        text = f"was recorded by a version of spotgate that this one does not understand: {error}"
        problems.append(Problem(file, line, 1, "spotgate", text))
        return
    yield Review(file, line, request, recorded)
