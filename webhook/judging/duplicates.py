"""Find node pools that the files describe several times."""

from __future__ import annotations

from collections import defaultdict
from posixpath import dirname
from typing import TYPE_CHECKING

from webhook.base.terminal import counted
from webhook.base.text import listed
from webhook.inputs.manifests import place_of
from webhook.inputs.objects import Identity, Manifest, written_identity
from webhook.model.decision import Finding, Outcome, engine_finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def duplicated(pools: Iterable[Manifest], judged: Iterable[Manifest]) -> Iterator[tuple[Manifest, Finding]]:
    """Yield the finding for node pools in several places, with the first pool of ``judged``."""
    places: defaultdict[Identity, dict[str, Manifest]] = defaultdict(dict)
    for pool in pools:
        places[written_identity(pool)][place_of(pool)] = pool
    duplicates = [pool for pool in judged if len(places[written_identity(pool)]) > 1]
    if not duplicates:
        return
    repeated = [places[identity] for identity in dict.fromkeys(map(written_identity, duplicates))]
    name, own_place = f"{duplicates[0].kind} {duplicates[0].name}", place_of(duplicates[0])
    elsewhere = [place for place in repeated[0] if place != own_place]
    more = f" Also repeated: {counted(len(repeated) - 1, 'other node pool')}." if len(repeated) > 1 else ""
    clusters = max((sorted({dirname(pool.file) or "." for pool in group.values()}) for group in repeated), key=len)
    several = f"the files describe {len(clusters)} clusters: {listed(clusters, rest=', ')}"
    finding = engine_finding(
        id="object/duplicate",
        outcome=Outcome.WARN,
        reason=several if len(clusters) > 1 else f"{name} is in the files more than once",
        field="metadata.name",
        detail=f"{name} is also at {listed(elsewhere, rest=', ')}.{more} spotgate evaluates all files as one cluster, "
        "so the last definition replaces the others. A pool of one cluster counts as a fallback in another.",
        fix="keep one definition; for several clusters, run `spotgate check` separately for each one's folder",
    )
    yield duplicates[0], finding
