"""``spotgate explain`` of a node pool by your own reader; scenarios/explain-pools.yaml has the shipped ones."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cli.conftest import SPOT_POOL
from webhook.engine.bundle import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from tests.cli.conftest import Run

    Write: TypeAlias = Callable[[str, str | bytes], Path]


def test_a_wrong_path_in_a_reader_of_ones_own_is_seen(run: Run, write: Write, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "policies", ignore=shutil.ignore_patterns("tests"))
    cks = tmp_path / "policies" / "providers" / "cks.yaml"
    cks.write_text(cks.read_text().replace("from: spec.computeClass", "from: spec.class"))
    done = run("explain", "--policies", tmp_path / "policies", write("pool.yaml", SPOT_POOL))
    assert "  capacity         on-demand  (no spec.class)\n" in done.out
