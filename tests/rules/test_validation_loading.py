"""Validation: every mistake is found when the policy is loaded, at its line and column, with what would be right."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from webhook.engine.bundle import load_bundle
from webhook.engine.lint import warnings
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from pathlib import Path

JSON = dict[str, Any]

PODS = {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["*"]}]}
HEAD = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE, UPDATE]}]}
"""


COPIES = " == '' || lists.range(2200).map(i, i).size() > 0"


def nested_loops(count: int, result: str = "true") -> str:
    for number in range(count):
        result = f"['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].all(x{number}, {result})"
    return result


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


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"validations": [{"expression": "objet.kind == 'Pod'"}]},
            "own.yaml:15:5: spec.validations[0].expression: there is no `objet`, did you mean `object`?",
        ),
        (
            {"validations": [{"expression": "object.x.isSortd()"}]},
            "own.yaml:15:5: spec.validations[0].expression: there is no `isSortd`, did you mean `isSorted`?",
        ),
        (
            {"validations": [{"expression": "true", "messageExpression": "object.metadata.name"}]},
            ("own.yaml:16:5: spec.validations[0].messageExpression: it must give a string, and gives anything"),
        ),
        (
            {
                "variables": [{"name": "images", "expression": "1"}],
                "validations": [{"expression": "variables.image == 1"}],
            },
            (
                "own.yaml:15:5: spec.validations[0].expression: there is no `variables.image`, did you mean "
                "`variables.images`?"
            ),
        ),
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            (
                "own.yaml:18:5: spec.variables[0].expression: there is no `variables.b` yet: a variable reads those that "
                "are written before it"
            ),
        ),
        (
            {"variables": [{"name": "a", "expression": "1"}, {"name": "a", "expression": "1"}]},
            "own.yaml:19:5: spec.variables[1].name: there is another variable 'a'",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "object.spec.x"}]},
            (
                "own.yaml:18:5: spec.matchConditions[0].expression: it must give a bool, and gives anything: compare it, "
                "as in `... == true`"
            ),
        ),
        (
            {"validations": [{"expression": "true &&\nfalse"}]},
            "own.yaml:15:5: spec.validations[0]: an expression with line breaks needs a `message`, as in Kubernetes",
        ),
        (
            {"validations": [{"expression": "true", "message": "a\nb"}]},
            "own.yaml:16:5: spec.validations[0].message: expected one line; got 'a\\nb'",
        ),
        (
            {"validations": [{"expression": "true", "mesage": "x"}]},
            "own.yaml:16:5: spec.validations[0].mesage: unknown field `mesage`, did you mean `message`?",
        ),
        (
            {"validations": [{"expression": nested_loops(6)}]},
            (
                "own.yaml:15:5: spec.validations[0].expression: its loops over literals may take more than 10,000 rounds "
                "on every object: use shorter lists, or nest fewer loops"
            ),
        ),
        (
            {"validations": [{"expression": f"{'x' * number}".join(["'"] * 2) + COPIES} for number in range(3)]},
            ("own.yaml:14:3: spec.validations: together they may take more than 400 ms on every object: simplify them"),
        ),
        ({"match": {}}, "own.yaml:6:3: spec.match.resourceRules: is missing: say what the policy looks at"),
    ],
)
def test_a_mistake_is_found_when_the_policy_is_loaded(tmp_path: Path, spec: JSON, problem: str) -> None:
    assert loading(tmp_path, **spec) == [problem]


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


def test_what_the_model_refuses_is_told_beside_what_does_not_compile(tmp_path: Path) -> None:
    match = {"resourceRules": [{"apiGroups": [""], "resources": ["Pods"], "operations": ["*"]}]}
    said = loading(tmp_path, match=match, validations=[{"expression": "objet == 1"}])
    assert [line.split(": ")[1] for line in said] == [
        "spec.match.resourceRules[0].resources[0]",
        "spec.validations[0].expression",
    ]


def test_a_mistake_in_an_alias_is_at_its_field(tmp_path: Path) -> None:
    text = f"{HEAD}  variables: [{{name: x, expression: &x 'true'}}]\n  validations: [{{expression: &e objet.x}}, {{expression: *e}}]\n"
    first, second = problems(tmp_path, text)
    assert first.startswith("own.yaml:7:18: spec.validations[0]")
    assert second.startswith("own.yaml:7:44: spec.validations[1]")


# params


