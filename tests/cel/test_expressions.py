"""Kubernetes' expressions come to what Kubernetes says they do."""

from __future__ import annotations

import gc
import sys
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


def evaluated(expression: str, shown: object = OBJECT, **others: Any) -> bool | str:
    text = Text(expression)
    return language().compile(text.text, bool, text.bound).evaluate(values(shown, **others))


def failure(expression: str, shown: object = OBJECT, **others: Any) -> str:
    with pytest.raises(EvaluationError) as error:
        evaluated(expression, shown, **others)
    return str(error.value)


TRUE = [
    # numbers: an integer of JSON is an int, with a fraction a double; the two compare
    "object.spec.replicas == 3",
    "object.spec.replicas == 3.0",
    "object.spec.replicas < 3.5",
    "object.spec.ratio == 1",
    "object.spec.containers.size() < 2.5 && size(object.spec.numbers) >= 1u && 1u <= 1.0 && 2.5 > 2",
    "-1 < 1u && 18446744073709551615u > -1 && 9223372036854775807 < 1e19 && !(1u > 1.5)",
    "'a' < 'b' && b'a' <= b'b' && false < true && duration('1m') > duration('1s') && timestamp(1) >= timestamp(0)",
    "type(object.spec.replicas) == int",
    "type(object.spec.share) == double",
    "object.spec.replicas / 2 == 1",
    "object.spec.replicas % 2 == 1",
    "int(object.spec.share * 4.0) == 2",
    # int-or-string
    "type(object.spec.max) == string",
    "type(object.spec.port) == int",
    "object.spec.max != 25",
    "dyn(object.spec.port) == 8080 || object.spec.port == 'http'",
    # absent and null are different things
    "!has(object.spec.template)",
    "has(object.spec.paused)",
    "has(object.metadata.annotations)",
    "object.metadata.annotations == null",
    "!has(object.metadata.labels.team)",
    "'app' in object.metadata.labels",
    "!('team' in object.metadata.labels)",
    "object.metadata.labels['app.kubernetes.io/part-of'] == 'shop'",
    "oldObject == null",
    # optional values
    "object.spec.?template.orValue('none') == 'none'",
    "object.?spec.?a.?b.?c.orValue(0) == 0",
    "object.spec.?replicas.hasValue()",
    "object.metadata.labels[?'team'].orValue('nobody') == 'nobody'",
    "object.spec.containers[?5].orValue({'name': 'none'}).name == 'none'",
    "object.spec.?replicas.optMap(n, n * 2).orValue(0) == 6",
    # an error does not matter where the other side decides
    "true || object.spec.missing == 1",
    "object.spec.missing == 1 || true",
    "!(false && object.spec.missing == 1)",
    # macros
    "object.spec.containers.all(c, c.name != '')",
    "object.spec.containers.exists(c, c.name == 'sidecar')",
    "object.spec.containers.exists_one(c, has(c.args))",
    "object.spec.containers.map(c, c.name) == ['app', 'sidecar']",
    "object.spec.containers.filter(c, has(c.resources)).size() == 1",
    "object.spec.containers.map(c, has(c.args), c.args.size()) == [2]",
    "object.spec.empty.all(c, c.x == 1)",
    "!object.spec.empty.exists(c, true)",
    "object.metadata.labels.all(key, key.startsWith('app'))",
    "object.spec.containers.all(i, c, i == 0 || c.name == 'sidecar')",
    "object.metadata.labels.exists(key, value, key == 'app' && value == 'web')",
    "object.metadata.labels.transformList(key, value, key + '=' + value).exists(x, x == 'app=web')",
    # strings
    "'Web-1'.lowerAscii() == 'web-1' && 'web'.upperAscii() == 'WEB'",
    "'a,b,c'.split(',') == ['a', 'b', 'c']",
    "['a', 'b'].join('-') == 'a-b'",
    "'registry/app:1'.substring(9) == 'app:1' && 'tacocat'.substring(0, 4) == 'taco'",
    "'äbc'.substring(1, 3) == 'bc' && 'äbc'.substring(0, 'äbc'.size()) == 'äbc' && 'a'.substring(1) + 'a'.substring(1, 1) == ''",
    "'a.b.a'.replace('a', 'x') == 'x.b.x' && 'a.b.a'.replace('a', 'x', 1) == 'x.b.a'",
    "' web\t'.trim() == 'web'",
    "'web'.charAt(1) == 'e'",
    "'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3 && 'hello'.indexOf('x') == -1",
    "'%s has %d'.format(['web', 3]) == 'web has 3'",
    "size('größe') == 5",
    # regular expressions: RE2, unanchored; find gives '' where there is nothing
    "'registry.example.com/app:1'.matches('^registry\\\\.example\\\\.com/')",
    "matches('xabcx', 'b.')",
    "!'web'.matches('^eb')",
    "'abc 123'.find('[0-9]+') == '123'",
    "'abc 123'.find('xyz') == ''",
    "'img@v12 v3'.find('(v)([0-9]+)') == 'v12'",
    "'123 abc 456'.findAll('[0-9]+') == ['123', '456']",
    "'123 abc 456'.findAll('[0-9]+', 1) == ['123']",
    "'123 abc 456'.findAll('xyz') == []",
    # lists
    "object.spec.numbers.isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
    "object.spec.numbers.sum() == 8 && [1.5, 2.5].sum() == 4.0 && [].sum() == 0",
    "[duration('1s'), duration('1m')].isSorted()",
    "object.spec.numbers.min() == 1 && object.spec.numbers.max() == 3",
    "['b', 'a'].min() == 'a'",
    "[1, 2] + [3] == [1, 2, 3]",
    "[3, 1, 2].sort() == [1, 2, 3]",
    "[1, 1, 2].distinct() == [1, 2]",
    "[[1], [2]].flatten() == [1, 2]",
    "[1, 2, 3].slice(1, 3) == [2, 3]",
    "lists.range(3) == [0, 1, 2]",
    "sets.contains(object.spec.numbers, [3, 1])",
    "sets.equivalent([1, 1, 2], [2, 1])",
    "!sets.intersects(['a'], ['b'])",
    # quantities
    "quantity('1Gi') == quantity('1024Mi')",
    "quantity('500m').isLessThan(quantity('1')) && quantity('1').isGreaterThan(quantity('999m'))",
    "quantity('200M').compareTo(quantity('0.2G')) == 0",
    "quantity('50M').compareTo(quantity('50Mi')) == -1",
    "quantity('50k').add(quantity('20k')) == quantity('70k')",
    "quantity('50k').add(20) == quantity('50020')",
    "quantity('50k').sub(20000) == quantity('30k')",
    "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')",
    "quantity('50k').asInteger() == 50000 && quantity('50k').isInteger()",
    "!quantity('9999999999999999999G').isInteger()",
    "quantity('1500m').asApproximateFloat() > 1 && quantity('1500m').asApproximateFloat() < object.spec.replicas",
    "quantity('1500m').asApproximateFloat() == 1.5 && !quantity('1500m').isInteger()",
    "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
    "isQuantity('1.3Gi') && isQuantity('10000k') && isQuantity('2e3')",
    "!isQuantity('1,3G') && !isQuantity('200K') && !isQuantity('1e') && !isQuantity(' 1') && !isQuantity('')",
    "object.spec.containers.filter(c, has(c.resources)).all(c, quantity(c.resources.limits.memory).compareTo(quantity('2Gi')) < 0)",
    # addresses
    "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
    "isIP('10.0.0.1') && !isIP('10.0.0.256') && !isIP('010.0.0.1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
    "ip('0.0.0.0').isUnspecified() && ip('127.0.0.1').isLoopback()",
    "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
    "ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && !ip('fd80::1').isLinkLocalUnicast()",
    "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast() && !ip('ff00::1').isGlobalUnicast()",
    "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
    "ip('2001:DB8::1') == ip('2001:db8::1')",
    "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
    "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24') && !cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24'))",
    "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')",
    "cidr('192.168.0.1/24') != cidr('192.168.0.1/24').masked()",
    "cidr('::1/128').prefixLength() == 128 && !cidr('10.0.0.0/8').containsIP('::1')",
    "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/255.0.0.0') && !isCIDR('10.0.0.0/08')",
    # URLs
    "url('https://user:pass@example.com:80/path?query=val#fragment').getHost() == 'example.com:80'",
    "url('https://example.com:80/').getHostname() == 'example.com' && url('https://example.com:80/').getPort() == '80'",
    "url('https://[::1]:80/').getHost() == '[::1]:80' && url('https://[::1]:80/').getHostname() == '::1'",
    "url('/path').getScheme() == '' && url('/path').getHost() == '' && url('HTTPS://example.com').getScheme() == 'https'",
    "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
    "url('https://example.com').getEscapedPath() == ''",
    "url('HTTPS://example.com/A') == url('https://example.com/A') && url('/A') != url('/a')",
    "url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
    "url('https://example.com/path?key with spaces=value+with%20spaces').getQuery() == {'key with spaces': ['value with spaces']}",
    "url('https://example.com/path?').getQuery() == {}",
    "url('//host/path').getHost() == 'host' && url('http://[fe80::1%25en0]:8/').getHostname() == 'fe80::1%en0'",
    "!isURL('http://a#b') && !isURL('http://us er@h/') && !isURL('http://a%20b/') && isURL('*')",
    "url('http:///x').getEscapedPath() == '/x' && url('///x').getEscapedPath() == '///x' && isURL('//')",
    "'baac'.findAll('a*') == ['', 'aa', '']",
    "isURL('/absolute-path') && !isURL('../relative-path') && !isURL('https://a:b:c/') && !isURL('')",
    # time
    "duration('1h30m').getMinutes() == 90",
    "timestamp('2026-11-21T10:00:00Z') < timestamp('2026-11-21T10:00:01Z')",
    "timestamp('2026-11-21T10:00:00Z').getFullYear() == 2026",
    # the request
    "request.operation == 'CREATE' && request.userInfo.username == 'jane'",
    "!has(request.name)",
    "has(request.operation) && request.?operation.orValue('') == 'CREATE' && request['operation'] == 'CREATE'",
    # what is null has no fields, as in Kubernetes; a NUL is no null
    "!has(oldObject.spec) && !oldObject.?spec.hasValue() && oldObject.?spec.?x.orValue(1) == 1",
    "!oldObject[?'spec'].hasValue() && !has( namespaceObject . metadata ) && has(object.spec) && object.?spec.hasValue()",
    "object.?oldObject.orValue(1) == 1",
    r"br'\d' == b'\\d' && 'a\\d'.matches(r'^a\\d$')",
    "b'''it's''' == b\"it's\" && 'a//b' == \"a//b\"",
    "1 == 1 // 'not closed\n",
]


