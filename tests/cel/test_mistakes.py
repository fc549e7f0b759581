"""A mistake in an expression is told by what is wrong, where it is, and what to write instead."""

from __future__ import annotations

import json

import pytest

from webhook.capacity.pool import CapacityType, Gpu
from webhook.cel import ExpressionError, language
from webhook.cel.checks import KNOWN_FIELDS, KNOWN_VALUES
from webhook.cel.text import Text
from webhook.kube.tolerations import EFFECTS
from webhook.review import OPERATIONS

HAS = (
    "`has` takes a field, as in `has(object.spec.x)`; of a key, write `'a' in object.metadata.labels`, of a variable, "
    "`object != null`"
)
CONVERT = "convert one side, with `int(...)`, `double(...)` or `string(...)`"
QUANTITIES = "quantities are compared by `a.isGreaterThan(b)`, `a.isLessThan(b)`, `a.compareTo(b) <= 0`"
NO_ESCAPE = (
    "the string that begins here has an escape that CEL has not: a backslash is written `\\\\`, or in a raw string, as "
    r"`r'\d'`"
)
NOT_HERE = "Kubernetes has it, and spotgate has not"
NOT_CLOSED = "the string that begins here is not closed"
TEMPLATES = "`{{ }}` is of templates (Helm, Go): an expression names values as they are, `object.metadata.name`"
IN_BRACKETS = "a key with `%s` in it is written in brackets: `labels['example.com/name']`"
OF_THE_REQUEST = "only operation, kind, resource, subResource, name, namespace, userInfo, dryRun"
OF_A_POOL = "only " + ", ".join(KNOWN_FIELDS["pools[]"])

OPTIONAL = "what is optional never equals what is not: write `.orValue(...)` behind it"
TAKEN = "`%s` is what expressions are shown: another name is needed here"
AN_OPERATION = "only 'CREATE', 'UPDATE', 'DELETE', 'CONNECT'"

