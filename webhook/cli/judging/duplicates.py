"""Findings about node pools that are in the files more than once, which may be files of several clusters."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from webhook.cli.judging.judge import written_identity
from webhook.decision import ENGINE, Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from webhook.cli.judging.judge import Identity
    from webhook.manifests.objects import Manifest


_LISTED: Final = 5
"""Places that a finding names; it counts the rest."""


class Places:
    """The places of all objects of some kinds.

    Args:
        objects: all objects of the files.
        kinds: API groups and kinds.
    """

    def __init__(self, objects: Iterable[Manifest], kinds: Collection[tuple[str, str]]) -> None:
        self._places: dict[Identity, list[str]] = {}
        for each in objects:
            if (each.group, each.kind) in kinds and each.name:
                self._places.setdefault(written_identity(each), []).append(_place(each))

    def duplicate(self, manifest: Manifest) -> Finding | None:
        """Return a finding if the object is at other places too, or None."""
        places = self._places.get(written_identity(manifest), [])
        others = (place for place in places if place != _place(manifest))
        elsewhere = list(islice(others, _LISTED))
        if not elsewhere:
            return None
        rest = len(places) - 1 - len(elsewhere)
        named = ", ".join([*elsewhere, *([f"{rest} more places"] if rest > 0 else [])])
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
