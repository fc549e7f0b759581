"""The documentation shows the actual behavior."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs import english
from tests.docs.pages import blocks
from webhook.commands import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "page",
    sorted(
        path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.md")]
    ),
    ids=str,
)
def test_links_resolve(page: Path) -> None:
    folder = (ROOT / page).parent
    text = re.sub(r"^```markdown\n.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)  # templates
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert not [link for link in links if not (folder / link).exists()]


def test_pages_have_at_most_one_foreign_phrase_in_2000_words() -> None:
    phrases = [f"{page.name}:{line}: {words}" for page in english.pages() for line, words in english.foreign(page)]
    assert len(phrases) <= sum(len(english.prose(page).split()) for page in english.pages()) / 2000, phrases


def test_every_requirement_named_by_a_test_is_on_the_page() -> None:
    page = (ROOT / "tests/requirements.md").read_text()
    names = "".join(
        match[1]
        for path in (ROOT / "tests").rglob("test_*.py")
        for match in re.finditer(r"^(?:async )?def test_((?:[A-Z]\d*_)+)", path.read_text(), re.MULTILINE)
    )
    used = set(names.strip("_").split("_"))
    assert len(used) > 20
    assert not [requirement for requirement in sorted(used) if f"\n| {requirement} | " not in page]


def test_the_denial_in_the_readme_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(ROOT / "examples/deployment-misspelt-qos-label.yaml"), "--state", str(ROOT / "examples/state")])
    readme = (ROOT / "README.md").read_text()
    for line in capsys.readouterr().out.splitlines()[1:4]:
        assert line.strip() in readme


def test_the_rollout_steps_begin_with_what_they_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, _ = blocks(ROOT / "docs/roll-out.md", "console")
    assert main(shlex.split(command.removeprefix("$ spotgate "))) == 1
    assert "reserved-labels/reserved" in capsys.readouterr().out
    (policy,) = blocks(ROOT / "docs/roll-out.md", "yaml")
    (tmp_path / "policy.yaml").write_text(policy)
    example = str(ROOT / "examples/deployment-misspelt-qos-label.yaml")
    assert main(["check", example, "--policies", str(tmp_path)]) == 0
    assert "1 audit" in capsys.readouterr().out
