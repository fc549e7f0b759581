"""Expressions give the same results as in Kubernetes."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webhook.cel import language
from webhook.cel.errors import HAS_NUL, NOT_KNOWN, EvaluationError, ExpressionError
from webhook.cel.text import Text

if TYPE_CHECKING:
    from webhook.cel.library import Values

JSON = dict[str, Any]

OBJECT: JSON = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web", "app.kubernetes.io/part-of": "shop"}, "annotations": None},
    "spec": {
        "replicas": 3,
        "ratio": 1.0,
        "share": 0.5,
        "max": "25%",
        "port": 8080,
        "paused": False,
        "containers": [
            {"name": "app", "image": "registry.example.com/app:1", "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "sidecar", "image": "docker.io/proxy:2", "args": ["-v", "-v=2"]},
        ],
        "empty": [],
        "numbers": [1, 2, 2, 3],
    },
}

NAMES = {"oldObject": None, "request": {"operation": "CREATE"}, "request.userInfo": {"username": "jane"}}


def values(shown: object, **others: Any) -> Values:
    known = {**NAMES, "namespaceObject": None, "pools": [], **others, "object": shown}
    return language().values(known)


def evaluate(expression: str, shown: object = OBJECT, **others: Any) -> bool | str:
    text = Text(expression)
    return language().compile(text.text, bool, text.bound).evaluate(values(shown, **others))


def error_of(expression: str, shown: object = OBJECT, **others: Any) -> str:
    with pytest.raises(EvaluationError) as error:
        evaluate(expression, shown, **others)
    return str(error.value)


TRUE = [
    *(
        line
        for line in Path(__file__).with_name("true.txt").read_text().splitlines()
        if line and not line.startswith("//")
    ),
    "' web\t'.trim() == 'web'",
    "1 == 1 // 'not closed\n",
]


@pytest.mark.parametrize("expression", TRUE)
def test_the_expression_is_true_and_its_negation_false(expression: str) -> None:
    assert evaluate(expression) is True
    assert evaluate(f"!({expression})") is False


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("object.spec.missing == 1", "no such key: missing"),
        ("object.spec.containers.all(c, c.args.size() > 0)", "no such key: args"),
        ("object.metadata.labels['team'] == 'a'", "no such key: team"),
        ("object.spec.replicas + object.spec.max == 1", "no such overload: int + string"),
        ("object.metadata.annotations > 1", "no such overload: null > int"),
        ("object.spec.replicas && true", "no such overload: _&&_"),
        ("object.spec.max.all(x, true)", "no such overload: <iter_range>"),
        ("1 in object.spec.max", "no such overload: @in"),
        ("object.spec.replicas.x == 1", "it reads a field of a string, number, list, or null"),
        ("object.spec.replicas.?x.hasValue()", "no such overload: int ?. string"),
        ("object.metadata.annotations['a'] == 1", "it reads a field of a string, number, list, or null"),
        ("duration(object.spec.max) == duration('1s')", "String to Duration conversion failed"),
        ("timestamp(object.spec.max) == timestamp(0)", "String to Timestamp conversion failed"),
        ("object.spec.replicas / 0 == 1", "divide by zero"),
        ("lists.range(-1) == []", "lists.range() of a negative number"),
        ("lists.range(object.spec.empty.size() - 1) == []", "lists.range() of a negative number"),
        ("object.spec.replicas < object.spec.max", "no such overload: int < string"),
        ("object.spec.containers[7].name == ''", "index out of bounds: 7"),
        ("object.spec.replicas.startsWith('3')", "no such overload: (int).startsWith(string)"),
        ("sign(quantity(object.spec.max)) == 1", "'25%' is not a quantity"),
        ("object.spec.numbers.isGreaterThan(quantity('1'))", "no such overload: (list).isGreaterThan(map)"),
        ("object.metadata.labels.isGreaterThan(quantity('1'))", "no such overload"),
        ("object.spec.empty.min() == 1", "min called on an empty list"),
        ("[1, object.spec.max].max() == 1", "no such overload"),
        ("[1, object.spec.share].min() == 1", "no such overload"),
        ("[duration('1m')].sum() == duration('1m')", "no such overload"),
        ("[9223372036854775807, 1].sum() == 1", "integer overflow"),
        ("object.spec.replicas + 9223372036854775807 > 0", "integer overflow"),
        ("quantity('1.5').asInteger() == 1", "cannot convert value to integer"),
        ("ip(object.metadata.name).family() == 4", "'web' does not appear to be an IPv4 or IPv6 address"),
        ("url('../' + 'x').getHost() == ''", "'../x' is not a URL: neither an absolute URI nor an absolute path"),
        ("int(object.metadata.name) == 1", "cannot convert string to int"),
    ],
)
def test_the_expression_is_an_error(expression: str, why: str) -> None:
    assert error_of(expression) == why


@pytest.mark.parametrize(
    "expression",
    [
        "quantity('9223372036854775807').asInteger() == 9223372036854775807 && quantity('1.5Gi').isInteger()",
        "'%f'.format([1]) == '1.000000' && '%s'.format([['a']]) == '[a]' && '%s'.format([{'a': 1}]) == '{a: 1}'",
        "string(timestamp('2026-01-01T01:00:00.5+01:00')) == '2026-01-01T00:00:00.500Z'",
        "string(duration('1.5s')) == '1.500s' && string(1.0/0.0) == 'inf' && ''.split('') == ['']",
    ],
)
def test_differences_from_kubernetes_are_documented(expression: str) -> None:
    assert evaluate(expression) is True


def test_an_unknown_value_is_not_an_expression_error() -> None:
    with pytest.raises(EvaluationError) as error:
        evaluate("pools.exists(p, p.name == 'a')", pools=NOT_KNOWN)
    assert error.value.unknown == "pools"
    with pytest.raises(EvaluationError) as error:
        evaluate("request.userInfo.username == 'a'", **{"request.userInfo": NOT_KNOWN})
    assert error.value.unknown == "request.userInfo"


def test_an_unknown_value_is_ignored_if_another_operand_decides() -> None:
    assert evaluate("object.kind == 'Pod' || pools.size() == 0", pools=NOT_KNOWN) is True
    assert evaluate("object.kind == 'X' && pools.size() == 0", pools=NOT_KNOWN) is False
    known = {"namespaceObject": NOT_KNOWN, "namespaceObject.metadata.name": "team-a"}
    assert evaluate("namespaceObject.metadata.name == 'team-a'", **known) is True


@pytest.mark.parametrize(
    "text",
    ["Non-CEL value type for 'pools': NotKnown.", "\nNon-CEL value type for 'pools': NotKnown.", "pools is not known"],
)
@pytest.mark.parametrize(
    "expression",
    [
        "object.labels[object.x] == 'a'",
        "sign(quantity(object.x)) == 1",
        "ip(object.x).family() == 4",
        "int(object.x) == 1",
        "timestamp(object.x) == timestamp(object.x)",
        "duration(object.x) == duration('1s')",
        "object.x",
    ],
)
def test_no_object_can_imitate_an_unknown_value(expression: str, text: str) -> None:
    with pytest.raises(EvaluationError) as error:
        evaluate(f"dyn({expression}) == dyn(object.labels[object.x])", {"labels": {}, "x": text})
    assert error.value.unknown == ""


def test_a_string_is_compared_past_its_nul_character() -> None:
    assert error_of("object.x == 'a'", HAS_NUL) == "object contains a NUL character, so it can't be evaluated"


def test_integers_beyond_64_bits_are_an_error() -> None:
    assert "out of range" in error_of("object.x > 1", {"x": 1 << 70})
    assert evaluate("object.x > 1", {"x": 1 << 63}) is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("{'a': 1}.transformMap(k, v, v) == {}", "transformMap() and transformMapEntry() aren't supported"),
        ("{'a': request}.transformMap(k, v, v) == {}", "transformMap() and transformMapEntry() aren't supported"),
        ("math.abs(-1) == 1", "there is no `math`"),
        ("semver('1.0.0').major() == 1", "there is no `semver`"),
        ("authorizer.group('').resource('pods').check('get').allowed()", "there is no `authorizer`"),
        ("base64.encode(b'a') == ''", "there is no `base64`"),
        ("ip('::1').add(quantity('1')) == quantity('1')", None),
        ("pools.name == 'a'", None),
        ("request.?options.hasValue()", None),
        ("'a' == " + "'a' + " * 2000 + "'a'", "it has more than 10000 characters, including its variables"),
    ],
)
def test_the_expression_is_rejected_before_evaluation(expression: str, problem: str | None) -> None:
    with pytest.raises(ExpressionError) as error:
        language().compile(Text(expression).text, bool, {})
    assert problem is None or str(error.value) == problem


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("cel.bind(x, 1, x == 1)", "`cel.bind` isn't available in Kubernetes: use `variables`"),
        ("variables == {}", "`variables` is not a value: write variables.<name>"),
        ("variables_a == 1", "`variables_a` is reserved: write variables.a"),
        ("'a'.Matches('a')", "there is no `Matches`"),
        ("Has(request.userInfo)", "there is no `Has`"),
    ],
)
def test_only_kubernetes_functions_are_available(expression: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=r".") as error:
        Text(expression)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("variables.a + variables . b", "variables_a + variables_b  "),
        ("'variables.a' == \"variables.a\"", "'variables.a' == \"variables.a\""),
        (r"'it\'s variables.a'", r"'it\'s variables.a'"),
        (r"r'''a'\d''' + bR'variables.a'", r"r'''a'\d''' + bR'variables.a'"),
        (r"r'a\d' + variables.a", r"r'a\d' + variables_a"),
        ("'''''' + 'a' + variables.b", "'''''' + 'a' + variables_b"),
        ("x.?variables.a + object. variables.b", "x.?variables.a + object. variables.b"),
        ("object.bar'variables.a'", "object.bar'variables.a'"),
        ('"""a " variables.a""" + variables.b', '"""a " variables.a""" + variables_b'),
        ("1 // variables.a\n+ variables.b", "1 // variables.a\n+ variables_b"),
        ("// All of them.\nvariables.a", "// All of them.\nvariables_a"),
        (
            "['a.', variables.a][0] == 'a.' ? variables.b : c ?variables.d : e",
            "['a.', variables_a][0] == 'a.' ? variables_b : c ?variables_d : e",
        ),
        ("object.variables.a", "object.variables.a"),
        ("object.matches == 'a'", "object.matches == 'a'"),
        ("!has(variables.a) || has ( variables . b )", "!([variables_a] != []) || ([variables_b] != [])"),
        ("has(variables.a.b)", "has(variables_a.b)"),
        ("object.a.matches ('matches(')", "object.a.Matches ('matches(')"),
    ],
)
def test_names_are_bound_and_positions_are_kept(expression: str, text: str) -> None:
    assert Text(expression).text == text


