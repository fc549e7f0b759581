"""The site: every page is built, every link leads somewhere, and nothing comes from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What a browser fetches by itself; links that are followed are not.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="?https?:|<link\b[^>]*href="?https?:|url\(["']?https?:"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site as `make docs` builds it: a warning, such as a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": "https://git.example.com/us/spotgate"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    wanted = {page.parent if page.name in ("README", "index") else page for page in pages}
    assert {file.parent.relative_to(site) for file in site.rglob("index.html")} == wanted


def test_every_page_is_in_the_menu_once() -> None:
    named = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert [page for page in named if named.count(page) > 1] == []


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 40
    assert not [file for file in files if FETCHED.search(file.read_text())]


def test_what_is_not_on_the_site_is_linked_to_in_the_repository(site: Path) -> None:
    page = (site / "verify/index.html").read_text()
    assert 'href="https://git.example.com/us/spotgate/blob/main/Dockerfile"' in page
    assert 'href="https://git.example.com/us/spotgate/tree/main/policies"' in (site / "policies/index.html").read_text()