PARAMS = {"maximum": 1, "a": {"b": {"c": 2}, "1": 3, "x/y": 4}, "list": [{"d": 1}, {}], "nothing": None}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("params.maximun == 1", "there is no `params.maximun`, did you mean `maximum`?"),
        ("params.a.other == 1", "there is no `params.a.other`; `params.a` has b, 1, x/y"),
        ("params.a.b.cc == 1", "there is no `params.a.b.cc`, did you mean `c`?"),
        ("params['maximun'] == 1", "there is no `params.maximun`, did you mean `maximum`?"),
        ("has(params.a) && params.maximun == 1", "there is no `params.maximun`, did you mean `maximum`?"),
        ("has(params.other.b)", "there is no `params.other`; `params` has maximum, a, list, nothing"),
        ("params.?maximum.x == optional.none()", "`params.maximum` is a number, and has no field `x`"),
        ("params.a['x/z'] == 1", "there is no `params.a['x/z']`, did you mean `x/y`?"),
        ("params.a.b.c.d == 1", "`params.a.b.c` is a number, and has no field `d`"),
        ("params.list.d == 1", "`params.list` is a list, and has no field `d`"),
        ("variables.p.other == 1", "there is no `params.a.other`; `params.a` has b, 1, x/y"),
        ("params.1 == 1", "Syntax error: mismatched input '.1', at `.1 == 1`"),
    ],
)
def test_a_param_that_is_not_there_is_refused(tmp_path: Path, expression: str, problem: str) -> None:
    variables = [{"name": "p", "expression": "params.a"}]
    (said,) = loading(tmp_path, params=PARAMS, variables=variables, validations=[{"expression": expression}])
    assert said.partition("expression: ")[2] == problem


def test_params_that_nobody_wrote_are_refused_with_where_to_write_them(tmp_path: Path) -> None:
    (said,) = loading(tmp_path, validations=[{"expression": "params.x == 1"}])
    assert said == (
        "own.yaml:15:5: spec.validations[0].expression: there are no `params`: they stand in the policy, as `spec.params`"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "params.a['1'] == 3 && params.a['x/y'] == 4",
        "params.list.exists(x, has(x.d)) && params.list[1] == {}",
        "params[object.metadata.name] == 1 || params.a.all(key, key != '')",
        "params.nothing == null",
        "params != null && params.maximum >= quantity('1').asApproximateFloat() && params.maximum == 1.0",
        "has(params.minimum) ? params.minimum > 1 : true",
        "params.?minimum.orValue(0.5) < 1 && !params[?'minimum'].hasValue() && params.?x.?y.z == optional.none()",
        "!('minimum' in params) || params.minimum > 1",
        "!has(params.a.x) && 'x' in params.a || params.a.all(k, !has(params.a.b.k))",
        "type(params.maximum) == map ? params.maximum.x == 1 : params.maximum == 1",
        "object.?a.b.c == optional.of(1) && object.a[?'b']['c'] == optional.none()",
        "object.params.x == 1 && object.?params.x.hasValue() && 'params.x' != ''",
    ],
)
def test_a_param_that_may_be_there_is_not_refused(tmp_path: Path, expression: str) -> None:
    match = {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}]}
    assert loading(tmp_path, match=match, params=PARAMS, validations=[{"expression": expression}]) == []


def test_a_variable_is_always_there(tmp_path: Path) -> None:
    variables = [
        {"name": "a", "expression": "1"},
        {"name": "b", "expression": "has(variables.a) ? object.?x : object.?y"},
    ]
    validations = [{"expression": "has(variables.a) && has(variables.b) && !(!has(variables.a))"}]
    assert loading(tmp_path, variables=variables, validations=validations) == []
    (said,) = loading(tmp_path, variables=variables, validations=[{"expression": "has(variables.c)"}])
    assert "there is no `variables.c`" in said


def test_what_reads_a_variable_that_is_wrong_is_no_mistake_of_its_own(tmp_path: Path) -> None:
    variables = [{"name": "all", "expression": "object.x"}, {"name": "my-var", "expression": "1"}]
    validations = [{"expression": "variables.all == 1"}, {"expression": "objet.x == 1"}]
    told = loading(tmp_path, variables=variables, validations=validations)
    assert {each.partition(": ")[2].partition(":")[0] for each in told} == {
        "spec.variables[1].name",
        "spec.validations[1].expression",
    }