@pytest.mark.parametrize("expression", TRUE)
def test_is_true(expression: str) -> None:
    assert evaluated(expression) is True


@pytest.mark.parametrize("expression", TRUE)
def test_its_negation_is_false(expression: str) -> None:
    assert evaluated(f"!({expression})") is False


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
        ("object.spec.replicas.x == 1", "a field is read of what has none: a string, a number, a list or null"),
        ("object.spec.replicas.?x.hasValue()", "no such overload: int ?. string"),
        (
            "object.metadata.annotations['a'] == 1",
            "a field is read of what has none: a string, a number, a list or null",
        ),
        ("duration(object.spec.max) == duration('1s')", "String to Duration conversion failed"),
        ("timestamp(object.spec.max) == timestamp(0)", "String to Timestamp conversion failed"),
        ("object.spec.replicas / 0 == 1", "divide by zero"),
        ("lists.range(-1) == []", "lists.range() of a negative number"),
        ("lists.range(object.spec.empty.size() - 1) == []", "lists.range() of a negative number"),
        ("object.spec.replicas < object.spec.max", "no such overload: int < string"),
        ("object.spec.containers[7].name == ''", "index out of bounds: 7"),
        ("object.spec.replicas.startsWith('3')", "no such overload: (int).startsWith(string)"),
        ("sign(quantity(object.spec.max)) == 1", "'25%' is no quantity"),
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
        ("url('../' + 'x').getHost() == ''", "'../x' is no URL: neither an absolute URI nor an absolute path"),
        ("int(object.metadata.name) == 1", "cannot convert string to int"),
    ],
)
def test_has_no_result(expression: str, why: str) -> None:
    assert failure(expression) == why


