"""`spotgate new`: the example of every kind is the one on the kind's page, which tests/test_reference.py loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reference import PAGES, marked
from webhook.cli.export.policy_schema import spec_models

if TYPE_CHECKING:
    from tests.cli.conftest import Run

KINDS = sorted(spec_models())


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_every_kind_is_the_one_on_its_page(run: Run, kind: str) -> None:
    done = run("new", kind)
    assert (done.code, done.err) == (0, "")
    (page,) = (page for page in PAGES if kind in marked(page))
    assert f"\n```yaml\n{done.out}```\n" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ReservedLabel"], "unknown kind 'ReservedLabel', did you mean `ReservedLabels`?"),
        (["Deployment"], "unknown kind 'Deployment'; there are: CapacityProvider, "),
        ([], "the following arguments are required: KIND"),
    ],
)
def test_a_mistake_is_said(run: Run, arguments: list[str], said: str) -> None:
    done = run("new", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
