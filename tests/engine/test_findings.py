"""Every finding has a text with a failing and a fixed example, and both give the expected result."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
import pytest
import yaml

import webhook
from tests.builders import decided
from tests.golden import messages
from tests.golden.cases import load_cases, view_of
from webhook.base.field_paths import parse_field_path
from webhook.engine.bundle import policy_kinds
from webhook.engine.findings import finding_texts, page_at, page_of
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.golden.cases import Case
    from webhook.model.decision import Finding

PACKAGE = Path(webhook.__file__).parent
TEXTS = finding_texts()
ID = re.compile(r"([a-z-]+/)?[a-z-]+")
WITHOUT_EXAMPLE = {
    "object/template-unreadable",  # `check` reports this and the next as indeterminate
    "object/unreadable",
    "object/too-large",  # an example would also be too large
    "object/internal-error",  # an example would be a bug
    "spot-placement/too-many-terms",
}

INFORMATION = {"spot-placement/floor-split"}
"""Findings about correct objects."""


def ids_in_code() -> Iterator[str]:
    """Yield the finding ids in the code."""
    slugs = {kind.slug.replace("-", "_"): kind.slug for kind in policy_kinds().values()}
    for file in PACKAGE.rglob("*.py"):
        slug = slugs.get(file.parent.name, "")
        for call in ast.walk(ast.parse(file.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name | ast.Attribute):
                continue
            name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
            written = [keyword.value for keyword in call.keywords if keyword.arg == "id"]
            written += call.args[:1] if name in {"finding", "_violation", "cls"} else []
            for word in (node.value for value in written for node in ast.walk(value) if isinstance(node, ast.Constant)):
                if isinstance(word, str) and (match := ID.fullmatch(word)) and (match[1] or slug):
                    yield word if match[1] else f"{slug}/{word}"


def test_findings_and_texts_have_the_same_ids() -> None:
    assert set(ids_in_code()) == set(TEXTS)


@pytest.mark.parametrize("finding_id", sorted(TEXTS.keys() - WITHOUT_EXAMPLE))
def test_the_failing_example_has_the_golden_finding_and_the_fixed_one_has_none(finding_id: str) -> None:
    text = TEXTS[finding_id]
    kind = finding_id.partition("/")[0]

    findings = messages.findings_of(text, text.failing, text.flags)
    ids = {finding.id for finding in findings if finding.id.startswith(f"{kind}/")}
    assert ids - (INFORMATION - {finding_id}) == {finding_id}
    assert messages.message(finding_id, findings) == messages.stored()[finding_id], "run `make golden`"
    expect_resolving(findings, text.failing)

    fixed = messages.findings_of(text, text.fixed, text.flags if text.fixed_flags is None else text.fixed_flags)
    assert not {finding.id for finding in fixed if finding.id.startswith(f"{kind}/")} - (INFORMATION - {finding_id})


def test_every_example_has_a_golden_message() -> None:
    assert messages.stored().keys() == TEXTS.keys() - WITHOUT_EXAMPLE


@pytest.mark.parametrize(
    ("urls", "page"),
    [
        (None, ""),
        (["Homepage, https://x.example.com"], ""),
        (
            ["Repository, https://git.example.com/us/spotgate/"],
            "https://git.example.com/us/spotgate/blob/main/docs/findings.md#reserved-labelsreserved",
        ),
    ],
)
def test_a_finding_links_to_the_packages_repository_if_it_has_one(
    urls: list[str] | None, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: SimpleNamespace(get_all=lambda _: urls))
    page_at.cache_clear()
    assert page_of("reserved-labels/reserved") == page
    page_at.cache_clear()


# Fields of findings

IN_NAMESPACE: Final = (
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {spotgate.dev/capacity: spot}}\n"
)
BY_LABEL: Final = [name for name, text in TEXTS.items() if "spotgate.dev/capacity: spot}" in text.failing]


def unlabelled(value: Any) -> Any:
    """Return the object without spot labels, and without maps that have no other keys."""
    if isinstance(value, list):
        return [unlabelled(item) for item in value]
    if not isinstance(value, dict):
        return value
    left = {key: unlabelled(item) for key, item in value.items() if (key, item) != ("spotgate.dev/capacity", "spot")}
    return {key: item for key, item in left.items() if item or item == value[key]}


def resolves(field: str, value: Any) -> bool:
    """Return whether the field, or its parent, is in the object."""
    *parents, last = parse_field_path(field) or ("",)
    for step in parents:
        inside = isinstance(value, dict) and step in value
        if not inside and not (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            return False
        value = value[step]
    return isinstance(value, dict) or (isinstance(value, list) and isinstance(last, int))


@pytest.mark.parametrize("finding_id", sorted(BY_LABEL))
def test_an_examples_field_is_in_its_object_if_its_namespace_has_the_label(finding_id: str) -> None:
    text = TEXTS[finding_id]
    unlabelled_text = yaml.safe_dump_all(unlabelled(list(yaml.safe_load_all(text.failing))))
    in_namespace = msgspec.structs.replace(text, state="---\n".join(filter(None, (text.state, IN_NAMESPACE))))
    expect_resolving(messages.findings_of(in_namespace, unlabelled_text, text.flags), unlabelled_text)


def expect_resolving(findings: Iterable[Finding], manifests: str) -> None:
    """Assert that the field of each finding is in one of the objects."""
    objects = list(filter(None, yaml.safe_load_all(manifests)))
    for finding in findings:
        assert not finding.field or any(resolves(finding.field, value) for value in objects), finding.message()


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_a_golden_answers_field_is_in_the_reviews_object(case: Case) -> None:
    for phase in Phase:
        review = case.review(phase)
        asked = orjson.loads(review)["request"]
        value = asked["object"] or asked["oldObject"]
        for finding in decided(review, phase, view_of(case.state)).findings:
            assert not finding.field or resolves(finding.field, value), finding.message()