@pytest.mark.parametrize(
    "expression",
    [
        "quantity('9223372036854775807').asInteger() == 9223372036854775807 && quantity('1.5Gi').isInteger()",
        "'%f'.format([1]) == '1.000000' && '%s'.format([['a']]) == '[a]' && '%s'.format([{'a': 1}]) == '{a: 1}'",
        "string(timestamp('2026-01-01T01:00:00.5+01:00')) == '2026-01-01T00:00:00.500Z'",
        "string(duration('1.5s')) == '1.500s' && string(1.0/0.0) == 'inf' && ''.split('') == ['']",
    ],
)
def test_differs_from_kubernetes_as_the_page_says(expression: str) -> None:
    assert evaluated(expression) is True


def test_what_is_not_known_is_no_error_of_the_expression() -> None:
    with pytest.raises(EvaluationError) as error:
        evaluated("pools.exists(p, p.name == 'a')", pools=NOT_KNOWN)
    assert error.value.unknown == "pools"
    with pytest.raises(EvaluationError) as error:
        evaluated("request.userInfo.username == 'a'", **{"request.userInfo": NOT_KNOWN})
    assert error.value.unknown == "request.userInfo"


def test_what_is_not_known_does_not_matter_where_something_else_decides() -> None:
    assert evaluated("object.kind == 'Pod' || pools.size() == 0", pools=NOT_KNOWN) is True
    assert evaluated("object.kind == 'X' && pools.size() == 0", pools=NOT_KNOWN) is False
    known = {"namespaceObject": NOT_KNOWN, "namespaceObject.metadata.name": "team-a"}
    assert evaluated("namespaceObject.metadata.name == 'team-a'", **known) is True


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
def test_no_object_can_pass_for_what_is_not_known(expression: str, text: str) -> None:
    with pytest.raises(EvaluationError) as error:
        evaluated(f"dyn({expression}) == dyn(object.labels[object.x])", {"labels": {}, "x": text})
    assert error.value.unknown == ""


