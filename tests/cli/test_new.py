"""`spotgate new`: the draft of every kind loads as it is, and shows every field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator

from webhook.bundle import SHIPPED, load_bundle
from webhook.cli.policy_schema import editor_schema, resolved, spec_models
from webhook.policy.policy_test import KIND as POLICY_TEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

KINDS = sorted(spec_models())


@pytest.mark.parametrize("kind", KINDS)
def test_the_draft_of_every_kind_loads_as_it_is(run: Run, tmp_path: Path, kind: str) -> None:
    draft = tmp_path / "draft.yaml"
    done = run("new", kind, "--name", "first-draft", "-o", draft)
    assert (done.code, done.out, done.err) == (0, "", "")
    document = yaml.safe_load(draft.read_text())
    assert (document["kind"], document["metadata"]) == (kind, {"name": "first-draft"})
    assert list(Draft7Validator(editor_schema()).iter_errors(document)) == []
    bundle = load_bundle([SHIPPED, draft])
    assert [each.name for each in bundle.documents if each.document.file == str(draft)] == (
        ["first-draft"] if kind != POLICY_TEST else []
    )


def fields_of(kind: str) -> dict[str, Any]:
    definitions = editor_schema()["definitions"]
    spec = resolved(definitions[kind]["properties"]["spec"], definitions)
    return {name: resolved(field, definitions) for name, field in spec["properties"].items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_draft_explains_every_field_of_its_kind(run: Run, kind: str) -> None:
    draft = run("new", kind).out
    fields = fields_of(kind)
    at_top = set(re.findall(r"^  (?:# )?(\w+):", draft, re.MULTILINE))
    assert fields.keys() - at_top == set()
    said = " ".join(re.sub(r"^[ #]+", "", line) for line in draft.splitlines())
    assert [name for name, field in fields.items() if field["description"] not in said] == []


def uncommented(draft: str, fields: Iterable[str]) -> Iterator[str]:
    """The draft with all fields of its spec in force; what they may hold in turn stays commented out."""
    setting = re.compile(rf"  # ({'|'.join(fields)}):")
    for paragraph in draft.split("\n\n"):
        begun = False
        for line in paragraph.splitlines():
            begun = begun or bool(setting.match(line))
            yield line.replace("  # ", "  ", 1) if begun and line.startswith("  # ") else line


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_commented_out_is_yaml_of_known_fields(run: Run, kind: str) -> None:
    fields = fields_of(kind)
    document = yaml.safe_load("\n".join(uncommented(run("new", kind).out, fields)))
    assert document["spec"].keys() == fields.keys()
    schema = editor_schema()
    validator = Draft7Validator({**schema["definitions"][kind], "definitions": schema["definitions"]})
    assert [
        error.message for error in validator.iter_errors(document) if error.validator == "additionalProperties"
    ] == []


def test_required_fields_are_marked_and_the_others_commented_out(run: Run) -> None:
    draft = run("new", "ReservedLabels").out
    assert "\n  domains: [example.com]  # EDIT\n" in draft
    assert "\n  # enforcement: deny\n" in draft
    assert "\n  #   warn: the request goes through, and the user is told\n" in draft
    assert "name: reserved-labels\n" in draft


def test_the_draft_of_a_test_passes(run: Run, tmp_path: Path) -> None:
    draft = tmp_path / "test.yaml"
    run("new", "PolicyTest", "-o", draft)
    done = run("test", draft, "--policies", SHIPPED)
    assert (done.code, done.err) == (0, "")
    assert "1 passed" in done.out


def test_a_dash_is_standard_output(run: Run) -> None:
    assert run("new", "ReservedLabels", "-o", "-") == run("new", "ReservedLabels")


def test_a_file_that_is_there_is_left_alone(run: Run, tmp_path: Path) -> None:
    draft = tmp_path / "policy.yaml"
    draft.write_text("mine")
    done = run("new", "ReservedLabels", "-o", draft)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"{draft}: is there already, and is left as it is; name another file\n"
    assert draft.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ReservedLabel"], "unknown kind 'ReservedLabel', did you mean `ReservedLabels`?"),
        (["Deployment"], "unknown kind 'Deployment'; there are: CapacityProvider, "),
        (["ReservedLabels", "--name", "Team Labels"], "--name 'Team Labels' is no name"),
        (["ReservedLabels", "-o", "/nowhere/policy.yaml"], "/nowhere/policy.yaml: can't be written: No such file"),
        ([], "the following arguments are required: KIND"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_written(run: Run, arguments: list[Any], said: str) -> None:
    done = run("new", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
