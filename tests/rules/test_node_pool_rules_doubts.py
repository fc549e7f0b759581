"""What JMESPath of `NodePoolRules` can't be meant is a warning when it is loaded, with what to write."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
import yaml

from webhook.bundle import SHIPPED, load_bundle
from webhook.capacity.query import problem_with
from webhook.lint import warnings
from webhook.rules.node_pool_rules_doubts import doubts

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {"spec.n": "integer", "spec.s": "string", "spec.b": "boolean", "spec.o": "object"}
NO_OBJECT = "there is no field `object`: paths begin below it, as spec.targetNodes does"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('spec.s == "spot"', "\"spot\" is the field of this name: a text is written in single quotes, 'spot'"),
        ('spec.s != "on-demand"', '"on-demand" is the field of this name: a text is written in single quotes'),
        ('"spot" == spec.s', '"spot" is the field of this name'),
        ('spec.l[?name == "x"]', '"x" is the field of this name'),
        ("spec.b == true", "true is the field of this name: write it in backticks, `true`"),
        ("spec.l[?a != null]", "null is the field of this name: write it in backticks, `null`"),
        ("object.spec.n", NO_OBJECT),
        ("!object.spec.n && length(object.spec.l) > `2`", NO_OBJECT),
        ("object.spec.l[?a]", NO_OBJECT),
        ("spec.n == '2'", "spec.n is an integer, and is compared with a string, '2': write `2`"),
        ("'2' == spec.n", "spec.n is an integer, and is compared with a string, '2': write `2`"),
        ("spec.n > '10%'", "spec.n is an integer, and is compared with a string, '10%'"),
        ("spec.s == `570`", "spec.s is a string, and is compared with an integer, `570`: write '570'"),
        ("spec.s == `true`", "spec.s is a string, and is compared with a boolean, `true`: write 'true'"),
        ("spec.b == 'true'", "spec.b is a boolean, and is compared with a string, 'true': write `true`"),
        ("spec.b == `1`", "spec.b is a boolean, and is compared with an integer, `1`"),
    ],
)
def test_what_can_not_be_meant_is_told_with_what_to_write(text: str, said: str) -> None:
    (found,) = doubts(text, TYPES)
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "spec.s == 'spot' || spec.n > `2` || spec.b == `true` || spec.n == `2.5` || spec.n == `null`",
        'spec.labels."a/b" == \'x\' || "spec"."s" == \'x\'',
        "spec.l[?\"a/b\" == 'x'] | [0:2]",
        "spec.l[?object.spec == 'x'].object.n",
        "spec.object == spec.s || metadata.true",
        "spec.o == 'x' || other == '2' || contains(spec.s, 'true')",
        "length(spec.s) == '2'",
    ],
)
def test_what_may_be_meant_is_not(text: str) -> None:
    assert not list(doubts(text, TYPES))


POLICY = """
apiVersion: spotgate.dev/v1
kind: NodePoolRules
metadata: {name: rules}
spec:
  resources:
    - group: compute.coreweave.com
      resource: nodepools
      fields:
        - {path: spec.gpu.version, type: string}
        - {path: object.spec.image, type: object}
      checks:
        - {when: spec.a, fields: [spec.a, object.spec.b], message: m}
        - {when: spec.gpu.version == `570`, fields: [spec.a], message: m}
        - {when: spec.targetNodes == '2', fields: [spec.a], message: m}
        - {when: spec.targetNodes == '3', fields: [spec.a], message: m, enforcement: "off"}
"""


def test_warnings_are_at_the_expression_and_know_what_is_declared_and_the_size_of_a_pool(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(POLICY)
    found = warnings(load_bundle([tmp_path]), date(2026, 1, 1))
    assert [(each.field.removeprefix("spec.resources[0]."), each.text) for each in found] == [
        ("fields[1].path", f"warning: {NO_OBJECT}"),
        ("checks[0].fields[1]", f"warning: {NO_OBJECT}"),
        (
            "checks[1].when",
            "warning: spec.gpu.version is a string, and is compared with an integer, `570`: write '570'",
        ),
        ("checks[2].when", "warning: spec.targetNodes is an integer, and is compared with a string, '2': write `2`"),
    ]


def test_nothing_is_said_of_the_policies_that_ship() -> None:
    texts = [
        check["when"]
        for document in yaml.safe_load_all((SHIPPED / "node-pool-rules.yaml").read_text())
        for resource in document["spec"]["resources"]
        for check in resource.get("checks", ())
    ]
    assert len(texts) > 20
    assert [said for text in texts for said in doubts(text, {})] == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("spec.n > 10", "; numbers are written in backticks, `10`"),
        ("-1 < spec.n", "; numbers are written in backticks, `-1`"),
        ("spec.n >", ""),
        ("spec.n = `1`", ""),
    ],
)
def test_a_number_that_is_no_jmespath_is_told_how_to_be_written(text: str, hint: str) -> None:
    said = problem_with(text)
    assert said
    assert said.partition("; numbers")[1:] == ((hint[:9], hint[9:]) if hint else ("", ""))
