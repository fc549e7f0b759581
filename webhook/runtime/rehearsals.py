"""Read the result of the nightly rehearsals (`spotgate rehearse --publish`), for metrics and the operators' page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

KEY: Final = "rehearsal.json"
"""The key in the ConfigMap, and the name of its file in a volume."""


class PoolRehearsal(msgspec.Struct, frozen=True, rename="camel"):
    """The effect of losing a pool: its nodes, Pods that are pending or missing afterwards, and Pods killed early."""

    pool: str
    nodes: int
    pending: int
    killed_early: int


class PublishedRehearsals(msgspec.Struct, frozen=True):
    """The rehearsals of one night, one for each pool, and the Unix time when they ended."""

    timestamp: float
    pools: tuple[PoolRehearsal, ...] = ()


def read_rehearsals(file: Path | None) -> PublishedRehearsals | None:
    """Return the last published rehearsals, or None. An unreadable file gets the time 1970, which raises an alert."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=PublishedRehearsals) if file is not None else None
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        return PublishedRehearsals(0)
