"""Findings about node pools that are in the files more than once, which may be files of several clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.cli.judging.judge import written_identity
from webhook.decision import ENGINE, Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.cli.judging.judge import Identity
    from webhook.manifests.objects import Manifest


_LISTED: Final = 5
"""Places that a finding names; it counts the rest."""


class Places:
    """Hold the places of node pools, and the first of those that are judged."""

    def __init__(self, pools: Iterable[Manifest], judged: Iterable[Manifest]) -> None:
        self._places: dict[Identity, dict[str, None]] = {}
        self._first: dict[Identity, str] = {}
        for each in pools:
            self._places.setdefault(written_identity(each), {})[_place(each)] = None
        for each in judged:
            self._first.setdefault(written_identity(each), _place(each))

    def duplicate(self, manifest: Manifest) -> Finding | None:
        """Return a finding at the first judged place of a node pool that is at several places, or None."""
        identity = written_identity(manifest)
        if identity not in self._places:
            return None
        place = _place(manifest)
        others = self._places[identity].keys() - {place}
        if not others or self._first[identity] != place:
            return None
        elsewhere = [each for each in self._places[identity] if each in others]
        rest = len(elsewhere) - _LISTED
        named = ", ".join([*elsewhere[:_LISTED], *([f"{rest} more places"] if rest > 0 else [])])
        return Finding(
            policy=ENGINE,
            id="object/duplicate",
            outcome=Outcome.WARN,
            reason=f"{manifest.kind} {manifest.name} is in the files more than once",
            field="metadata.name",
            detail=f"It is at {named} too. All files are judged as one cluster: the last one counts for "
            "all others, and the pools of both are taken for each other's fallback.",
            fix="judge each cluster by itself: one run for the folder of each",
        )


def _place(manifest: Manifest) -> str:
    return f"{manifest.file}:{manifest.line}"
