"""Validation: several mistakes in one policy."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import yaml

from webhook.engine.bundle import load_bundle
from webhook.engine.lint import warnings
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path


PODS = {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["*"]}]}
HEAD = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE, UPDATE]}]}
"""


def problems(folder: Path, text: str) -> list[str]:
    """Return what is wrong with a policy, as lines, or what is warned of."""
    file = folder / "own.yaml"
    file.write_text(text)
    try:
        found = tuple(warnings(load_bundle([file]), date(2026, 11, 21)))
    except PolicyErrors as error:
        found = error.problems
    return [str(each).replace(str(file), "own.yaml") for each in found]


def loading(folder: Path, **spec: Any) -> list[str]:
    document = {
        "apiVersion": "spotgate.dev/v1",
        "kind": "Validation",
        "metadata": {"name": "own"},
        "spec": {"match": PODS, "validations": [{"expression": "true"}], **spec},
    }
    return problems(folder, yaml.safe_dump(document, sort_keys=False, width=1000))


def test_all_mistakes_are_told_at_once_and_nothing_that_follows_from_them(tmp_path: Path) -> None:
    said = loading(
        tmp_path,
        variables=[
            {"name": "a", "expression": "objet"},
            {"name": "b", "expression": "variables.a.x"},
            {"name": "c", "expression": "1 +"},
        ],
        matchConditions=[{"name": "m", "expression": "variables.b == 1"}, {"name": "m2", "expression": "1"}],
        validations=[
            {"expression": "variables.c == 1"},
            {"expression": "variables.d == 1"},
            {"expression": "false", "messageExpression": "1"},
        ],
    )
    assert [line.split(": ")[1] for line in said] == [
        "spec.validations[1].expression",
        "spec.validations[2].messageExpression",
        "spec.variables[0].expression",
        "spec.variables[2].expression",
        "spec.matchConditions[1].expression",
    ]


def test_a_mistake_in_an_alias_is_at_its_field(tmp_path: Path) -> None:
    text = f"{HEAD}  variables: [{{name: x, expression: &x 'true'}}]\n  validations: [{{expression: &e objet.x}}, {{expression: *e}}]\n"
    first, second = problems(tmp_path, text)
    assert first.startswith("own.yaml:7:18: spec.validations[0]")
    assert second.startswith("own.yaml:7:44: spec.validations[1]")


def test_a_name_that_no_variable_can_have_is_the_only_mistake_at_first(tmp_path: Path) -> None:
    variables = [{"name": "all", "expression": "object.x"}, {"name": "my-var", "expression": "1"}]
    validations = [{"expression": "variables.all == 1"}, {"expression": "objet.x == 1"}]
    told = loading(tmp_path, variables=variables, validations=validations)
    assert [each.partition(": ")[2].partition(":")[0] for each in told] == ["spec.variables[1].name"]
