"""A bundle is refused whole, with everything that is wrong with its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.bundle import load_bundle
from webhook.policy.errors import PolicyErrors

PROVIDERS = Path(__file__).parents[1] / "policies" / "providers"
HEAD = "apiVersion: spotgate.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
FALLBACK = HEAD.format(kind="OnDemandFallback", name="fallback")
PROVIDER = HEAD.format(kind="CapacityProvider", name="own")


def mistakes(folder: Path, *documents: str) -> list[tuple[int, str]]:
    """Line and field of each."""
    (folder / "policies.yaml").write_text("\n---\n".join(documents))
    with pytest.raises(PolicyErrors) as caught:
        load_bundle([folder])
    return [(problem.line, problem.field) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("mistake", "field"),
    [
        ("spec: {requires: gpu, requireByProvider: {nowhere: gpu}}", "spec.requires"),
        ("spec: {require: all, requireByProvider: {nowhere: gpu}}", "spec.require"),
        ("spec: {match: {namespaces: {include: ['']}}, requireByProvider: {nowhere: gpu}}", "spec.match.namespaces.include[0]"),
        ("spec: {requireByProvider: {nowhere: gpu}}\nspecs: {}", "specs"),
    ],
)  # fmt: skip
def test_mistakes_that_compiling_finds_are_reported_with_those_of_the_schema(
    tmp_path: Path, mistake: str, field: str
) -> None:
    found = mistakes(tmp_path, FALLBACK + mistake)
    assert sorted(each for _, each in found) == sorted([field, "spec.requireByProvider.nowhere"])


def test_mistake_that_compiling_finds_is_reported_where_the_name_is_wrong(tmp_path: Path) -> None:
    document = FALLBACK.replace("fallback", "Fall_back") + "spec: {requireByProvider: {nowhere: gpu}}"
    assert mistakes(tmp_path, document) == [(3, "metadata.name"), (4, "spec.requireByProvider.nowhere")]


def test_fault_in_a_provider_makes_no_policy_wrong_that_names_it(tmp_path: Path) -> None:
    found = mistakes(tmp_path, PROVIDER + "spec: {title: Own}", FALLBACK + "spec: {requireByProvider: {own: gpu}}")
    assert found
    assert {line for line, _ in found} == {4}


def test_folder_without_a_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    with pytest.raises(PolicyErrors, match=r"holds no policy; name a folder with policy files"):
        load_bundle([tmp_path])


def test_a_folder_with_facts_alone_is_told_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "gke.yaml").write_text((PROVIDERS / "gke.yaml").read_text())
    with pytest.raises(PolicyErrors, match="holds only facts, and no policy; name the policies too"):
        load_bundle([tmp_path])
