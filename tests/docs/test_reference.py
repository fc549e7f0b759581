"""The reference of every kind matches the models, and its examples load."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.docs.reference import EVERY, FINDINGS_PAGE, OTHER_PAGES, PAGES, findings_page, marked, page_of, render
from webhook.commands import COMMANDS
from webhook.commands.schema.command import spec_models
from webhook.documents import read_documents
from webhook.engine.bundle import SHIPPED, document_kinds, load_bundle, policy_kinds
from webhook.policy.loader import validate_document

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.policy.errors import Problem

EXAMPLES = [
    (page, number, text)
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))
    if "apiVersion: spotgate.dev/v1" in text
]


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: page.stem)
def test_generated_text_on_the_page_is_current(page: Path) -> None:
    assert page.read_text() == render(page), "run `make golden`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_its_help(command: str) -> None:
    pages = [page for page in OTHER_PAGES if f"<!-- help of {command} -->\n" in page.read_text()]
    assert [page.name for page in pages] == [f"{command}.md"], (
        f"docs/cli/{command}.md needs `<!-- help of {command} -->`"
    )


def test_the_page_of_findings_is_current() -> None:
    assert FINDINGS_PAGE.read_text() == findings_page(), "run `make golden`"


@pytest.mark.parametrize("name", sorted(policy_kinds()))
def test_the_page_of_a_policy_kind_lists_its_findings(name: str) -> None:
    assert f"<!-- findings of {name} -->\n\n| id |" in page_of(name).read_text()


def test_every_kind_has_one_table_and_so_have_the_common_fields() -> None:
    tables = Counter(name for page in PAGES for name in marked(page))
    assert tables == Counter([EVERY, *spec_models()]), "a page for each kind: see docs/adding-a-policy-kind.md"


@pytest.mark.parametrize(
    ("page", "number", "text"), EXAMPLES, ids=[f"{page.stem}-{number}" for page, number, _ in EXAMPLES]
)
def test_every_example_is_valid(page: Path, number: int, text: str) -> None:
    problems: list[Problem] = []
    for document in read_documents(text.encode(), f"{page.stem}-{number}"):
        validate_document(document, spec_models(), problems)
    assert problems == []


@pytest.mark.parametrize("kind", sorted(document_kinds()))
def test_every_kind_has_an_example_on_its_page_and_the_page_compiles(kind: str, tmp_path: Path) -> None:
    page = page_of(kind)
    examples = "---\n".join(text for where, _, text in EXAMPLES if where == page)
    (tmp_path / "page.yaml").write_text(examples)
    bundle = load_bundle([tmp_path / "page.yaml", SHIPPED])
    assert kind in {item.kind for item in bundle.documents if item.document.file.endswith("page.yaml")}
