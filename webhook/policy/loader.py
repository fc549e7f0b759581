"""Policy files into validated documents: every mistake in every file, with file, line, field and a suggestion."""

from __future__ import annotations

import difflib
import types
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError

from webhook.documents import Document, DocumentError, field_path, read_documents
from webhook.policy.common import API_VERSION, Metadata
from webhook.policy.errors import PolicyErrors, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from webhook.documents import Path as FieldPath
    from webhook.policy.common import SpecError

M = TypeVar("M", bound=BaseModel)

SUFFIXES: Final = (".yaml", ".yml", ".json")
_KUSTOMIZATIONS: Final = frozenset({"kustomization.yaml", "kustomization.yml"})
"""They lie beside policies to put them into a ConfigMap."""

_TESTS: Final = frozenset({"PolicyTest"})
"""Kinds that may lie beside policies and are none."""


class PolicyDocument(msgspec.Struct, frozen=True):
    """A validated document, and where it stands for later errors.

    Where it has mistakes, all of them are problems of the set, which can't be used; it is there to find more.

    Attributes:
        kind: as it is written.
        name: empty where it is no name.
        spec: the model of the kind, without faulty fields; None where it can't be without them.
        document: as it was read.
    """

    kind: str
    name: str
    spec: Any
    document: Document

    def problem(self, path: tuple[str | int, ...], text: str) -> Problem:
        """A mistake at this field of the document."""
        line, column = self.document.position(path)
        return Problem(self.document.file, line, column, field_path(path), text)

    def spec_problem(self, error: SpecError) -> Problem:
        """A mistake that compiling the spec brought up."""
        return self.problem(("spec", *error.path), error.problem)


def policy_files(paths: Iterable[Path]) -> list[Path]:
    """Every policy file below the paths, in a stable order, without hidden files, ``tests`` folders and kustomizations.

    A ConfigMap volume's ``..data`` folders are hidden too; its visible links are followed.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files |= dict.fromkeys(file for file in sorted(path.rglob("*")) if _is_policy_file(file, path))
        else:
            files[path] = None
    return list(files)


def _is_policy_file(file: Path, folder: Path) -> bool:
    if file.suffix not in SUFFIXES or file.name in _KUSTOMIZATIONS or not file.is_file():
        return False
    return not any(part.startswith(".") or part == "tests" for part in file.relative_to(folder).parts)


def load_documents(
    files: Sequence[Path], kinds: Mapping[str, type[BaseModel]], problems: list[Problem]
) -> list[PolicyDocument]:
    """Read and validate the files; what is wrong goes to ``problems``.

    Args:
        files: as `policy_files` gives them.
        kinds: the model of ``spec`` for each kind there is.
        problems: where mistakes are added.
    """
    loaded: list[PolicyDocument] = []
    for file in files:
        try:
            documents = read_documents(file.read_bytes(), str(file))
        except OSError as error:
            problems.append(Problem(str(file), 0, 0, "", f"can't be read: {error.strerror or error}"))
            continue
        except DocumentError as error:
            problems.append(Problem(error.file, error.line, error.column, "", f"{error.problem}; {error.fix}"))
            continue
        validated = (validate_document(document, kinds, problems) for document in documents)
        loaded.extend(policy for policy in validated if policy is not None)
    problems.extend(_duplicates(loaded))
    return loaded


def validate_document(
    document: Document, kinds: Mapping[str, type[BaseModel]], problems: list[Problem]
) -> PolicyDocument | None:
    """The document as far as it can be used; None where it is no document of these kinds."""
    value = document.value

    def problem(path: tuple[str | int, ...], text: str) -> None:
        line, column = document.position(path)
        problems.append(Problem(document.file, line, column, field_path(path), text))

    if not isinstance(value, dict):
        problem((), "a policy document is a mapping with apiVersion, kind, metadata and spec")
        return None
    kind = value.get("kind")
    if value.get("apiVersion") != API_VERSION:
        problem(("apiVersion",), f"expected {API_VERSION}, got {value.get('apiVersion')!r}{_tests_hint(value)}")
        return None
    if kind in _TESTS and kind not in kinds:
        return None
    for key in value.keys() - {"apiVersion", "kind", "metadata", "spec"}:
        problem((key,), f"unknown field `{key}`{did_you_mean(key, ('metadata', 'spec'))}")
    metadata = _model(Metadata, value.get("metadata", {}), ("metadata",), problem)
    spec: BaseModel | None = None
    if isinstance(kind, str) and kind in kinds:
        spec = _model(kinds[kind], {} if value.get("spec") is None else value["spec"], ("spec",), problem)
    else:
        known = ", ".join(sorted(kinds))
        problem(("kind",), f"unknown kind {kind!r}{did_you_mean(str(kind), kinds)}; there are: {known}")
    return PolicyDocument(str(kind), metadata.name if metadata is not None else "", spec, document)


def _tests_hint(value: Mapping[str, Any]) -> str:
    return "; only policy files belong in a policy folder" if "apiVersion" in value else ""


def _model(
    model: type[M], value: object, prefix: tuple[str, ...], problem: Callable[[FieldPath, str], None]
) -> M | None:
    """The model of what is written, without its faulty fields; None where it can't be without them."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    for item in mistakes:
        if item["type"] == "too_short" and item["input"]:
            continue  # It has items, and what is wrong with each is said.
        path = (*prefix, *(part for part in item["loc"] if part != "[key]"))
        problem(path, _text(item, model))
    if not isinstance(value, dict):
        return None
    faulty = {item["loc"][0] for item in mistakes if item["loc"]}
    try:
        return model.model_validate({key: part for key, part in value.items() if key not in faulty})
    except ValidationError:
        return None