def test_bound_names_are_evaluated_lazily() -> None:
    bound = {"variables_a": "1 / 0", "variables_b": "2"}
    expression = language().compile("variables_b == 2 || variables_a == 1", bool, bound)
    assert expression.evaluate(values(OBJECT)) is True
    expression = language().compile("variables_a == 1", bool, bound)
    with pytest.raises(EvaluationError, match="divide by zero"):
        expression.evaluate(values(OBJECT))


def test_names_that_an_expression_reads() -> None:
    expression = language().compile("object.kind == 'Pod' && pools.exists(p, p.name == 'a')", bool, {})
    assert expression.reads.names == {"object", "pools"}
    expression = language().compile("namespaceObject.metadata.name == 'a'", bool, {})
    assert expression.reads.names == {"namespaceObject.metadata.name"}


def test_nulls_keep_their_reference_count() -> None:
    """The library holds no reference to a null that it returns, so no caller may release one."""
    nothing = {"nulls": [None] * 50, "deep": [{"a": None, "b": [None]}], "x": None}
    expressions = [
        language().compile(text, bool, {})
        for text in (
            "object.x == null",
            "object.nulls.isSorted()",
            "object.nulls.max() == 1",
            "object.deep.isSorted()",
            "object.nulls.sum() == 0",
            "object.x.startsWith('a')",
            "[object.x, object.deep].size() == 2 && object.nulls == [null]",
        )
    ]
    expressions.append(language().compile("object.x", None, {}))
    shown = values(nothing)
    gc.collect()  # garbage of other tests
    before = sys.getrefcount(None)
    for _ in range(2000):
        for expression in expressions:
            try:
                expression.evaluate(shown)
            except EvaluationError:
                continue
    assert sys.getrefcount(None) - before > -1000


def test_paths_that_an_expression_reads() -> None:
    text = "object.spec.containers.filter(c, has(c.env)).all(c, c.env.exists(e, e.name == 'A')) && 'a' in object.labels['a/b']"
    paths = language().compile(text, bool, {}).reads.paths
    containers = ("object", "spec", "containers")
    assert paths[*containers] == "object.spec.containers"
    assert paths[*containers, None, "env", None, "name"] == "e.name"
    assert paths["object", "labels", "a/b"] == "object.labels['a/b']"


@pytest.mark.parametrize("field", ["request.userInfo", "namespaceObject.metadata.name"])
def test_a_field_that_is_an_identifier_is_present_if_known(field: str) -> None:
    known = {"namespaceObject": NOT_KNOWN, "namespaceObject.metadata.name": "team-a"}
    assert evaluate(f"has({field})", **known) is True
    assert evaluate(f"!has({field})", **known) is False
    assert evaluate(f"has ( {field.replace('.', ' . ')} ) && true", **known) is True
