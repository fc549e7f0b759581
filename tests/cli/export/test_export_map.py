"""`spotgate export map`: its output and its errors; tests/controlplane evaluates the output in an API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs.pages import assert_shown, blocks, commands
from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.floor import FLOOR_ANNOTATION
from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION, KEEP_WORDS, SPOT, SPOT_PREFERRED
from webhook.capacity.placement.workload_class import CLASS_LABEL, CLASSES
from webhook.commands.export.mutating_policy import shapes
from webhook.kube.notice import ACTIONS, FILE, ON_RECLAIM, RECLAIM_AT, VOLUME

if TYPE_CHECKING:
    from tests.cli.conftest import Run, Write


PAGE = Path(__file__).parents[3] / "docs" / "cli" / "export.md"
POOLS = "\n---\n".join(
    f"apiVersion: compute.coreweave.com/v1alpha1\nkind: NodePool\nmetadata: {{name: spot-{number}}}\n"
    "spec: {computeClass: spot, instanceType: cd-gp-a192-genoa, targetNodes: 1}"
    for number in range(60)
)


def policy(kind: str, name: str, spec: str = "{}") -> str:
    return f"apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"


def test_the_example_prints_what_the_page_shows(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, pool = blocks(PAGE, "yaml")
    _, (command, expected) = commands(PAGE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodepool.yaml").write_text(pool)
    done = run(*command.partition(" 2>")[0].split()[1:])
    assert_shown(expected, done.out)
    assert done.err.count("left to the webhook: ") == done.out.count("# Left to the webhook: ")


@pytest.mark.parametrize(
    ("policies", "problem"),
    [
        (
            policy("SpotPlacement", "b", "{overrides: [a]}"),
            "which policy decides for a Pod depends on others (`overrides` or `provider` of b)",
        ),
        (
            policy("GracefulTermination", "b", "{match: {objectSelector: {matchLabels: {app: web}}}}"),
            "`match` of b and a differs in resourceRules or selectors",
        ),
    ],
)
def test_an_unexportable_policy_is_a_plain_error(
    policies: str, problem: str, run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("policies.yaml", policy("SpotPlacement", "a") + policies)
    write("pools.yaml", POOLS)
    monkeypatch.chdir(file.parent)
    done = run("export", "map", "--policies", str(file), "--state", "pools.yaml")
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


def test_the_table_stays_below_the_kubernetes_limit(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "ANSWERS_AT_MOST", 20_000)
    done = run("export", "map", "--state", str(write("pools.yaml", POOLS)))
    assert re.search(r"# Left to the webhook: Pods of \d+ rare kinds", done.out)
    exported, _ = yaml.safe_load_all(done.out)
    sizes = {item["name"]: len(item["expression"]) for item in exported["spec"]["variables"]}
    assert 15_000 < sizes.pop("answer") < 21_000
    assert max(sizes.values()) < 20_000


def test_the_expressions_name_the_labels_and_annotations_of_the_webhook() -> None:
    folder = Path(shapes.__file__).parent
    text = "".join((folder / name).read_text() for name in ("variables.yaml", "mutation.cel", "notice.cel"))
    names = {
        CAPACITY_LABEL,
        CLASS_LABEL,
        FLOOR_ANNOTATION,
        KEEP_ANNOTATION,
        NODE_POOL_ANNOTATION,
        ON_RECLAIM,
        RECLAIM_AT,
    }
    assert set(re.findall(r"\bspotgate\.dev/[\w-]+", text)) == names
    words = {SPOT, SPOT_PREFERRED, *KEEP_WORDS, *CLASSES, *ACTIONS, VOLUME, FILE}
    quoted = set(re.findall(r"'([a-z]+(?:-[a-z]+)*)'", text))
    assert quoted >= words
