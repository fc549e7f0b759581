"""A finding has the line and column of the offending field, in any document style."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import POD

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


HERE = "«"
"""The mark in front of the field, which is not in the file."""

BLOCK = POD.replace("example.com/team", f"{HERE}example.com/team")
JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"team": "é𝒳", f"{HERE}example.com/team": "a"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
FLOW = f"{{apiVersion: v1, kind: Pod, metadata: {{name: é𝒳, labels: {{{HERE}example.com/team: a}}}}, spec: {{containers: []}}}}\n"
TEMPLATE = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n"
LONG = "# long\n" * 8000


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def to_json(value: object, indent: int | str | None = None) -> str:
    """Return JSON with the mark outside the quotes, as in a position."""
    return json.dumps(value, indent=indent, ensure_ascii=False).replace(f'"{HERE}', f'{HERE}"')


def list_of(*pods: str) -> str:
    return "apiVersion: v1\nkind: List\nitems:\n" + "".join("- " + indented(pod, 2)[2:] for pod in pods)


CLEAN = POD.replace("example.com/team", "team").replace("name: web", "name: clean")
STYLES = {
    "block": BLOCK,
    "quoted key": BLOCK.replace("«example.com/team", "«'example.com/team'"),
    "explicit key": BLOCK.replace("«example.com/team: a", "? «example.com/team\n    : a"),
    "key with a tag": BLOCK.replace("«example.com/team", "«!!str example.com/team"),
    "comments and blank lines": "# first\n\n---\n# second\n" + BLOCK.replace("metadata:", "\n# é𝒳\nmetadata:   # here"),
    "Windows line endings": BLOCK.replace("\n", "\r\n"),
    "byte order mark": f"\ufeff{BLOCK}",
    "no final newline": BLOCK.rstrip("\n"),
    "indented": indented(BLOCK, 3),
    "another document": f"{CLEAN}---\n{BLOCK}",
    "after an empty document": f"---\n---\n# nothing\n---\n{BLOCK}",
    "on the line of the document marker": f"--- {FLOW}",
    "flow": FLOW,
    "flow on several lines": FLOW.replace("labels: {", "labels: {\n  x: z,\n    "),
    "flow in block": BLOCK.replace("labels:\n    «example.com/team: a", "labels: {x: 'é𝒳', «example.com/team: a}"),
    "JSON": to_json(JSON),
    "JSON on several lines": to_json(JSON, 4),
    "JSON with tabs": to_json(JSON, "\t"),
    "JSON, one after another": to_json({**JSON, "metadata": {"name": "x"}}) + " " + to_json(JSON),
    "JSON in YAML": f"# YAML\n{to_json(JSON, 2)}\n---\n{CLEAN}",
    "JSON with escapes": to_json(JSON).replace("example.com", "example\\u002ecom").replace("é𝒳", "\\ud83d\\ude00"),
    "List": list_of(CLEAN, BLOCK),
    "List, flow": f"{{apiVersion: v1, kind: List, items: [{FLOW.replace(f'{HERE}example.com/', '').rstrip()}, {FLOW.rstrip()}]}}\n",
    "List, JSON": to_json({"apiVersion": "v1", "kind": "List", "items": [{**JSON, "metadata": {"name": "a"}}, JSON]}, 2),
    "List of one kind": list_of(CLEAN, BLOCK.removeprefix("apiVersion: v1\nkind: Pod\n")).replace("List", "PodList"),
    "List in a List": list_of(CLEAN, list_of(BLOCK)),
    "template": TEMPLATE + indented(BLOCK.partition("kind: Pod\n")[2].replace("  name: web\n", ""), 4),
    "template in a List": list_of(CLEAN, TEMPLATE + indented(BLOCK.partition("kind: Pod\n")[2].replace("  name: web\n", ""), 4)),
    "alias": BLOCK.replace("«", "").replace("  labels:\n", "  annotations: &all\n").replace("spec:", "  «labels: *all\nspec:"),
    "merge": BLOCK.replace("metadata:", "x: &all\n  example.com/team: a\nmetadata:").replace("  labels:", "  «labels:").replace(
        "    «example.com/team: a", "    <<: *all"
    ),
    "long": LONG + BLOCK,
    "long, inside": BLOCK.replace("metadata:", f"{LONG}metadata:"),
    "long JSON": to_json({"x": ["y" * 99] * 999, **JSON}, 1),
    "long List": list_of(*[CLEAN] * 300, BLOCK),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_a_finding_points_to_its_field(run: Run, write: Write, policies: Path, style: str) -> None:
    marked = STYLES[style]
    before = marked[: marked.index(HERE)].removeprefix("\ufeff")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    file = write("a.json" if "JSON" in style and "YAML" not in style else "a.yaml", marked.replace(HERE, "").encode())

    forms = ("json", "sarif", "github", "table")
    run("check", "--policies", policies, *(f"--output={form}={form}" for form in forms), file)
    report = {form: Path(form).read_text() for form in forms}

    (result,) = json.loads(report["json"])["results"]
    assert (result["line"], result["field"].endswith('labels["example.com/team"]')) == (line, True)
    (result,) = json.loads(report["sarif"])["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line, "startColumn": column}
    assert f"file={file},line={line},col={column}," in report["github"]
    assert f"{file}:{line} " in report["table"]
