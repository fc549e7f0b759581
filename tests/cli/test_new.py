"""`spotgate new`: the draft of every kind loads as it is, and shows every field."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator

from webhook.bundle import SHIPPED, load_bundle, policy_kinds
from webhook.cli.policy_schema import editor_schema, resolved, spec_models
from webhook.cli.policy_tests import read_tests
from webhook.lint import warnings
from webhook.policy.errors import PolicyErrors
from webhook.policy.policy_test import KIND as POLICY_TEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

KINDS = sorted(spec_models())


ALONE = frozenset(policy_kinds())
"""Kinds of which one document is a bundle; the others are about policies."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_draft_of_every_kind_loads_as_it_is(run: Run, tmp_path: Path, kind: str) -> None:
    draft = tmp_path / "draft.yaml"
    done = run("new", kind, "-o", draft)
    assert (done.code, done.out, done.err) == (0, "", "")
    document = yaml.safe_load(draft.read_text())
    assert document["kind"] == kind
    assert list(Draft7Validator(editor_schema()).iter_errors(document)) == []
    for paths in [[SHIPPED, draft], *([[draft]] if kind in ALONE else [])]:
        bundle = load_bundle(paths)
        assert list(warnings(bundle, date(2026, 1, 1))) == []
        assert [each.name for each in bundle.documents if each.document.file == str(draft)] == (
            [document["metadata"]["name"]] if kind != POLICY_TEST else []
        )


@pytest.mark.parametrize("name", ["y", "no", "10", "1e3", "0x1f"])
def test_a_name_that_is_no_text_without_quotes_has_them(run: Run, tmp_path: Path, name: str) -> None:
    run("new", "SpotPlacement", "--name", name, "-o", tmp_path / "draft.yaml")
    assert [each.name for each in load_bundle([tmp_path]).policies] == [name]


def test_an_exemption_beside_other_policies_is_told_which_there_are(run: Run, tmp_path: Path) -> None:
    run("new", "Exemption", "-o", tmp_path / "exemption.yaml")
    run("new", "SpotPlacement", "-o", tmp_path / "placement.yaml")
    with pytest.raises(PolicyErrors, match=r"no policy is named reserved-labels; there are: my-spot-placement$"):
        load_bundle([tmp_path])


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


INSTEAD = {
    "label": "of a reader's `capacity`: instead of `from`",
    "from": "of a reader's `gracePeriod`: instead of `budgetSeconds`",
    "minimum": "of an integer, and the draft's `type` is string",
}
"""Fields that stay commented out where all others are in force, each for a reason."""


def uncommented(draft: str) -> str:
    """The draft with everything in force that is commented out, and what is in there in turn."""
    names = set(property_names(editor_schema())) - INSTEAD.keys()
    lines = draft.splitlines()
    number = 0
    while number < len(lines):
        found = re.match(r"( *)# (\w+):( |$)", lines[number])
        if found is None or found[2] not in names:
            number += 1
            continue
        begins = len(found[1])
        end = number + 1
        while end < len(lines) and re.match(rf"{found[1]}# ( |- )", lines[end]):
            end += 1
        # Its first line is one with a field now, and is passed by; what is in it is looked at again.
        lines[number:end] = [line[:begins] + line[begins + 2 :] for line in lines[number:end]]
    return "\n".join(lines) + "\n"


def property_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from property_names(each)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_commented_out_loads_when_it_is_not(run: Run, tmp_path: Path, kind: str) -> None:
    text = uncommented(run("new", kind).out)
    draft = tmp_path / "draft.yaml"
    draft.write_text(text)
    assert yaml.safe_load(text)["spec"].keys() == fields_of(kind).keys()
    left = set(re.findall(r"^ *# (\w+):(?: |$)", text, re.MULTILINE))
    assert left & set(property_names(editor_schema())) <= INSTEAD.keys()
    load_bundle([SHIPPED, draft])
    assert read_tests([draft]).problems == []


def test_required_fields_are_marked_and_the_others_commented_out(run: Run) -> None:
    draft = run("new", "ReservedLabels").out
    assert "\n  domains: [example.com]  # EDIT\n" in draft
    assert "\n  # enforcement: deny\n" in draft
    assert "\n  #   warn: the request goes through, and the user is told\n" in draft
    assert "name: my-reserved-labels\n" in draft


def test_a_default_with_fields_that_must_be_there_is_shown(run: Run) -> None:
    draft = run("new", "EvictionStrategy").out
    assert "\n  # interruptible: {key: qos.coreweave.cloud/interruptable, value: 'true'}\n" in draft
    assert "\n  # graceful: {key: qos.coreweave.com/graceful-interruptible, value: 'true'}\n" in draft
    assert "changeme" not in draft


def test_the_draft_of_a_test_passes(run: Run, tmp_path: Path) -> None:
    draft = tmp_path / "test.yaml"
    run("new", "PolicyTest", "-o", draft)
    done = run("test", draft, "--policies", SHIPPED)
    assert (done.code, done.err) == (0, "")
    assert "1 passed" in done.out


def test_the_draft_of_a_test_passes_for_the_policy_that_it_names_too(run: Run, tmp_path: Path) -> None:
    draft = tmp_path / "test.yaml"
    text = run("new", "PolicyTest").out
    assert "\n  # policies: " in text
    draft.write_text(text.replace("\n  # policies: ", "\n  policies: "))
    done = run("test", draft, "--policies", SHIPPED)
    assert (done.code, done.err) == (0, "")


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
