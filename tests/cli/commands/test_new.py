"""`spotgate new`: the example of every kind is the one on the kind's page, which tests/test_reference.py loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from tests.reference import ROOT, page_of
from webhook.commands.schema.command import spec_models
from webhook.engine.bundle import document_kinds, example_files, load_bundle

if TYPE_CHECKING:
    from tests.cli.conftest import Run

KINDS = sorted(spec_models())


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_every_kind_is_the_one_on_its_page(run: Run, kind: str) -> None:
    file = example_files()[kind].relative_to(ROOT)
    assert file.exists(), f"write {file}, the example of {kind}"
    done = run("new", kind)
    assert (done.code, done.out, done.err) == (0, file.read_text(), "")
    assert f"<!-- text of {file} -->" in page_of(kind).read_text(), "the example's place on the page"


@pytest.mark.parametrize("kind", ["GracefulTermination", "SpotPlacement"])
def test_the_example_of_a_kind_that_decides_has_the_values_of_the_shipped_policy(run: Run, kind: str) -> None:
    """`overrides` inherits nothing: who starts from the example changes only what they edit."""
    example = yaml.safe_load(run("new", kind).out)
    (shipped,) = (each for each in load_bundle().documents if each.kind == kind)
    assert example["spec"].pop("overrides") == [shipped.name]
    assert example["spec"].pop("match")
    assert document_kinds()[kind].model_validate(example["spec"]) == shipped.spec
