"""The policies that docs/providers.md prints for a node-pool kind of one's own do what it says, copied as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cli import main

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
FLEETS = str(ROOT / "examples" / "own-node-pool" / "fleets.yaml")
DENIED = "GPU spot pool Fleet infra/training has no on-demand fallback (at spec.lease.type)"


def printed() -> list[str]:
    """The provider, and the policy that uses it."""
    section = (ROOT / "docs" / "providers.md").read_text().partition("## Add your own node-pool kind")[2]
    return re.findall(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_both_documents_in_one_file_are_the_policies_of_the_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "acme.yaml").write_text("---\n".join(printed()))
    example = ROOT / "examples" / "own-node-pool" / "policies" / "acme.yaml"
    assert (tmp_path / "acme.yaml").read_text() == example.read_text()
    assert main(["check", FLEETS, "--policies", str(tmp_path)]) == 1
    assert DENIED in capsys.readouterr().out


def test_the_provider_alone_goes_with_the_shipped_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provider, _ = printed()
    (tmp_path / "acme.yaml").write_text(provider)
    assert main(["check", FLEETS, "--policies", str(ROOT / "policies"), "--policies", str(tmp_path)]) == 1
    assert DENIED in capsys.readouterr().out
