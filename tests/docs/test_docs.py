"""The documentation shows the actual behavior."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

import webhook.rules
from tests.docs import english
from tests.docs.pages import blocks
from tests.rules.cases import CaseFile, judged, shown
from webhook import formats as output
from webhook.commands import main
from webhook.engine import bundle
from webhook.engine.findings import FindingText

ROOT = Path(__file__).parents[2]


def test_policy_kinds_are_discovered_by_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, rule, face = blocks(ROOT / "docs/adding-a-policy-kind.md", "python")
    texts, policy, cases = blocks(ROOT / "docs/adding-a-policy-kind.md", "yaml")
    msgspec.convert(yaml.safe_load(texts), dict[str, FindingText])
    folder = tmp_path / "rules" / "priority_class"
    folder.mkdir(parents=True)
    rule = rule.replace("if TYPE_CHECKING:", "if True:")  # these names must exist, too
    for name, text in (("spec", model), ("rule", rule), ("__init__", face)):
        (folder / f"{name}.py").write_text(text)
    (folder / "cases.yaml").write_text(cases)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "team.yaml").write_text(policy)
    monkeypatch.setattr(webhook.rules, "__path__", [*webhook.rules.__path__, str(tmp_path / "rules")])
    bundle.policy_kinds.cache_clear()
    try:
        exit_code = main(
            [
                "check",
                str(ROOT / "examples/training-job.yaml"),
                "--policies",
                str(tmp_path / "policies"),
                "--fail-on=warn",
            ]
        )
        for example in CaseFile(folder / "cases.yaml").examples():
            findings = judged(example, tmp_path)[1].findings
            assert [shown(*pair) for pair in zip(findings, example.expect, strict=True)] == example.expect
    finally:
        bundle.policy_kinds.cache_clear()
        for module in [name for name in sys.modules if name.startswith("webhook.rules.priority_class")]:
            sys.modules.pop(module, None)
    assert exit_code == 1
    printed = capsys.readouterr().out
    assert "the Pod has no priority class (at spec.template.spec.priorityClassName)" in printed
    assert "set `priorityClassName: training`" in printed


def test_output_formats_are_discovered_by_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = blocks(ROOT / "docs/adding-an-output-format.md", "python")
    (tmp_path / "markdown.py").write_text(module)
    monkeypatch.setattr(output, "__path__", [*output.__path__, str(tmp_path)])
    monkeypatch.setattr(output, "FORMATS", (*output.FORMATS, "markdown"))
    try:
        assert main(["check", "-o", "markdown", str(ROOT / "examples/deployment-misspelt-qos-label.yaml")]) == 1
    finally:
        sys.modules.pop("webhook.formats.markdown", None)
    row = capsys.readouterr().out.splitlines()[2]
    assert row.startswith("| examples/deployment-misspelt-qos-label.yaml:19 | deny `reserved-labels/reserved` | ")


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
