"""The alternative to an on-demand floor: two Deployments with one Service and one budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.commands import main

if TYPE_CHECKING:
    import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_two_deployments_share_a_budget_and_one_of_them_is_placed_on_spot(capsys: pytest.CaptureFixture[str]) -> None:
    file = EXAMPLES / "on-demand-floor" / "two-capacities.yaml"
    assert main(["check", "-o", "json", str(file), "--state", str(EXAMPLES / "state")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["results"] == []
    (patched,) = report["patches"]
    selectors = [each["value"] for each in patched["patch"] if each["path"].endswith("/nodeSelector")]
    assert (patched["name"], selectors) == ("checkout-spot", [{"compute.coreweave.com/node-pool": "cpu-spot"}])
