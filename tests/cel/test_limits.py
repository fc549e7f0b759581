"""Slow expressions are rejected before evaluation; realistic ones on realistic objects are not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.capacity.view import ClusterView
from webhook.cel import language
from webhook.cel.errors import EvaluationError, ExpressionError
from webhook.cel.sizes import Measured
from webhook.cel.text import Text
from webhook.model.decision import NO_TRACE
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.rules.context import Context, Phase
from webhook.rules.subject import Subject
from webhook.rules.validation.rule import values_of

if TYPE_CHECKING:
    from webhook.cel.library import Values
    from webhook.cel.limits import Cost

JSON = dict[str, Any]

TOO_LONG = "it takes too long on this object"


def compiled(expression: str, bound: dict[str, str] | None = None) -> Any:
    text = Text(expression)
    return language().compile(text.text, bool, {**text.bound, **(bound or {})})


def values(shown: JSON, pools: list[JSON] | None = None, **of: Any) -> Values:
    known = {"object": shown, "oldObject": None, "request": {}, "namespaceObject": None, "pools": pools or []}
    return language().values(known, **of)


def rejected(expression: str, over: Values, times: int = 1, bound: dict[str, str] | None = None) -> int:
    """Return how many of these evaluations exceed the budget."""
    ready, refusals = compiled(expression, bound), 0
    for _ in range(times):
        try:
            ready.evaluate(over)
        except EvaluationError as error:
            refusals += str(error).startswith(TOO_LONG)
    return refusals


# Hostile objects

NUMBERS = list(range(9_900))
WORDS = [f"w{number}" for number in NUMBERS]
HOSTILE: JSON = {
    "numbers": NUMBERS,
    "floats": [number + 0.5 for number in NUMBERS],
    "words": WORDS,
    "lists": [[number, "a"] for number in range(5000)],
    "text": " ".join(WORDS),
    "long": "a" * 400_000,
    "other": "a" * 200_000 + "b",
    "map": dict.fromkeys(WORDS, "v"),
}


@pytest.mark.parametrize(
    "expression",
    [
        # all pairs
        "object.words.all(x, x in object.words)",
        "object.lists.distinct().size() > 0",
        "object.floats.distinct().size() > 0",
        "sets.contains(object.words, object.words)",
        "sets.intersects(object.words, object.numbers)",
        "object.lists.all(x, object.lists == object.lists)",
        "object.lists.all(x, object.lists.isSorted())",
        "object.words.all(x, object.words.sum() == 0)",
        # lists copied for each item
        "object.words.map(x, x).size() > 0",
        "object.words.filter(x, true).size() > 0",
        "object.words.sortBy(x, x).size() > 0",
        "object.map.transformList(k, v, k).size() > 0",
        "object.numbers.filter(x, x < 99).map(x, object.words).flatten().filter(x, true).size() > 0",
        "object.text.split(' ').map(x, x).size() > 0",
        "object.text.lowerAscii().split(' ').map(x, x).size() > 0",
        "object.text.findAll('[0-9]').map(x, x).size() > 0",
        "lists.range(size(object.words)).map(i, i).size() > 0",
        "[object.words].map(l, l.map(x, x)).size() > 0",
        "(object.words + object.words).map(x, x).size() > 0",
        "{'a': object.words}.a.map(x, x).size() > 0",
        "object.?words.orValue([]).map(x, x).size() > 0",
        # strings
        "object.long.contains(object.other)",
        "object.words.all(x, object.long.indexOf(x) < 0)",
        "object.words.all(x, object.long.replace('b', x).size() > 0)",
        "object.words.all(x, object.long.trim() != x)",
        "object.words.all(x, (object.long + x).size() > 0)",
        f"object.text.replace(' ', '{'x' * 9000}').size() > 0",
        f"object.words.join('{'x' * 9000}').size() > 0",
        # values in the policy
        f"object.words.all(x, !(x in [{', '.join(['1'] * 2000)}]))",
        f"object.words.all(x, [{', '.join(['x'] * 2000)}].size() > 0)",
        f"object.words.all(x, {{{', '.join(f'{n}: x' for n in range(900))}}}.size() > 0)",
        "lists.range(9000).all(i, object.words.size() > i && object.words == object.words)",
    ],
)
def test_it_is_rejected_on_a_hostile_object_but_not_on_a_small_one(expression: str) -> None:
    assert rejected(expression, values(HOSTILE)) == 1
    small = {key: value[:20] if isinstance(value, list | str) else {"a": "b"} for key, value in HOSTILE.items()}
    if not expression.startswith("lists.range(9000)"):
        assert rejected(expression, values(small), 10) == 0


def test_a_negative_number_refunds_no_cost() -> None:
    over = values(HOSTILE)
    expensive = "object.words.distinct().size() > 0"
    assert rejected(expensive, over) == 1
    assert rejected("lists.range(-9000000000000).size() == 0", over) == 0
    assert rejected(expensive, over) == 1


def test_params_count_with_their_length() -> None:
    bound = {"params": json.dumps({"big": ["x" * 3] * 1200})}
    assert rejected("object.numbers.all(n, !(n in params.big))", values(HOSTILE), 20, bound) > 0
    assert rejected("object.numbers.all(n, !(n in params.big))", values({"numbers": NUMBERS[:30]}), 20, bound) == 0


def test_repeating_a_value_is_counted_by_its_size() -> None:
    expression = f"[object].{'.'.join(['map(x, [x, x])'] * 7)} == [object].{'.'.join(['map(x, [x, x])'] * 7)}"
    assert rejected(expression, values({"a": 1})) == 0
    assert rejected(expression, values(HOSTILE)) == 1


def test_calls_are_counted_while_they_are_made() -> None:
    assert rejected("object.words.all(x, x.matches('^w'))", values(HOSTILE)) == 0
    assert 0 < rejected("object.words.all(x, x.matches('^w'))", values(HOSTILE), 10) < 10


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("'a'.matches('[')", "invalid regular expression: missing ]: ["),
        ("'a'.matches(object.x)", "the pattern of matches() must be a literal"),
        ("'a'.find('a' + 'b') == ''", "the pattern of find() must be a literal"),
        (f"'a'.matches('{'a' * 1001}')", "the pattern of matches() has more than 1000 characters"),
        *(
            (
                f"lists.range({count}).size() == 1",
                "lists.range() takes a literal of at most 10000 or a size(), not an object's value",
            )
            for count in ("object.n", "1000000000", "size(object.l) * 2", "int(object.n)")
        ),
    ],
)
def test_an_unbounded_expression_is_rejected_at_compile_time(expression: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compiled(expression)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("lists.range(101).all(a, lists.range(100).all(b, true))", "may take more than 10,000 rounds on every object"),
        ("object.a || lists.range(200).exists(a, lists.range(60).exists(b, b > a))", "more than 10,000 rounds"),
        ("lists.range(4000).map(i, i).size() > 0", "may take more than 400 ms on every object"),
        ("lists.range(99).all(a, lists.range(99).all(b, true))", ""),
        (f"{{{', '.join(f'{n}: {n}' for n in range(98))}}}.all(a, lists.range(99).all(b, true))", ""),
        ("object.a.all(a, object.a.all(b, object.a.all(c, lists.range(9000).size() > 0)))", ""),
    ],
)
def test_an_expression_too_costly_on_any_object_is_rejected_at_compile_time(expression: str, problem: str) -> None:
    if not problem:
        assert rejected(expression, values({"a": [1]})) == 0
        return
    with pytest.raises(ExpressionError, match=problem):
        compiled(expression)


# One budget


def test_all_expressions_on_one_object_share_one_budget() -> None:
    some = values({"l": NUMBERS[:900]})
    expression = "object.l.map(x, x).size() == 900"
    assert 0 < rejected(expression, some, 20) < 20
    assert rejected(expression, values({"l": NUMBERS[:900]}, like=some)) == 1
    assert rejected(expression, values({"l": NUMBERS[:900]})) == 0


def test_a_part_of_an_object_has_a_share_of_the_budget() -> None:
    part = {"l": NUMBERS[:900]}
    expression = "object.l.map(x, x).size() == 900"
    assert rejected(expression, values(part, part_of=4_000), 2) == 0
    assert rejected(expression, values(part, part_of=400_000), 2) == 2
    template = subject_of({"l": NUMBERS[:900], "x": "x" * 400_000})
    template.template, template.object = True, part
    assert rejected(expression, values_of(template, CONTEXT, language(), pools=False), 2) == 2


CONTEXT = Context(phase=Phase.VALIDATE, now=datetime.now(UTC), view=ClusterView(pools=()))


def subject_of(value: JSON) -> Subject:
    raw = msgspec.Raw(json.dumps(value).encode())
    pods = GroupVersionResource("", "v1", "pods")
    return Subject(Request(uid="u", operation="CREATE", kind=GroupVersionKind(), resource=pods, object=raw), NO_TRACE)


def test_expressions_with_and_without_pools_have_the_same_budget() -> None:
    subject = subject_of({"l": NUMBERS[:900]})
    expression = "object.l.map(x, x).size() == 900"
    assert 0 < rejected(expression, values_of(subject, CONTEXT, language(), pools=False), 20) < 20
    assert rejected(expression, values_of(subject, CONTEXT, language(), pools=True)) == 1


def test_node_pools_are_measured_once_for_all_objects() -> None:
    pools: list[JSON] = [{"name": "gpu-spot"}]
    one, again, changed = (language().values({"pools": value}) for value in (pools, pools, [*pools]))
    assert one.pools is again.pools is not changed.pools


# Realistic expressions and objects


def container(number: int, variables: int) -> JSON:
    return {
        "name": f"app-{number}",
        "image": f"registry.example.com/team/app-{number}:1.{number}",
        "args": ["--listen=:8080", "--v=2"],
        "env": [{"name": f"NAME_{number}", "value": f"value of {number}"} for number in range(variables)],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": f"v{number}", "mountPath": f"/v{number}"} for number in range(3)],
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
    }


def large_pod(containers: int, variables: int) -> JSON:
    spec = {
        "containers": [container(number, variables) for number in range(containers)],
        "volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(5)],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(spec)}
    metadata = {"name": "web", "labels": {"team": "shop", "app": "web"}, "annotations": applied}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def properties(depth: int) -> JSON:
    if not depth:
        return {"type": "string", "description": "what it is, in some words, and in some more"}
    return {"type": "object", "properties": {f"field{number}": properties(depth - 1) for number in range(8)}}


CRD: JSON = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "foos.example.com", "labels": {"team": "shop"}},
    "spec": {"versions": [{"name": f"v{number}", "schema": properties(4)} for number in range(1)]},
}
CONFIG: JSON = {
    "kind": "ConfigMap",
    "metadata": {"name": "big", "labels": {"team": "shop"}},
    "data": {"one.conf": "".join(f"key{line} = some, text\n" for line in range(40_000)), "two.conf": "a = b"},
}
OF_PODS = [
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "(object.spec.containers + object.spec.?initContainers.orValue([])).map(c, c.image).filter(i, i.endsWith(':latest')).size() == 0",
    "object.spec.containers.map(c, c.image.split('/')[0]).distinct().size() == 1",
    "object.spec.containers.map(c, c.name).distinct().size() == object.spec.containers.size()",
    "object.spec.containers.all(c, c.env.all(e, !e.?value.orValue('').contains('password')))",
    "object.spec.containers.all(c, c.volumeMounts.all(m, object.spec.volumes.exists(v, v.name == m.name)))",
    "object.spec.containers.all(c, c.args.map(a, a.split('=')[0]).all(a, a.startsWith('--')))",
    "object.spec.containers.all(c, object.spec.containers.exists_one(d, d.name == c.name))",
    "object.spec.containers.all(c, c.resources.limits.memory == c.resources.requests.memory)",
    "object.spec.containers.sortBy(c, c.name)[0].name != ''",
]
OF_ANY = [
    "object.metadata.?labels[?'team'].orValue('') != ''",
    "object.metadata.labels.all(k, v, v.size() < 64)",
    "object.metadata.name.matches('^[a-z0-9.-]+$')",
    "object.metadata.?annotations[?'owners'].orValue('a,b').split(',').map(o, o.trim()).all(o, o != '')",
    "['team', 'app'].filter(l, !(l in object.metadata.labels)).map(l, 'label ' + l).join(', ') != 'x'",
]
OF_CONFIG = ["object.data.all(k, v, !v.contains('PRIVATE KEY'))", "object.data.all(k, v, v.size() < 1000000)"]
OF_CRD = [
    "object.spec.versions.map(v, v.name).distinct().size() == object.spec.versions.size()",
    "object.spec.versions.all(v, v.schema.properties.all(k, k.startsWith('field')))",
]


@pytest.mark.parametrize(
    ("shown", "expressions"),
    [
        (large_pod(6, 12), OF_PODS + OF_ANY),
        (large_pod(60, 40), OF_PODS + OF_ANY),
        (CONFIG, OF_CONFIG + OF_ANY),
        (CRD, OF_CRD + OF_ANY),
    ],
    ids=["a Pod", "60 containers with 40 variables each", "a ConfigMap of 900 KB", "a CRD of 300 KB"],
)
def test_a_hundred_validations_fit_the_budget(shown: JSON, expressions: list[str]) -> None:
    over = values(shown)
    ready = [compiled(text) for text in expressions]
    for number in range(100):
        assert ready[number % len(ready)].evaluate(over) is True


# The estimate by size


json_values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text("ab,", max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=40,
)


@cache
def cost_of(expression: str) -> Cost:
    cost: Cost = compiled(expression).cost
    return cost


@pytest.mark.parametrize(
    "expression",
    [
        "object.a.all(x, x.b.exists(y, y == object.c) && x.c in object.b)",
        "(object.a + object.?b.orValue([])).map(x, x.c.split(',')[0]).distinct().size() > 0",
        "object.a.filter(x, x.size() > 1).map(x, [x, x.b]).flatten().size() > 0",
        "lists.range(size(object.a)).all(i, object.a[i].matches('a') || object.b.join(object.c) != '')",
    ],
)
@given(st.dictionaries(st.sampled_from("abc"), json_values))
def test_the_estimate_by_size_is_never_below_the_cost_by_fields(expression: str, shown: JSON) -> None:
    cost, measured = cost_of(expression), Measured({"object": shown})
    by_size = cost.of(tuple(measured.whole for _ in cost.paths))
    assert by_size >= cost.of(tuple(map(measured.at, cost.paths)))
