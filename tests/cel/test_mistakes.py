"""Errors of mistakes in expressions, from the library's message and the known names."""

from __future__ import annotations

import pytest

from webhook.cel import language
from webhook.cel.errors import ExpressionError
from webhook.cel.names import NAMES
from webhook.cel.text import Text

OF_THE_REQUEST = "only operation, kind, resource, subResource, name, namespace, userInfo, dryRun"
OF_A_POOL = "only " + ", ".join(NAMES.fields["pools[]"])
TAKEN = "`%s` is the name of a variable: use another name here"
TOO_DEEP = "it is nested too deeply, counting its fields and variables: split it"

MISTAKES = [
    # names
    ("objet.spec == 1 && oldObjct.x == 2", "there is no `objet`"),
    ("object.a == 1 &&\n  objet.b", "there is no `objet`"),
    ("object.objet == 1 && !has(objet.spec)", "there is no `objet`"),
    ("object.x.nofunction() == 1", "there is no `nofunction`"),
    ("object.x.al(y, y == 1)", "there is no `al`"),
    ("nope(object.x, nada) == 1", "there is no `nope`"),
    ("object.x.all(c, cc.image == 'a')", "there is no `cc`"),
    ("object.spec.template-x == 1", "there is no `x`"),
    ("semver('1.2.3').major() == 1", "there is no `semver`"),
    ("optional.unwrap([object.?x]) == [1]", "there is no `optional.unwrap`"),
    ("lists.rang(1) == [0]", "there is no `lists.rang`"),
    ("size > 3", "`size` is a function: check its arguments"),
    ("object.x.exists(y == 1)", "`exists` is a function: check its arguments"),
    ("'abc'.startsWith('a', 'b')", "`startsWith` is a function: check its arguments"),
    ("namespace == 'b'", "reserved identifier: namespace, at `namespace == 'b'`"),
    # known fields
    ("request.object.metadata.name == 'a'", f"there is no `request.object`, {OF_THE_REQUEST}"),
    ("request.userinfo.username == 'a'", f"there is no `request.userinfo`, {OF_THE_REQUEST}"),
    ("namespaceObject.labels['a'] == 'b'", "there is no `namespaceObject.labels`, only metadata"),
    ("pools.exists(p, p.gpu == 'yes' && p.capcity == 'spot')", f"there is no `p.capcity`, {OF_A_POOL}"),
    (
        "pools.filter(p, true).all(x, x.taints.exists(t, t.keey == 'a'))",
        "there is no `t.keey`, only key, value, effect",
    ),
    # item names
    ("object.spec.containers.all(object, has(object.image))", TAKEN % "object"),
    ("object.x.transformList(i, oldObject, oldObject) == []", TAKEN % "oldObject"),
    ("object.?x.optMap(namespaceObject, true).orValue(true)", TAKEN % "namespaceObject"),
    ("object.x.exists(x, x.y.exists_one(request, request.operation == 'CREATE'))", TAKEN % "request"),
    # syntax
    ("object.x = 1", "Syntax error: token recognition error at: '= ', at `= 1`"),
    ("object.x == 1 and true", "Syntax error: mismatched input 'and', at `and true`"),
    ("{{ .object.metadata.name }} == 'a'", "Syntax error: mismatched input '}', at `}} == 'a'`"),
    ("1 +", "Syntax error: mismatched input '<EOF>'"),
    ("object.x == \n\n  'a\n", "Syntax error: token recognition error at: ''a\\n', at `'a`"),
    ("(object.x == ')'", "Syntax error: missing ')' at '<EOF>'"),
    ("true) || (true", "Syntax error: mismatched input ')', at `) || (true`"),
    # types
    ("1 == 'a'", "`==` does not take (int, string), at `== 'a'`"),
    ("request.dryRun == 'true'", "`==` does not take (bool, string), at `== 'true'`"),
    ("quantity('1') == '1'", "`==` does not take (kubernetes.Quantity, string), at `== '1'`"),
    ("object.?x == 'a'", "`==` does not take (optional_type(dyn), string), at `== 'a'`"),
    ("!object.x in ['a']", "`in` does not take (bool, list(string)), at `in ['a']`"),
    ("pools.size == 1", "expression of type 'list(dyn)' cannot be the operand of a select operation, at `.size == 1`"),
    ("(true ? 1 : 'a') == 1", "`?_:` does not take (bool, int, string), at `? 1 : 'a') == 1`"),
    ("object.spec.flag", "it must return a bool, but can return any type: compare it, as in `... == true`"),
    ("'object.x == 1'", "it must return a bool, but returns string"),
    ("1 + 1", "it must return a bool, but returns int"),
    ("has(object.x['a'])", "has() argument must be a field selection, at `['a'])`"),
    # depth
    (f"object{'.abc' * 40} == 1", TOO_DEEP),
    ("(" * 400 + "true" + ")" * 400, TOO_DEEP),
]


def compiled(expression: str) -> None:
    text = Text(expression)
    language().compile(text.text, bool, text.bound)


@pytest.mark.parametrize(("expression", "problem"), MISTAKES, ids=[mistake[0][:60] for mistake in MISTAKES])
def test_a_mistake_is_reported_at_its_position(expression: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compiled(expression)
    assert str(error.value) == problem
