"""The page about providers matches the files, and its worked example works."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs.pages import blocks
from tests.docs.reference import ROOT
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.commands import main
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "providers.md"
EXAMPLE = ROOT / "examples" / "own-node-pool"


def test_the_worked_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = (block for block in blocks(PAGE) if block.startswith("$ spotgate check"))
    command, _, output = shown.partition("\n")
    assert (
        main(
            [
                part if part.startswith("--") else part.replace("examples/", f"{ROOT}/examples/")
                for part in command.split()[2:]
            ]
        )
        == 1
    )
    assert capsys.readouterr().out.replace(f"{ROOT}/", "").startswith(output)


def test_the_example_provider_works_with_the_shipped_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = (EXAMPLE / "policies" / "acme.yaml").read_text().partition("---\n")[0]
    (tmp_path / "acme.yaml").write_text(provider)
    assert main(["check", str(EXAMPLE / "fleets.yaml"), f"--policies={SHIPPED}", f"--policies={tmp_path}"]) == 1
    assert "Fleet infra/training  on-demand-fallback/missing" in capsys.readouterr().out


def test_the_worked_example_is_read_as_documented() -> None:
    (reader,) = (item for item in load_bundle([EXAMPLE / "policies"]).readers if item.kind == "Fleet")
    training, web = (reader.read(value) for value in yaml.safe_load_all((EXAMPLE / "fleets.yaml").read_text()))
    assert training == Pool(
        provider="acme",
        kind="Fleet",
        name="training",
        namespace="infra",
        pool_name="training",
        capacity=CapacityType.SPOT,
        gpu=Gpu.YES,
        instance_type="gx-8xh100",
        autoscaling=True,
        desired=0,
        maximum=16,
        taints=(Taint("acme.example/lease", "preemptible", "NoSchedule"),),
        labels={"team": "ml", "acme.example/fleet": "training"},
        zones=frozenset({"hall-a"}),
        grace_seconds=45,
        safety_margin_seconds=0,
    )
    assert (web.capacity, web.gpu, web.unusable, web.problems) == (CapacityType.ON_DEMAND, Gpu.NO, "", ())


def test_a_mistake_in_an_expression_has_file_line_and_field(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "policies", tmp_path / "policies")
    file = tmp_path / "policies" / "acme.yaml"
    file.write_text(file.read_text().replace("from: spec.lease.type", "from: spec.lease[.type"))
    with pytest.raises(PolicyErrors) as raised:
        load_bundle([tmp_path / "policies"])
    (shown,) = (block for block in blocks(PAGE) if "not a JMESPath expression" in block)
    assert str(raised.value).replace(f"{tmp_path}/", "").startswith(shown.strip().removesuffix("..."))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("        from: spec.lease.type\n", ""), "write either `from` or `label`"),
        (("        from: spec.lease.type\n", "        label: a/b\n"), "`capacity.label` needs `requirements`"),
        (("        desired: spec.size.wanted\n", ""), "write `desired`, or `sizedBy`"),
        (
            ("values: {preemptible: spot", "values: {preemptible: sopt"),
            "'sopt' is not one of spot, on-demand, both, limited or unknown",
        ),
        (
            ("        limit: spec.lease.warning", "        limits: spec.lease.warning"),
            "unknown field `limits`, did you mean `limit`?",
        ),
    ],
)
def test_an_invalid_reader_is_rejected(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    text = (EXAMPLE / "policies" / "acme.yaml").read_text()
    assert change[0] in text
    (tmp_path / "acme.yaml").write_text(text.replace(*change))
    with pytest.raises(PolicyErrors, match=re.escape(problem)):
        load_bundle([tmp_path])
