"""The flags of `spotgate rehearse`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.cluster.connection import Connection

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.rehearse.inputs.selection import Growth
    from webhook.rehearse.result import DrainedBy


@dataclass(frozen=True, slots=True)
class RehearseOptions(Connection):
    """The flags, parsed."""

    paths: list[str]
    lose: list[str]
    runs: int
    max_pending: int | None
    compare: str | None
    with_fixes: bool
    fix_seconds: float
    publish: tuple[str, str] | None
    output: str
    state: list[str]
    cluster: str
    drained_by: DrainedBy | None
    grow: list[Growth]
    allocatable: list[tuple[str, dict[str, str]]]
    startup_seconds: float
    provisioning_seconds: int | None
    scheduler_config: Path | None
    policies: list[Path]
    binaries: Path | None
    prepare: bool
