"""Values match those of kubectl: sigs.k8s.io/yaml and Kubernetes' JSON decoder give the same for each text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.documents import DocumentError, read_documents
from webhook.documents.yaml_writer import dump, dump_on_one_line

if TYPE_CHECKING:
    from webhook.documents import JSONValue


YES = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"]
NO = ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"]


def read(text: str) -> list[JSONValue]:
    return [document.value for document in read_documents(text.encode(), "f.yaml")]


def one(text: str) -> Any:
    (value,) = read(text)
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in YES),
        *((word, False) for word in NO),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *(
            (word, word)
            for word in ("yEs", "tRue", "nULL", "NaN", "inf", "Infinity", "=", "<<", "+", "--1", "1.2.3", "1 2")
        ),
        *((word, word) for word in ("12:30:45", "2001-12-14", "2001-12-14T21:59:43Z", "250m", "25%", "1-2", "1\u0663")),
        ("0", 0),
        ("-1", -1),
        ("+1", 1),
        ("1_000", 1000),
        ("0777", 511),
        ("0o777", 511),
        ("0O17", 15),
        ("0_7", 7),
        ("08", 8),
        ("09.5", 9.5),
        ("0o8", "0o8"),
        ("0x1F", 31),
        ("-0X1f", -31),
        ("0x", "0x"),
        ("0b101", 5),
        ("-0B11", -3),
        ("0b2", "0b2"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.5e-3", -0.0005),
        ("1.", 1),
        ("1.0", 1),
        ("-0.0", 0),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1e", "1e"),
        ("1e400", "1e400"),
        ("1e-400", 0),
        ("1e18", 10**18),
        ("1e20", 1e20),
        ("1.2345678901234567e17", 123456789012345660),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2.0**63),
        ("-9223372036854775809", -(2.0**63)),
        ("0xFFFFFFFFFFFFFFFF", 2.0**64),
        ("0xFFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFFF"),
        ("07777777777777777777777777", 7777777777777777777777777.0),
        ("1" + "0" * 5000, "1" + "0" * 5000),
        ("'y'", "y"),
        ('"0777"', "0777"),
        ('""', ""),
        ("!!str 5", "5"),
        ("!!str", ""),
        ("! 5", "5"),
        ('!!int "5"', 5),
        ("!!float 1", 1),
        ('!!bool "yes"', True),
        ("!!null ''", None),
        ("!!timestamp 2001-12-14", "2001-12-14"),
        ("!!map {b: 1}", {"b": 1}),
        ("!!seq [1]", [1]),
        ("|\n  b\n  c", "b\nc\n"),
        (">-\n  b\n  c", "b c"),
        ("b\n  c", "b c"),
    ],
)
def test_a_scalar_reads_as_kubectl_reads_it(text: str, value: JSONValue) -> None:
    got = one(f"a: {text}")["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("1", "1"),
        ("0x10", "16"),
        ("-1", "-1"),
        ("true", "true"),
        ("no", "false"),
        ("2001-12-14", "2001-12-14"),
        ("'1e3'", "1e3"),
        ("!!str 0x10", "0x10"),
        ("? a\n", "a"),
    ],
)
def test_a_key_becomes_the_same_text_as_in_kubectl(key: str, name: str) -> None:
    assert one(f"{key}: x") == {name: "x"}


@pytest.mark.parametrize("key", ["null", "~", "1.10", "18446744073709551615", ".inf", "[a]", "{a: 1}", "*list"])
def test_a_key_without_a_text_form_is_rejected(key: str) -> None:
    with pytest.raises(DocumentError, match=r"^f\.yaml:2:1: .* can't be a key"):
        read(f"a: &list [1]\n{key} : x\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x {k: 1}\nb: *x\n", {"a": {"k": 1}, "b": {"k": 1}}),
        ("a: &x 5\n*x : b\n", {"a": 5, "5": "b"}),
        ("a: &x 1\nb: &y [*x]\nc: &x 2\nd: *y\ne: *x\n", {"a": 1, "b": [1], "c": 2, "d": [1], "e": 2}),
        ("a: &x\nb: *x\n", {"a": None, "b": None}),
        ("b:\n  <<: {k: 1, j: 2}\n  k: 9\n", {"b": {"k": 9, "j": 2}}),
        ("b:\n  k: 9\n  <<: {k: 1}\n", {"b": {"k": 1}}),
        ("b:\n  <<: [{k: 1}, {k: 2, z: 3}]\n", {"b": {"k": 1, "z": 3}}),
        ("b:\n  <<: {k: 1}\n  <<: {k: 2}\n", {"b": {"k": 2}}),
        ("a: &x {k: {z: 1}}\nb:\n  <<: *x\n", {"a": {"k": {"z": 1}}, "b": {"k": {"z": 1}}}),
        ("b:\n  '<<': 1\n", {"b": {"<<": 1}}),
        ("a: &x {k: 1}\nb:\n  !!merge <<: *x\n  j: 2\n", {"a": {"k": 1}, "b": {"k": 1, "j": 2}}),
        ("b: {!!merge <<: [{k: 1}], j: 2}\n", {"b": {"k": 1, "j": 2}}),
    ],
)
def test_anchors_and_merge_keys_expand_as_in_go(text: str, value: JSONValue) -> None:
    assert one(text) == value


def test_an_alias_is_a_copy() -> None:
    value = one("a: &x {k: [1]}\nb: *x\nc:\n  <<: *x\n")
    value["a"]["k"].append(2)
    assert value == {"a": {"k": [1, 2]}, "b": {"k": [1]}, "c": {"k": [1]}}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# nothing\n", []),
        ("a: 1\n---\n---\n# nothing\n---\nnull\n---\nb: 2\n...\n---\nc: 3\n", [{"a": 1}, {"b": 2}, {"c": 3}]),
        ("--- {a: 1}\n--- # comment\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1\n", [{"a": 1}]),
        ("a: |\r\n  x\r\n  y\r\n---\r\nb: 2\r\n", [{"a": "x\ny\n"}, {"b": 2}]),
        ("foo", ["foo"]),
        ('{"a": 1.0, "b": 1e3, "c": 1.5}', [{"a": 1, "b": 1000, "c": 1.5}]),
        ('\ufeff {"a":1}{"b":2}\n\t{"c":3}\n', [{"a": 1}, {"b": 2}, {"c": 3}]),
        ('{"a":1}\n---\n{"b":2}\n---\nc: y\n', [{"a": 1}, {"b": 2}, {"c": True}]),
        ('{"a": 9223372036854775808}', [{"a": 2.0**63}]),
        ('{"a": "\\ud83d\\ude00 \\\\ud800 \x7f"}', [{"a": "\U0001f600 \\ud800 \x7f"}]),
        ("{a: y, b: [n]}", [{"a": True, "b": [False]}]),
        ('{"a": 1,}', [{"a": 1}]),
        ("[1, y]", [[1, True]]),
        ('{"a": 1} null', [{"a": 1}]),
    ],
)
def test_a_file_holds_any_number_of_documents(text: str, values: list[JSONValue]) -> None:
    assert read(text) == values


TEXTS = st.text(max_size=20) | st.sampled_from(
    ["y", "no", "~", "08", "1e3", "0o7", "<<", "12:30", "- a", "{{ a }}", "#"]
)
FLOATS = st.floats(-(2.0**53), 2.0**53) | st.floats(2.0**63, 1e308)  # values in between become other integers in Go
NUMBERS = st.integers(-(2**63), 2**63 - 1) | FLOATS
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXTS, JSON, max_size=4), st.sampled_from([None, 2]), st.booleans())
def test_json_round_trips(value: dict[str, JSONValue], indent: int | None, ascii_only: bool) -> None:  # noqa: FBT001
    assert read(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == [value]


# No YAML form of a multiline key is accepted by every parser.
KEYS = st.sampled_from(YES) | TEXTS.filter(lambda text: not re.search("[\n\r\x85\u2028\u2029]", text))


@example({"a": "b\x85c", "d\x85e": "\x85\n"})
@example({"a": "b\n\n", "c": ["\n", "d\n\u2028"]})
@given(st.dictionaries(KEYS, st.sampled_from(NO) | TEXTS | NUMBERS | st.lists(TEXTS), max_size=4))
def test_pretty_yaml_round_trips(value: dict[str, JSONValue]) -> None:
    assert read(dump(value)) == [value]
    assert read(dump_on_one_line(value)) == [value]
    assert "\n" not in dump_on_one_line(value)


# PyYAML quotes the words of YAML 1.1; default_style quotes text that only kubectl converts (y, 08, 1e3).
@given(st.dictionaries(TEXTS, JSON, max_size=4), st.booleans(), st.booleans())
def test_yaml_round_trips(value: dict[str, JSONValue], flow: bool, unicode: bool) -> None:  # noqa: FBT001
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=unicode, default_style='"')
    assert read(text) == [value]