# The mistake is where the mark is.
MISTAKES = [
    # names
    ("^objet.spec == 1 && oldObjct.x == 2", "there is no `objet`"),
    ("object.a == 1 &&\n  ^objet.b", "there is no `objet`"),
    ("object.objet == 1 && !has(^objet.spec)", "there is no `objet`"),
    ("object.x.^nofunction() == 1", "there is no `nofunction`"),
    ("object.x.^al(y, y == 1)", "there is no `al`"),
    ("^nope(object.x, nada) == 1", "there is no `nope`"),
    ("object.x.all(c, c.image.^startWith('a'))", "there is no `startWith`"),
    ("object.x.all(c, ^cc.image == 'a')", "there is no `cc`"),
    ("object.metadata.name == ^web", "there is no `web`; a string is in quotes: `'web'`"),
    ("object.metadata.labels[^app] == 'a'", "there is no `app`; a string is in quotes: `'app'`"),
    ("object.labels.app.kubernetes.io/^name == 'x'", f"there is no `name`; {IN_BRACKETS % '/'}"),
    ("object.spec.template-^x == 1", f"there is no `x`; {IN_BRACKETS % '-'}"),
    ("^recursion == 1", "there is no `recursion`"),
    # what others call it
    ("^self.spec.x == 1", "there is no `self`: write `object`"),
    ("^input.review.object.x == 1", "there is no `input`: write `object`"),
    ("^oldSelf.x == 1", "there is no `oldSelf`: write `oldObject`"),
    ("^request.object.metadata.name == 'a'", "there is no `request.object`: write `object`"),
    ("^request.username == 'a'", "there is no `request.username`: write `request.userInfo.username`"),
    ("^request.userinfo.username == 'a'", f"there is no `request.userinfo`, {OF_THE_REQUEST}"),
    (
        "^namespaceObject.labels['a'] == 'b'",
        "there is no `namespaceObject.labels`: write `namespaceObject.metadata.labels`",
    ),
    (
        "^namespaceObject.metadata.annotations['a'] == 'b'",
        "there is no `namespaceObject.metadata.annotations`, only name, labels",
    ),
    ("object.x.all(c, c == ^None)", "there is no `None`: write `null`"),
    ("object.x == ^True", "there is no `True`: write `true`"),
    ("object.x.^any(c, c.image == 'a')", "there is no `any`: write `exists`"),
    ("^len(object.x) > 3", "there is no `len`: write `size`"),
    ("object.x.^match('^a')", "there is no `match`: write `matches`"),
    ("object.x.^toLowerCase() == 'a'", "there is no `toLowerCase`: write `lowerAscii`"),
    ("^optional.unwrap([object.?x]) == [1]", f"there is no `optional.unwrap`: {NOT_HERE}"),
    ("^format.dns1123Label().validate('a') == optional.none()", f"there is no `format.dns1123Label`: {NOT_HERE}"),
    ("object.x.^unwrapOpt() == [1]", f"there is no `unwrapOpt`: {NOT_HERE}"),
    ("^semver('1.2.3').major() == 1", f"there is no `semver`: {NOT_HERE}"),
    ("^lists.rang(1) == [0]", "there is no `lists.rang`"),
    ("^size > 3", "there is no `size`; a function is called with brackets, as in `list.size()`"),
    ("object.metadata.labels[^first] == 'a'", "there is no `first`; a string is in quotes: `'first'`"),
    ("^namespace == 'b'", "`namespace` is a word of CEL, and no name: write `request.namespace`"),
    ("^{{ .object.metadata.name }} == 'a'", TEMPLATES),
    # pools
    ("pools.exists(p, p.gpu == 'yes' && ^p.capcity == 'spot')", f"there is no `p.capcity`, {OF_A_POOL}"),
    (
        "pools.filter(p, true).all(x, x.taints.exists(t, ^t.keey == 'a'))",
        "there is no `t.keey`, only key, value, effect",
    ),
    # names of items
    ("object.spec.containers.all(^object, has(object.image))", TAKEN % "object"),
    ("object.x.transformList(i, ^oldObject, oldObject) == []", TAKEN % "oldObject"),
    ("object.?x.optMap(^namespaceObject, true).orValue(true)", TAKEN % "namespaceObject"),
    ("object.x.exists(x, x.y.exists_one(^request, request.operation == 'CREATE'))", TAKEN % "request"),
    # optional values
    ("object.metadata.labels^[?'k'] != 'spot'", OPTIONAL),
    ("'spot' == object.metadata.labels^[?\"k\"]", OPTIONAL),
    ("object.a^[?'x'].b == 1", OPTIONAL),
    ("object.containers.all(c, c^[?'k'] == object.x)", OPTIONAL),
    # words
    ("request.operation == ^'Create'", f"`request.operation` is never `Create`, {AN_OPERATION}"),
    ('^"create" != request.operation', f"`request.operation` is never `create`, {AN_OPERATION}"),
    ("request.operation in ['CREATE', ^'PATCH']", f"`request.operation` is never `PATCH`, {AN_OPERATION}"),
    (
        "pools.filter(p, p.gpu == 'yes').exists(p, p['capacity'] == ^'Spot')",
        "`p.capacity` is never `Spot`, only 'spot', 'on-demand', 'both', 'unknown'",
    ),
    ("pools.exists(p, ^p.gpu == true)", "`p.gpu` is a string, only 'yes', 'no', 'any', 'unknown'"),
    (
        "pools.all(p, p.taints.all(t, t.effect != ^'NoExec'))",
        "`t.effect` is never `NoExec`, only 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ),
    # operators
    ("object.x ^= 1", "`=` is not expected here: to compare, write `==`"),
    ("object.x ==^= 1", "`=` is not expected here: to compare, write `==`"),
    ("object.x == 1 ^and true", "`and` is not expected here: write `&&`"),
    ("object.x == 1 ^| true", "`|` is not expected here: write `||`"),
    ("not ^object.x", "`object` is not expected here: for `not`, write `!`"),
    ("object.x ^not in ['a']", "`not` is not expected here: write `!(x in list)`"),
    ("object.x ^=< 1", "`=<` is not expected here: write `<=`"),
    ("object.x <^> 1", "`>` is not expected here: write `!=`"),
    ("object.x[^*].a == 1", "`*` is not expected here: write `list.all(x, x == 1)`, or `list.exists(x, x == 1)`"),
    ("object.x in ('a'^, 'b')", "`,` is not expected here: a list is written `['a', 'b']`"),
    ("object.x ^=~ '^a'", "`=~` is not expected here: write `x.matches('...')`"),
    ("object.x.exists(c ^=> c.x == 1)", "`=>` is not expected here: write `>=`, or `list.all(x, x == 1)`"),
    ("^if object.x == 1 then true", "`if` is a word of CEL, and no name: write `condition ? a : b`"),
    ("object.x == null ?^? true", "`?` is not expected here: write `object.?x.orValue(...)`"),
    ("object.x == 'a' ^# comment", "`#` is not expected here: a comment begins with `//`"),
    ("object.x == 1 ? tru^e", "it ends too early: a condition is written `condition ? a : b`"),
    ("object.a?.b =^= ", "it ends too early: an optional field is written `object.?x`"),
    ("1 ^+", "it ends too early"),
    # quotes and brackets
    ("object.x == ^'a", NOT_CLOSED),
    ("object.x == \n\n  ^'a\n", NOT_CLOSED),
    (
        r"object.x.matches(^'\d')",
        NO_ESCAPE,
    ),
    ("object.x == ^\u2018a\u2019", "`\u2018` is not expected here: a string is in ' or \""),
    ("^(object.x == ')'", "`(` is not closed: a `)` is missing"),
    ("object.x.all^(c, c.x[0] == 1", "`(` is not closed: a `)` is missing"),
    ("object.x in ^['a', 'b'", "`[` is not closed: a `]` is missing"),
    ("true^) || (true", "`)` is not expected here"),
    # types
    ("1 ^== 'a'", f"`==` does not take (int, string): {CONVERT}"),
    ("size(object.x) ^== 1.0", f"`==` does not take (int, double): {CONVERT}"),
    ("request.operation ^!= null", "`!=` does not take (string, null): that is never null"),
    ("request.dryRun ^== 'true'", f"`==` does not take (bool, string): {CONVERT}"),
    ("size(object.x) ^> '3'", f"`>` does not take (int, string): {CONVERT}"),
    ("quantity('1') ^== '1'", "`==` does not take (kubernetes.Quantity, string): write `== quantity('...')`"),
    ("quantity(object.x) ^< '1Gi'", f"`<` does not take (kubernetes.Quantity, string): {QUANTITIES}"),
    ("object.x == 100^Mi", "`Mi` is not expected here: write `quantity('1Gi')`, or `duration('5m')`"),
    (
        "object.?x ^== 'a'",
        "`==` does not take (optional_type(anything), string): what is optional is taken out with `.orValue(...)`",
    ),
    ("!object.x ^in ['a']", "`in` does not take (bool, list(string)): write `!(x in list)`"),
    ("object.x ^in 'abc'", "`in` does not take (anything, string): write `text.contains('a')`"),
    (
        "pools^.size == 1",
        "a value of type list(anything) has no fields; a function is called with brackets, as in `list.size()`",
    ),
    ("2 < object.x ^< 5", "`<` does not take (bool, int): write `a < x && x < b`"),
    (
        "object.x.map(c, c).contains^('a')",
        "`contains` does not take (list(anything), string): of a list, write `'a' in list`",
    ),
    ("(true ^? 1 : 'a') == 1", "`? :` does not take (bool, int, string): both sides are of one type"),
    ("1 ^&& true", "`&&` does not take (int, bool): compare first, as in `... == true`"),
    ("1 ^in ['a']", "`in` does not take (int, list(string)): the items of the list are of another type"),
    ("1 ^in 2", "`in` does not take (int, int): it takes a list or a map"),
    ("object.spec.flag", "it must give a bool, and gives anything: compare it, as in `... == true`"),
    ("'object.x == 1'", "it must give a bool, and gives string: take away the quotes around it"),
    ("object.x.filter(c, c.x)", "it must give a bool, and gives list<dyn>: compare it, as in `... .size() == 0`"),
    ("1 + 1", "it must give a bool, and gives int"),
    # functions
    (
        "object.x.^exists(y == 1)",
        "`exists` takes a name and an expression, as in `list.exists(x, x == 1)`",
    ),
    (
        "object.x.all(c, c.x ^== 1, c.y == 2)",
        "`all` takes a name and an expression, as in `list.all(x, x == 1)`; conditions are joined by `&&`",
    ),
    ("'abc'.^startsWith('a', 'b')", "`startsWith` does not take what it is given here"),
    ("has(object.x^['a'])", HAS),
    ("has(^object)", HAS),
    ("object.x.^in == 1", "`.in` is not expected here: a word of CEL as a key is written `['in']`"),
    ("params^.1 == 2", "`.1` is not expected here: a key that is no name is written `['1']`"),
    # depth
    (
        f"object{'.abc' * 40} == 1",
        "it is nested too deeply, where fields of fields and each variable that it reads count too: split it",
    ),
    (
        "(" * 400 + "true" + ")" * 400,
        "it is nested too deeply, where fields of fields and each variable that it reads count too: split it",
    ),
]


def compiled(expression: str) -> None:
    text = Text(expression)
    language().compile(text.text, bool, text.bound)


@pytest.mark.parametrize(("marked", "problem"), MISTAKES, ids=[each[0][:60] for each in MISTAKES])
def test_a_mistake_is_told_where_it_is(marked: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compiled(marked.replace("^", "", 1))
    assert str(error.value) == problem
    assert error.value.offset == (marked.index("^") if "^" in marked else None)


@pytest.mark.parametrize(
    "expression",
    [
        "pools.all(p, p.capacity != '' && p.gpu != null)",
        "request.operation == object.metadata.name",
        "object.spec.operation == 'Create' && object.capacity in ['Spot']",
        "pools.all(p, p.labels['capacity'] == 'Spot')",
        "[request.operation, 'Create'].size() == 2",
    ],
)
def test_other_comparisons_are_no_mistakes(expression: str) -> None:
    compiled(expression)


def test_the_words_are_those_that_there_are() -> None:
    assert {field: set(words) for field, words in KNOWN_VALUES.items()} == {
        "request.operation": set(OPERATIONS),
        "pools[].capacity": set(CapacityType),
        "pools[].gpu": set(Gpu),
        "pools[].taints[].effect": set(EFFECTS),
    }


PARAMS = {
    "max": "1GB",
    "ok": "1Gi",
    "limit": "3",
    "number": 3,
    "fraction": 1.5,
    "flag": True,
    "soon": "5m",
    "list": ["a"],
    "deep": {"x": "y"},
}
CONVERT_ONE = "compares a string with a number: write one as the other"


def with_params(expression: str) -> None:
    text = Text(expression)
    language().compile(text.text, bool, {"params": f"dyn({json.dumps(PARAMS)})", **text.bound})


@pytest.mark.parametrize(
    ("marked", "problem"),
    [
        ("^quantity('1GB').isLessThan(quantity('1Gi'))", "`quantity('1GB')` never has a result: '1GB' is no quantity"),
        ("^quantity( params.max ).isLessThan(quantity('1'))", "`quantity(params.max)` never has a result: '1GB' is no quantity"),
        ('^duration("5min") > duration("1s")', "`duration('5min')` never has a result: a string is no duration, as 90s or 1h30m"),
        ("^timestamp('2027-01-31') > timestamp('2026-01-01T00:00:00Z')", "`timestamp('2027-01-31')` never has a result: a string is no timestamp, as 2026-11-21T10:00:00Z"),
        ("object.x == ^int(params.max)", "`int(params.max)` never has a result: cannot convert string to int"),
        ("^ip('10.0.0').family() == 4", "`ip('10.0.0')` never has a result: '10.0.0' does not appear to be an IPv4 or IPv6 address"),
        ("^params.limit > 3", f"`params.limit > 3` {CONVERT_ONE}"),
        ("object.x || ^int('x') > 1", "`int('x')` never has a result: cannot convert string to int"),
        ("^3 <= params.limit", "`3 <= params.limit` compares a number with a string: write one as the other"),
        ("^params.limit.exists(s, s == object.x)", "`params.limit` is a string, and has no items"),
        ("object.x in ^params.number", "`params.number` is a number, and has no items"),
        ("object.x.all(^params, params == 1)", TAKEN % "params"),
    ],
)  # fmt: skip
def test_what_never_has_a_result_whatever_the_object_is_a_mistake(marked: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as error:
        with_params(marked.replace("^", "", 1))
    assert str(error.value) == problem
    assert error.value.offset == marked.index("^")


@pytest.mark.parametrize(
    "expression",
    [
        "int(params.limit) > 3 && quantity(params.ok).isLessThan(quantity('2Gi')) && duration(params.soon) > duration('1s')",
        "params.number > 2 && params.fraction < 2.0 && params.number < 2.5 && params.fraction == 1",
        "object.x in params.list && params.list.all(x, x == 'a') && 'x' in params.deep && params.flag == true",
        "[params].all(p, p.limit == '3') && params.?limit.orValue('') == '3' && params.number + 1 > 2",
        "quantity(object.x).isLessThan(quantity('1'))",
        "params.max == '' || quantity(object.x).compareTo(quantity(params.max)) <= 0",
        "isQuantity(params.max) ? quantity(params.max).isGreaterThan(quantity('1')) : true",
        "params.limit == 'unlimited' || object.spec.replicas <= params.limit",
        "params.limit == '*' || object.metadata.namespace in params.limit",
        "type(params.limit) == int ? params.limit > 1024 : int(params.limit) > 1",
        "params.number == 'unlimited' || object.x <= params.number",
        "type(params.limit) == list ? params.limit.exists(x, x == object.x) : params.limit == 'a'",
        "object.x.first() == optional.none() && object.x.map(c, c.name).first() != optional.of('a')",
        "object.x.map(c, c.?y).all(u, u != optional.of(0)) && object.x.map(c, c.?y)[0] == optional.of('x')",
        "[object.a[?'a'], object.a[?'b']].all(o, o == optional.none())",
        "[object.a].exists(i, i == object.spec.?image) || {'x': object.spec.?a}.x == optional.none()",
        "object.labels[?'k'] == optional.of('spot') && object.a[?0] == object.b[?0] && object.?x.?y == optional.none()",
        "object.labels[?'k'].orValue('') == 'spot'",
    ],
)
def test_what_may_have_a_result_is_none(expression: str) -> None:
    with_params(expression)


def test_a_variable_may_be_read_behind_what_asks_first() -> None:
    language().compile("quantity(params.max)", None, {"params": f"dyn({json.dumps(PARAMS)})"})
    with pytest.raises(ExpressionError, match="'1GB' is no quantity"):
        language().compile("quantity('1GB')", None, {})
