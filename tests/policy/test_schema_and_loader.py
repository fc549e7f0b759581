"""What an editor underlines and what the loader refuses are the same: documents with one thing wrong, judged by both.

The loader is here what reads one document by itself. Expressions, and what names other documents, are compiled later.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import regress
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, validators
from jsonschema.exceptions import ValidationError as SchemaError

from webhook.bundle import load_bundle
from webhook.cli.policy_schema import editor_schema, is_model, spec_models
from webhook.cli.policy_tests import Runner
from webhook.documents import Document, read_documents
from webhook.globs import problem_with
from webhook.policy.common import GLOB, PolicySpec
from webhook.policy.errors import PolicyErrors
from webhook.policy.loader import validate_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.policy.errors import Problem

JSON = dict[str, Any]
FieldPath = tuple[str | int, ...]

EVERY_FIELD: Final = Path(__file__).with_name("every_field.yaml")
READ: Final[list[Any]] = [each.value for each in read_documents(EVERY_FIELD.read_bytes(), EVERY_FIELD.name)]
DOCUMENTS: Final[dict[str, JSON]] = {document["metadata"]["name"]: document for document in READ}
KINDS: Final = spec_models()
SCHEMA: Final = editor_schema()
DEFINITIONS: Final = SCHEMA["definitions"]

BEYOND_A_SCHEMA: Final = (
    "not a JMESPath expression",
    "`${` opens an expression",
    "is not a quantity",
    "is no template path",
    "is no resource; write the plural",
    "is there twice",
    "give each a name of its own",
    "s is before ",
    "leaves nothing of the budget",
    "`capacity.label` needs `requirements`",
    "Kubernetes has no kind",
    "stands for pods/exec too",
)
"""What the loader refuses and an editor does not know: languages of their own, and what depends on something else."""


def matches_in_javascript(_: object, pattern: str, text: object, __: object) -> Iterator[SchemaError]:
    """Patterns as editors read them; Python's own would let `$` be before a line break."""
    if isinstance(text, str) and regress.Regex(pattern, "u").find(text) is None:
        yield SchemaError(f"{text!r} does not match {pattern!r}")


Editor: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator, {"pattern": matches_in_javascript}
)
EDITORS: Final = {
    kind: Editor({**DEFINITIONS[kind], "definitions": DEFINITIONS}, format_checker=Draft7Validator.FORMAT_CHECKER)
    for kind in KINDS
}


def refused(document: JSON) -> list[str]:
    problems: list[Problem] = []
    validate_document(Document("f", 1, document), KINDS, problems)
    return [str(each) for each in problems]


