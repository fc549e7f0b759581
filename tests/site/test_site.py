"""The site that `make docs` has built in site/."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
REPOSITORY = os.environ.get("REPOSITORY_URL", "https://github.com/example/spotgate")

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="`make docs` builds site/")

# Elements that a browser fetches by itself, without links.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="?https?:|<link\b[^>]*href="?https?:|url\(["']?https?:"""
)


def test_every_page_is_on_the_site() -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    wanted = {page.parent if page.name in ("README", "index") else page for page in pages}
    assert {file.parent.relative_to(SITE) for file in SITE.rglob("index.html")} == wanted


def test_every_page_is_in_the_menu_once() -> None:
    named = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert [page for page in named if named.count(page) > 1] == []


def test_nothing_is_fetched_from_another_host() -> None:
    files = [*SITE.rglob("*.html"), *SITE.rglob("*.css")]
    assert len(files) > 40
    assert not [file for file in files if FETCHED.search(file.read_text())]


def test_files_outside_the_site_are_linked_in_the_repository() -> None:
    assert f'href="{REPOSITORY}/blob/main/Dockerfile"' in (SITE / "verify/index.html").read_text()
    assert f'href="{REPOSITORY}/tree/main/policies"' in (SITE / "policies/index.html").read_text()


def test_policy_pages_rank_above_the_list_of_findings_in_the_search() -> None:
    docs = json.loads((SITE / "search/search_index.json").read_text())["docs"]
    boost = {doc["location"]: doc.get("boost", 1) for doc in docs}
    assert boost["policies/graceful-termination/"] > boost["tutorial/"] > boost["findings/"]


def test_the_navigation_is_at_the_side_from_1200_px() -> None:
    (styles,) = SITE.glob("assets/stylesheets/main.*.css")
    assert "75em" in styles.read_text()
    assert "76.25em" not in styles.read_text()