def _text(item: ErrorDetails, model: type[BaseModel]) -> str:
    match item["type"]:
        case "extra_forbidden":
            name = str(item["loc"][-1])
            return f"unknown field `{name}`{did_you_mean(name, _fields_at(model, item['loc'][:-1]))}"
        case "missing":
            return "is missing"
        case "literal_error" | "enum":
            expected = item["ctx"]["expected"].replace("'", "")
            return f"{item['input']!r} is not one of {expected}{did_you_mean(str(item['input']), _words(expected))}"
        case "value_error":
            return str(item["ctx"]["error"])
        case _:
            return f"{item['msg'][:1].lower()}{item['msg'][1:]}, got {item['input']!r}"[:300]


def _words(expected: str) -> list[str]:
    return expected.replace(" or ", ", ").split(", ")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``, did you mean `x`?`` where something known is close to the word; else nothing."""
    by_case = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold(), by_case, n=1, cutoff=0.6)
    return f", did you mean `{by_case[close[0]]}`?" if close else ""


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The fields that the model at this path has."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            return []
        if isinstance(part, int):
            continue
        field = next((f for name, f in current.model_fields.items() if part in {name, f.alias}), None)
        current = next(_models_in(field.annotation), None) if field is not None else current
    return [field.alias or name for name, field in current.model_fields.items()] if current is not None else []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - a type expression
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in {tuple, list, dict, Union, types.UnionType} or get_args(annotation):
        for argument in get_args(annotation):
            yield from _models_in(argument)


def _duplicates(loaded: Sequence[PolicyDocument]) -> Iterator[Problem]:
    first: dict[str, PolicyDocument] = {}
    for policy in loaded:
        if not policy.name:
            continue
        other = first.setdefault(policy.name, policy)
        if other is not policy:
            line, _ = other.document.position(("metadata", "name"))
            yield policy.problem(
                ("metadata", "name"),
                f"{policy.name!r} is also the name of {other.kind} at {other.document.file}:{line}",
            )


__all__ = ["PolicyDocument", "PolicyErrors", "did_you_mean", "load_documents", "policy_files", "validate_document"]