def fields(value: Any, schema: JSON, name: str = "", path: FieldPath = ()) -> Iterator[tuple[str, FieldPath]]:
    """Each field of a document: its name in the schema, the same wherever its model is used, and where it is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = DEFINITIONS[name]
    if "anyOf" in schema and not is_model(schema):
        yield from fields(value, schema["anyOf"][0], name, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key)
            of_map = schema.get("additionalProperties", {})
            at = f"{name}.{key}" if inner is not None else f"{name}.*"
            yield at, (*path, key)
            yield from fields(
                item, inner if inner is not None else of_map if of_map is not True else {}, at, (*path, key)
            )
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield f"{name}[]", (*path, number)
            yield from fields(item, schema.get("items", {}), f"{name}[]", (*path, number))


MISSING: Final = object()
WRONG: Final[tuple[Any, ...]] = (
    MISSING, None, True, False, 0, -1, 1.5, [], {}, [""], [None], ["*", "*"], ["*", ""], ["pods/*", "pods/exec"],
    {"": ""}, {"a b": ""}, {"a": None}, {"x": "y"}, "", " ", "a b", "UPPER", "Deployment", "deployments.apps", "apps/Deployment", "apps/v1", "a/b/c",
    "*", "[", "-a", "a" * 64, "a" * 254, "é", "a\n", "a\nb", "2027-02-30", "2027-01-31T00:00:00Z", "20270131", "1", "core",
    "a:b:c", "${",
)  # fmt: skip


def broken(document: JSON, path: FieldPath) -> Iterator[tuple[Any, JSON]]:
    """The document with something else at the path."""
    *parents, last = path
    holder: Any = document
    for key in parents:
        holder = holder[key]
    sound = holder[last]
    more: tuple[Any, ...] = ()
    if isinstance(sound, dict):
        more = ({**sound, "extra": 1},)
    elif isinstance(sound, list):
        more = ([*sound, *sound[:1]],)
    elif isinstance(sound, str):
        more = (sound.swapcase(),)
    for wrong in (*WRONG, *more):
        copy = deepcopy(document)
        holder = copy
        for key in parents:
            holder = holder[key]
        if wrong is MISSING:
            del holder[last]
        else:
            holder[last] = wrong
        yield wrong, copy


def places() -> dict[str, tuple[str, FieldPath]]:
    """Where each field of each model is, once: in which document, and at which path."""
    found: dict[str, tuple[str, FieldPath]] = {}
    for name, document in DOCUMENTS.items():
        for field, path in fields(document, {"$ref": f"#/definitions/{document['kind']}"}):
            found.setdefault(field, (name, path))
    return found


PLACES: Final = places()


def test_every_field_of_every_kind_is_tried() -> None:
    shared = {field.alias for field in PolicySpec.model_fields.values()}
    known = {
        f"{name}.{field}"
        for name, definition in DEFINITIONS.items()
        for field in (definition["properties"] if is_model(definition) else ())
        if field not in shared or name == "ReservedLabelsSpec" or not name.endswith("Spec")
    }
    assert known - PLACES.keys() == set()


def is_underlined(document: JSON) -> bool:
    return not EDITORS[document["kind"]].is_valid(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_are_right_at_first(name: str) -> None:
    assert refused(DOCUMENTS[name]) == []
    assert not is_underlined(DOCUMENTS[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_editor_and_loader_refuse_the_same(tmp_path: Path, name: str) -> None:
    for path in (path for of, path in PLACES.values() if of == name and path not in {("kind",), ("apiVersion",)}):
        for wrong, document in broken(DOCUMENTS[name], path):
            problems = refused(document)
            if is_underlined(document):
                assert problems or compiled(document, tmp_path), f"only the editor refuses {wrong!r} at {path}"
            else:
                known = [each for each in problems if not any(text in each for text in BEYOND_A_SCHEMA)]
                assert known == [], f"only the loader refuses {wrong!r} at {path}"


def compiled(document: JSON, folder: Path) -> str:
    """What is wrong with the document as a policy."""
    (folder / "policy.json").write_text(json.dumps(document))
    try:
        load_bundle([folder])
    except PolicyErrors as error:
        return str(error)
    return ""


WHOLE: Final = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
PART: Final = {"metadata": {"labels": {"a": "b"}}}


@pytest.mark.parametrize(
    ("shared", "case", "sound"),
    [
        ({"object": WHOLE}, {}, True),
        ({"object": WHOLE}, {"object": PART}, True),
        ({"object": WHOLE}, {"oldObject": {}}, True),
        ({"object": PART}, {"object": WHOLE}, True),
        ({"object": {"kind": "Pod"}}, {"object": {"apiVersion": "v1", "metadata": {"name": "a"}}}, True),
        ({}, {"operation": "DELETE", "oldObject": WHOLE}, True),
        ({}, {"object": {}}, False),
        ({"object": {}}, {}, False),
        ({}, {}, False),
        ({"object": PART}, {"object": {"kind": "Pod"}}, False),
        ({}, {"object": PART, "oldObject": PART}, False),
    ],
)
def test_a_test_without_an_object_is_underlined_as_it_can_not_be_run(shared: JSON, case: JSON, *, sound: bool) -> None:
    cases = [{"name": "one", "expect": {"outcome": "allowed"}, **case}]
    document = {**DOCUMENTS["tests"], "spec": {**shared, "cases": cases}}
    test = validate_document(Document("f", 1, document), KINDS, [])
    assert test is not None
    (result,) = Runner(load_bundle(), now=datetime.now(UTC)).run(test)
    assert (result.problems == ()) is sound
    assert is_underlined(document) is not sound


texts = st.text(alphabet="ab*?[]- \n/.", max_size=8)


@given(texts)
def test_a_glob_is_refused_with_a_reason(text: str) -> None:
    assert bool(problem_with(text)) is (re.fullmatch(GLOB.pattern, text) is None)
