"""The JSON Schema of policy files agrees with the loader, and explains itself in an editor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from webhook.bundle import SHIPPED, document_kinds, load_bundle
from webhook.cli.schema import policy_schema
from webhook.policy.errors import PolicyErrors
from webhook.policy.loader import policy_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(policy_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def shipped(kind: str) -> Any:
    return next(each for file in policy_files([SHIPPED]) for each in documents(file) if each["kind"] == kind)


def test_schema_is_printed_and_valid(run: Run) -> None:
    done = run("schema")
    assert (done.code, done.err) == (0, "")
    assert done.json == policy_schema()
    assert done.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(done.json)


@pytest.mark.parametrize(
    "file", [*policy_files([SHIPPED]), *sorted((SHIPPED / "tests").glob("*.yaml"))], ids=lambda file: file.name
)
def test_shipped_policies_validate(validator: Draft202012Validator, file: Path) -> None:
    assert [error.message for each in documents(file) for error in validator.iter_errors(each)] == []


def test_every_kind_has_a_branch_of_its_own() -> None:
    definitions = policy_schema()["$defs"]
    branches = [definitions[each["$ref"].rpartition("/")[2]] for each in policy_schema()["oneOf"]]
    assert {branch["properties"]["kind"]["const"] for branch in branches} == {*document_kinds(), "PolicyTest"}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("ReservedLabels", ("spec", "domian"), ["a.com"]),
        ("ReservedLabels", ("spec", "enforcement"), "denied"),
        ("ReservedLabels", ("spec", "domains"), "a.com"),
        ("ReservedLabels", ("metadata", "name"), "Upper Case"),
        ("ReservedLabels", ("kind",), "ReservedLabel"),
        ("ReservedLabels", ("apiVersion",), "spotgate.dev/v2"),
        ("ReservedLabels", ("more",), {}),
        ("ReservedLabels", ("spec", "exempt"), [{"users": ["a"]}]),
        ("ReservedLabels", ("spec", "exempt"), [{"users": ["a"], "reason": "x", "expires": "soon"}]),
        ("CapacityProvider", ("spec", "interruption", "drainSeconds"), "120"),
        ("CapacityProvider", ("spec", "gracePeriod", "budgetSeconds"), -1),
        ("CapacityProvider", ("spec", "capacity"), None),
    ],
)
def test_mistake_is_found_by_the_schema_as_by_the_loader(
    validator: Draft202012Validator, tmp_path: Path, kind: str, field: tuple[str, ...], value: Any
) -> None:
    document = shipped(kind)
    assert validator.is_valid(document)
    place = document
    for key in field[:-1]:
        place = place[key]
    place[field[-1]] = value
    assert not validator.is_valid(document)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(PolicyErrors):
        load_bundle([tmp_path])


def test_fields_are_explained() -> None:
    definitions = policy_schema()["$defs"]
    spec = definitions["ReservedLabelsSpec"]["properties"]
    assert [name for name, field in spec.items() if not field.get("description")] == []
    unexplained = [name for name in document_kinds() if not definitions[name]["properties"]["kind"].get("description")]
    assert unexplained == []
