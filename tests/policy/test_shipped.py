"""Shipped documents are built without pydantic's checks, and their expressions are compiled on first use."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from webhook.base.exits import CannotJudgeError
from webhook.capacity.providers.query import Query
from webhook.engine.bundle import SHIPPED, document_kinds
from webhook.kube.templates import TemplatePath
from webhook.policy.checking import validate_model
from webhook.policy.document import policy_files
from webhook.policy.loader import load_documents
from webhook.rules.node_pool_rules.message import MessageTemplate

if TYPE_CHECKING:
    from webhook.policy.errors import Problem


def plain(value: Any) -> Any:
    """Return the fields of a spec, which can be compared."""
    if isinstance(value, msgspec.Struct):
        return type(value), {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.text if isinstance(value, Query | MessageTemplate | TemplatePath) else value


@pytest.mark.parametrize("file", policy_files((SHIPPED,)), ids=lambda file: file.stem)
def test_a_shipped_document_is_valid_and_built_as_if_it_were_validated(file: Any) -> None:
    problems: list[Problem] = []
    validated = load_documents([file], document_kinds(), problems)
    built = load_documents([file], document_kinds(), problems, trusted=True)
    assert problems == []
    assert [document.name for document in built] == [document.name for document in validated]
    assert [plain(document.spec) for document in built] == [plain(document.spec) for document in validated]


def test_a_broken_expression_in_an_edited_shipped_file_is_a_plain_error() -> None:
    with pytest.raises(CannotJudgeError, match=r"^not a JMESPath expression: .*--policies$"):
        Query("spec.[").paths  # noqa: B018


WITH_DEFAULTS = {
    kind: file
    for kind, model in document_kinds().items()
    if (file := Path(inspect.getfile(model)).with_name("defaults.yaml")).exists()
}


@pytest.mark.parametrize("kind", WITH_DEFAULTS)
def test_the_defaults_of_a_kind_are_what_a_user_could_write(kind: str) -> None:
    written: list[Any] = [{}, msgspec.yaml.decode(WITH_DEFAULTS[kind].read_bytes())]
    problems: list[tuple[Any, str]] = []
    model = document_kinds()[kind]
    specs = [validate_model(model, spec, ("spec",), lambda *problem: problems.append(problem)) for spec in written]
    assert problems == []
    assert plain(specs[0]) == plain(specs[1])


@pytest.mark.parametrize(
    ("written", "edited", "text"),
    [
        ("spec:", "sepc:", "unknown field `sepc`, did you mean `spec`?"),
        ("spotgate.dev/v1", "spotgate.dev/v2", "expected spotgate.dev/v1, got 'spotgate.dev/v2'"),
    ],
)
def test_an_edited_shipped_document_that_says_nothing_is_rejected(
    written: str, edited: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "mode.yaml"
    shipped = "apiVersion: spotgate.dev/v1\nkind: Mode\nmetadata: {name: mode}\nspec: {enforcement: audit}\n"
    file.write_text(shipped.replace(written, edited))
    problems: list[Problem] = []
    assert load_documents([file], document_kinds(), problems, trusted=True) == []
    assert [problem.text for problem in problems] == [text]
