"""The JSON Schema of policy files agrees with the loader and explains itself, and `spotgate new` prints the example of a kind."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.docs.reference import ROOT, page_of, resolved
from tests.specs import spec_of
from webhook.commands.schema import command as schema
from webhook.commands.schema.command import spec_models
from webhook.documents import read_documents
from webhook.engine.bundle import SHIPPED, document_kinds, example_files, load_bundle
from webhook.policy.document import policy_files
from webhook.policy.errors import PolicyErrors
from webhook.policy.terms import API_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

editor_schema = cache(schema.editor_schema)

SHIPPED_FILES = [*policy_files([SHIPPED]), *sorted((SHIPPED / "tests").glob("*.yaml"))]
OTHER_FILES = [
    file
    for file in sorted((SHIPPED.parent / "examples").rglob("*.yaml"))
    if f"apiVersion: {API_VERSION}\n" in file.read_text()
]


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    return Draft7Validator(editor_schema(), format_checker=Draft7Validator.FORMAT_CHECKER)


def documents(file: Path) -> list[Any]:
    return [item.value for item in read_documents(file.read_bytes(), str(file))]


def shipped(kind: str) -> Any:
    return next(item for file in policy_files([SHIPPED]) for item in documents(file) if item["kind"] == kind)


def test_schema_is_printed_and_valid(run: Run) -> None:
    done = run("schema")
    assert (done.code, done.err) == (0, "")
    assert done.json == editor_schema()
    assert done.json["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(done.json)


@pytest.mark.parametrize("file", [*SHIPPED_FILES, *OTHER_FILES], ids=lambda file: str(file.relative_to(SHIPPED.parent)))
def test_shipped_policies_validate(validator: Draft7Validator, file: Path) -> None:
    assert [problem for item in documents(file) for problem in problems(validator, item)] == []


def problems(validator: Draft7Validator, document: Any) -> list[str]:
    """Return what is wrong with the document, by the definition of its kind: `oneOf` only says that none fits."""
    own = validator.evolve(
        schema={**editor_schema(), "oneOf": [{}], "allOf": [{"$ref": f"#/definitions/{document['kind']}"}]}
    )
    return [f"{error.json_path}: {error.message}" for error in own.iter_errors(document)]


def test_a_wrong_field_is_named(validator: Draft7Validator) -> None:
    document = {
        "apiVersion": API_VERSION,
        "kind": "PolicyTest",
        "metadata": {"name": "a"},
        "spec": {"cases": [], "usr": ""},
    }
    assert problems(validator, document) == [
        "$.spec: Additional properties are not allowed ('usr' was unexpected)",
        "$.spec.cases: [] should be non-empty",
    ]


def test_every_kind_has_its_own_branch() -> None:
    definitions = editor_schema()["definitions"]
    branches = [definitions[branch["$ref"].rpartition("/")[2]] for branch in editor_schema()["oneOf"]]
    assert {branch["properties"]["kind"]["const"] for branch in branches} == {*document_kinds(), "PolicyTest"}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("ReservedLabels", ("spec", "domian"), ["a.com"]),
        ("ReservedLabels", ("metadata", "name"), "Upper Case"),
        ("ReservedLabels", ("kind",), "ReservedLabel"),
        ("ReservedLabels", ("spec", "exempt"), [{"users": ["a"]}]),
        ("CapacityProvider", ("spec", "interruption", "drainSeconds"), "120"),
        ("ReservedLabels", ("spec", "match"), {"resourceRules": [{"apiGroups": [""], "resources": ["pods"]}]}),
        ("GracefulTermination", ("spec", "classes"), {"web": {"graceSeconds": 60}}),
        ("OnDemandFallback", ("spec", "breakGlass"), None),
        ("SpotSuitability", ("spec", "minimumReplicas"), None),
    ],
)
def test_the_schema_and_the_loader_find_the_same_mistakes(
    validator: Draft7Validator, tmp_path: Path, kind: str, field: tuple[str | int, ...], value: Any
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


@pytest.mark.parametrize("word", ["off", "'off'", "no", "false"])
def test_yaml_1_1_and_1_2_both_disable_a_policy(validator: Draft7Validator, tmp_path: Path, word: str) -> None:
    document = shipped("ReservedLabels")
    document["spec"]["enforcement"] = "off"  # in YAML 1.2, which editors use
    assert validator.is_valid(document)
    document["spec"]["enforcement"] = False
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(document).replace("enforcement: false", f"enforcement: {word}"))
    assert f": {word}\n" in file.read_text()
    assert next(item for item in load_bundle([file]).documents if item.is_policy).spec.enforcement == "off"


def test_every_field_is_explained() -> None:
    definitions = editor_schema()["definitions"]
    unexplained = [
        f"{name}.{field}"
        for name, definition in definitions.items()
        for field, schema in definition.get("properties", {}).items()
        if not resolved(schema, definitions).get("description", "").strip()
    ]
    assert unexplained == []


def test_every_kind_is_explained() -> None:
    kind = editor_schema()["properties"]["kind"]
    assert dict(zip(kind["enum"], kind["enumDescriptions"], strict=True)) == {
        name: inspect.cleandoc(model.__doc__ or "") for name, model in spec_models().items()
    }


def test_no_title_only_repeats_a_name() -> None:
    titles = [
        schema["title"]
        for definition in editor_schema()["definitions"].values()
        for schema in definition.get("properties", {}).values()
        if isinstance(schema.get("title"), str)
    ]
    assert titles == []


@pytest.mark.parametrize(
    ("kind", "field", "words"),
    [
        ("ReservedLabels", "enforcement", ["deny", "warn", "audit", "off"]),
        ("SpotPlacement", "controllerCreated", ["warn", "deny"]),
        ("GracefulTermination", "overBudget", ["warn", "clamp", "deny"]),
        ("OnDemandFallback", "require", ["any", "standard", "gpu", "same-type"]),
        ("EvictionStrategy", "sunkNodes", ["named", "all"]),
    ],
)
def test_enum_values_are_described(kind: str, field: str, words: list[str]) -> None:
    definitions = editor_schema()["definitions"]
    spec = resolved(definitions[kind]["properties"]["spec"], definitions)
    choice = resolved(spec["properties"][field], definitions)
    assert choice["enum"] == words
    assert len(choice["enumDescriptions"]) == len(words)
    assert all(choice["enumDescriptions"])


def test_every_default_keeps_its_meaning_as_yaml() -> None:
    """Editors insert a default as text; an unquoted glob such as `- *cache*` would be an alias."""
    defaults = [
        field["default"]
        for definition in editor_schema()["definitions"].values()
        for field in definition.get("properties", {}).values()
        if "default" in field
    ]
    assert defaults
    assert [default for default in defaults if isinstance(default, list | dict)] == []


COMMITTED = SHIPPED / "schema.json"


def test_the_committed_schema_is_current(run: Run) -> None:
    assert run("schema").out == COMMITTED.read_text(), "run `make golden`"


@pytest.mark.parametrize("file", SHIPPED_FILES, ids=lambda file: str(file.relative_to(SHIPPED)))
def test_every_shipped_file_names_its_schema(file: Path) -> None:
    line = file.read_text().partition("\n")[0]
    assert line.startswith("# yaml-language-server: $schema=")
    assert (file.parent / line.partition("=")[2]).resolve() == COMMITTED.resolve()


def test_a_schema_in_a_policy_folder_is_not_a_policy(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_bytes(COMMITTED.read_bytes())
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(shipped("ReservedLabels")))
    assert policy_files([tmp_path]) == [tmp_path / "policy.yaml"]
    assert load_bundle([tmp_path]).hash


# spotgate new

KINDS = sorted(spec_models())


@pytest.mark.parametrize("kind", KINDS)
def test_new_prints_the_example_from_the_page_of_the_kind(run: Run, kind: str) -> None:
    file = example_files()[kind].relative_to(ROOT)
    assert file.exists(), f"write {file}, the example of {kind}"
    done = run("new", kind)
    assert (done.code, done.out, done.err) == (0, file.read_text(), "")
    assert f"<!-- text of {file} -->" in page_of(kind).read_text(), "the example's place on the page"


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"PolicyTest"}))
def test_each_example_loads_next_to_the_shipped_policies(kind: str) -> None:
    assert load_bundle([SHIPPED, example_files()[kind]]).own


@pytest.mark.parametrize("kind", ["GracefulTermination", "SpotPlacement"])
def test_examples_use_the_values_of_the_shipped_policies(run: Run, kind: str) -> None:
    """`overrides` inherits nothing, so the example must repeat the values of the shipped policy."""
    example = yaml.safe_load(run("new", kind).out)
    (shipped,) = (item for item in load_bundle().documents if item.kind == kind)
    assert example["spec"].pop("overrides") == [shipped.name]
    assert example["spec"].pop("match")
    assert spec_of(document_kinds()[kind], example["spec"]) == shipped.spec