def test_a_string_is_not_judged_up_to_its_nul_character() -> None:
    assert failure("object.x == 'a'", HAS_NUL) == "object has a NUL character in it, and can't be judged"


def test_integers_beyond_64_bits_are_an_error() -> None:
    assert "out of range" in failure("object.x > 1", {"x": 1 << 70})
    assert evaluated("object.x > 1", {"x": 1 << 63}) is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("{'a': 1}.transformMap(k, v, v) == {}", "neither transformMap() nor transformMapEntry() is there"),
        ("{'a': request}.transformMap(k, v, v) == {}", "neither transformMap() nor transformMapEntry() is there"),
        ("math.abs(-1) == 1", "there is no `math`"),
        ("semver('1.0.0').major() == 1", "there is no `semver`"),
        (
            "authorizer.group('').resource('pods').check('get').allowed()",
            "there is no `authorizer`",
        ),
        ("base64.encode(b'a') == ''", "there is no `base64`"),
        ("ip('::1').add(quantity('1')) == quantity('1')", None),
        ("pools.name == 'a'", None),
        ("request.?options.hasValue()", None),
        ("'a' == " + "'a' + " * 2000 + "'a'", "with what it is bound to it has more than 10000 characters"),
    ],
)
def test_is_refused_before_it_runs(expression: str, problem: str | None) -> None:
    with pytest.raises(ExpressionError) as error:
        language().compile(Text(expression).text, bool, {})
    assert problem is None or str(error.value) == problem


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("cel.bind(x, 1, x == 1)", "`cel.bind` is not in Kubernetes: name the value among `variables`"),
        ("variables == {}", "`variables` is no value of its own: write variables.<name>"),
        ("variables_a == 1", "`variables_a` is reserved: write variables.a"),
        ("'a'.Matches('a')", "there is no `Matches`"),
        ("Has(request.userInfo)", "there is no `Has`"),
    ],
)
def test_the_text_has_only_kubernetes_words(expression: str, problem: str) -> None:
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
def test_names_are_bound_and_everything_stays_in_its_place(expression: str, text: str) -> None:
    assert Text(expression).text == text


def test_bound_names_are_evaluated_where_they_are_read() -> None:
    bound = {"variables_a": "1 / 0", "variables_b": "2"}
    expression = language().compile("variables_b == 2 || variables_a == 1", bool, bound)
    assert expression.evaluate(values(OBJECT)) is True
    expression = language().compile("variables_a == 1", bool, bound)
    with pytest.raises(EvaluationError, match="divide by zero"):
        expression.evaluate(values(OBJECT))


def test_names_tell_what_an_expression_reads() -> None:
    expression = language().compile("object.kind == 'Pod' && pools.exists(p, p.name == 'a')", bool, {})
    assert expression.names == {"object", "pools"}
    expression = language().compile("namespaceObject.metadata.name == 'a'", bool, {})
    assert expression.names == {"namespaceObject.metadata.name"}


def test_nulls_do_not_wear_out_the_interpreter() -> None:
    """The library has no reference of its own to a null that is taken out of it: nobody may take one out."""
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
    gc.collect()  # of other tests
    before = sys.getrefcount(None)
    for _ in range(2000):
        for expression in expressions:
            try:
                expression.evaluate(shown)
            except EvaluationError:
                continue
    assert sys.getrefcount(None) - before > -1000


def test_what_is_read_is_told_by_its_path_and_as_it_is_written() -> None:
    text = "object.spec.containers.filter(c, has(c.env)).all(c, c.env.exists(e, e.name == 'A')) && 'a' in object.labels['a/b']"
    paths = language().compile(text, bool, {}).paths
    containers = ("object", "spec", "containers")
    assert paths[*containers] == "object.spec.containers"
    assert paths[*containers, None, "env", None, "name"] == "e.name"
    assert paths["object", "labels", "a/b"] == "object.labels['a/b']"


@pytest.mark.parametrize("field", ["request.userInfo", "namespaceObject.metadata.name"])
def test_a_field_that_is_a_name_is_there_where_it_is_known(field: str) -> None:
    known = {"namespaceObject": NOT_KNOWN, "namespaceObject.metadata.name": "team-a"}
    assert evaluated(f"has({field})", **known) is True
    assert evaluated(f"!has({field})", **known) is False
    assert evaluated(f"has ( {field.replace('.', ' . ')} ) && true", **known) is True
