"""The field of every finding is in the object that is judged, or what it belongs in is: for a field that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
import pytest
import yaml

from tests.golden import messages
from tests.golden.cases import NOW, load_cases, view_of
from tests.objects import BUNDLE
from tests.test_findings import WITHOUT_EXAMPLE
from webhook.documents import parse_field_path
from webhook.engine.engine import decide
from webhook.engine.findings import finding_texts
from webhook.model.review import decode_review
from webhook.rules.context import ASSUMED_VERSION, Context, Phase

if TYPE_CHECKING:
    from tests.golden.cases import Case
    from webhook.engine.findings import FindingText

TEXTS: Final = finding_texts()
IN_NAMESPACE: Final = (
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {spotgate.dev/capacity: spot}}\n"
)
BY_LABEL: Final = [name for name, text in TEXTS.items() if "spotgate.dev/capacity: spot}" in text.failing]


def unlabelled(value: Any) -> Any:
    """Return the object without the labels by which it asks for spot itself, and without maps that have no others."""
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


@pytest.mark.parametrize("finding_id", sorted(TEXTS.keys() - WITHOUT_EXAMPLE))
def test_the_field_of_an_example_is_in_one_of_its_objects(finding_id: str) -> None:
    expect_resolving(TEXTS[finding_id], TEXTS[finding_id].failing)


@pytest.mark.parametrize("finding_id", sorted(BY_LABEL))
def test_no_field_of_an_example_is_a_label_that_only_its_namespace_has(finding_id: str) -> None:
    text = TEXTS[finding_id]
    unlabelled_text = yaml.safe_dump_all(unlabelled(list(yaml.safe_load_all(text.failing))))
    in_namespace = msgspec.structs.replace(text, state="---\n".join(filter(None, (text.state, IN_NAMESPACE))))
    expect_resolving(in_namespace, unlabelled_text)


def expect_resolving(text: FindingText, manifests: str) -> None:
    objects = list(filter(None, yaml.safe_load_all(manifests)))
    for finding in messages.judge(text, manifests, text.flags):
        assert not finding.field or any(resolves(finding.field, value) for value in objects), finding.message()


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_the_field_of_a_golden_answer_is_in_the_object_of_the_review(case: Case, phase: Phase) -> None:
    review = case.review(phase)
    view = view_of(case.state)
    kubelet = view.oldest_kubelet or ASSUMED_VERSION
    context = Context(phase=phase, now=NOW, oldest_kubelet=kubelet, view=view)
    asked = orjson.loads(review)["request"]
    value = asked["object"] or asked["oldObject"]
    for finding in decide(decode_review(review), BUNDLE.index, context).findings:
        assert not finding.field or resolves(finding.field, value), finding.message()
