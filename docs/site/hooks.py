"""What pages need to be read on the site as in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(\.\.?/[^)#\s]+)")
_FENCE = re.compile(r"^```")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of commands and decisions into the menu."""
    for section, folder in (("Reference", "cli"), ("Contributing", "decisions")):
        (entries,) = [item[section] for item in config.nav or [] if section in item]
        overview = f"{folder}/README.md"
        pages = sorted(f"{folder}/{page.name}" for page in Path(config.docs_dir, folder).glob("*.md"))
        after = entries.index(overview) + 1
        entries[after:after] = [page for page in pages if page != overview]
    return config


def on_post_build(*, config: MkDocsConfig) -> None:
    """Show the navigation at the side from 1,200 px, where the theme shows it from 1,220 px (76.25em)."""
    assets = Path(config.site_dir, "assets")
    files = [*assets.glob("stylesheets/*.css"), *assets.glob("javascripts/bundle.*.js")]
    if not all("76.25em" in file.read_text() for file in files):
        raise PluginError("the theme has another breakpoint for the navigation: correct docs/site/hooks.py")
    for file in files:
        file.write_text(file.read_text().replace("76.25em", "75em").replace("76.234375em", "74.984375em"))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Let links to files that are not on the site go to the repository.

    Rank pages in the search. Indent lists, and write | in code in tables, as Python-Markdown wants.
    """
    # In the search, the pages of policies come before the list of findings, which has each of their words more often.
    page.meta["search"] = {"boost": {"policies": 4, "findings.md": 0.25}.get(Path(page.file.src_uri).parts[0], 1)}
    docs = Path(config.docs_dir)
    here = Path(page.file.abs_src_path or docs).parent

    def to_repository(link: re.Match[str]) -> str:
        target = (here / link[1]).resolve()
        if target.is_relative_to(docs):
            return f"{link[1].rstrip('/')}/README.md" if target.is_dir() else link[1]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: {link[1]} leads nowhere")
        kind = "tree" if target.is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/main/{target.relative_to(docs.parent)}"

    lines, in_fence = [], False
    for line in markdown.splitlines():
        in_fence ^= bool(_FENCE.match(line))
        if line.startswith("|") and not in_fence:
            line = _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)  # noqa: PLW2901 - the same line
        lines.append(f" {line}" if line.startswith("   ") and not in_fence else line)
    return _LINK.sub(to_repository, "\n".join(lines))
