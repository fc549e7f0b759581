"""Errors of unreadable files: problem, position, and fix, and never a crash."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.documents import Document, DocumentError, DocumentLimits, read_documents

IN_THE_LINE_BELOW = "write `expression: >-`, and the expression in the line below it"
SYNTAX = "correct the indentation, quotes or brackets there or just above"
TABS = "indent with spaces: YAML takes no tabs there"
TEMPLATE = "render it first, with 'helm template' for example, and pass the result"


def error(text: str | bytes, limits: DocumentLimits | None = None) -> str:
    with pytest.raises(DocumentError) as caught:
        read_documents(text.encode() if isinstance(text, str) else text, "f.yaml", limits=limits or DocumentLimits())
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", '5:3: duplicate key "c", first at f.yaml:3; keep one of the two'),
        ("1: a\n'1': b\n", '2:1: duplicate key "1", first at f.yaml:1; keep one of the two'),
        ("a: {b: 1, b: 2}\n", '1:11: duplicate key "b", first at f.yaml:1; keep one of the two'),
        ('{"a": {"b": 1,\n "b": 2}}', '2:2: duplicate key "b", first at f.yaml:1; keep one of the two'),
        ("a: 1\n---\nb: 1\nb: 2\n", '4:1: duplicate key "b", first at f.yaml:3; keep one of the two'),
        ("a: !foo x\n", "1:4: Kubernetes doesn't support tag '!foo'; remove it"),
        ("a: !!set {x}\n", "1:4: Kubernetes doesn't support tag 'tag:yaml.org,2002:set'; remove it"),
        ("a: !!str [x]\n", "1:4: Kubernetes doesn't support tag 'tag:yaml.org,2002:str'; remove it"),
        ("a: !!binary aGk=\n", "1:4: Kubernetes doesn't support tag 'tag:yaml.org,2002:binary'; remove it"),
        ("- expression: !has(x)\n", f"1:15: Kubernetes doesn't support tag '!has(x)'; {IN_THE_LINE_BELOW}"),
        ("- expression: 'a' in object.x\n", f"1:19: did not find expected key while parsing a block mapping; {IN_THE_LINE_BELOW}"),
        ("  messageExpression: >- 'a'\n", "1:25: did not find expected comment or line break while scanning a block scalar; "
            + IN_THE_LINE_BELOW.replace("expression:", "messageExpression:")),
        ("a: !!int x\n", "1:4: Kubernetes doesn't support tag 'tag:yaml.org,2002:int'; remove it"),
        ("a: !!bool 1\n", "1:4: Kubernetes doesn't support tag 'tag:yaml.org,2002:bool'; remove it"),
        ("a: .nan\n", "1:4: nan isn't JSON; write a finite number, or quote it"),
        ("a: [1, -.inf]\n", "1:8: -inf isn't JSON; write a finite number, or quote it"),
        ("null: 1\n", "1:1: null can't be a key; quote it"),
        ("? [a]\n: b\n", f"1:3: a map or a list can't be a key; {SYNTAX}"),
        ("a: *x\n", "1:4: no anchor '&x' above; define it, or quote the text if it isn't an alias"),
        ("a: &x 1\n---\nb: *x\n", "3:4: no anchor '&x' above; define it, or quote the text if it isn't an alias"),
        ("a: &x {b: [*x]}\n", "1:12: anchor '&x' contains itself; remove the alias"),
        ("a: 1\nb:\n  <<: 1\n", "3:7: '<<' takes a map or a list of maps; name maps, or quote the key"),
        (
            "a: &x [{b: 1}]\n<<: *x\n",
            "2:5: '<<' takes a map or a list of maps; name maps, or quote the key",
        ),
        (
            "a:\n\tb: 1\n",
            f"2:1: found character that cannot start any token while scanning for the next token; {TABS}",
        ),
        ("a: b: c\n", f"1:5: mapping values are not allowed in this context; {SYNTAX}"),
        ("a: [1\nb: 2\n", f"2:2: did not find expected ',' or ']' while parsing a flow sequence; {SYNTAX}"),
        ("a: é\x01\n", "1:5: control characters are not allowed: U+0001; escape it, in double quotes"),
        ("a: \0\n", "1:4: control characters are not allowed: U+0000; save the file as UTF-8: it is UTF-16, or no text"),
        (b"a: 1\nb: x\xff\n", "2:5: the file is not UTF-8; save it as UTF-8, or leave it out if it isn't text"),
        (
            "\ufeffa: 1\n---\n\ufeffb: 2\n",
            "3:1: the line begins with a byte order mark; remove it; to join files, save them as UTF-8 without one",
        ),
        ("a: 1\rb: 2\r", "1:1: its lines end with carriage returns; save it with LF or CRLF line ends"),
        ("a: 1\n".encode("utf-16"), "1:1: the file is UTF-16; save it as UTF-8 (PowerShell's '>' writes UTF-16)"),
        (
            '{"a": "\\ud800"}',
            f"1:10: found invalid Unicode character escape code while parsing a quoted scalar; {SYNTAX}",
        ),
    ],
)  # fmt: skip
def test_an_error_states_problem_place_and_fix(text: str | bytes, message: str) -> None:
    assert error(text) == f"f.yaml:{message}"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("metadata:\n  name: {{ .Values.name }}\n", "2:10"),
        ("{{- if .Values.on }}\na: 1\n{{- end }}\n", "1:3"),
        ("a:\n  {{- toYaml .Values.a | nindent 2 }}\n", "2:5"),
        ("a: 1\n{% if x %}\nb: 2\n", "2:2"),
        ("a: 1\n%{ if x }\nb: 2\n%{ endif }\n", "2:2"),
    ],
)
def test_a_template_is_recognized(text: str, position: str) -> None:
    message = error(text)
    assert message.startswith(f"f.yaml:{position}: ")
    opened = re.search(r"[{%]{2}", text)
    assert opened is not None
    assert f": this looks like a template ('{opened[0]} ... " in message
    assert message.endswith(f"'); {TEMPLATE}")


def test_quoted_braces_are_not_a_template() -> None:
    assert error("a: '{{ $labels.pod }}'\nb: [\n").endswith(SYNTAX)
    (document,) = read_documents(b"a: '{{ $labels.pod }}'\nb: up {{ x }}\n", "f.yaml")
    assert document.value == {"a": "{{ $labels.pod }}", "b": "up {{ x }}"}


def test_an_error_keeps_its_parts_when_pickled() -> None:
    fault = DocumentError("f.yaml", 3, 4, "wrong", "mend it")
    copy = pickle.loads(pickle.dumps(fault))  # noqa: S301 - our own bytes
    assert (copy.file, copy.line, copy.column, copy.problem, copy.fix) == ("f.yaml", 3, 4, "wrong", "mend it")
    assert str(copy) == "f.yaml:3:4: wrong; mend it"


BOMB = "a0: &a0 [x, x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))
MERGES = (
    "a: &a {" + ", ".join(f"k{i}: 1" for i in range(100)) + "}\n" + "".join(f"b{i}: {{<<: *a}}\n" for i in range(99))
)


@pytest.mark.parametrize(
    ("text", "limits", "problem"),
    [
        ("a: 1234", DocumentLimits(size=6), "the file has more than 6 bytes; split it into several files"),
        ("[1, 2, 3, 4]", DocumentLimits(nodes=4), "more than 4 values; split the file into several"),
        ("- 1\n- 2\n- 3\n- 4\n", DocumentLimits(nodes=4), "more than 4 values; split the file into several"),
        ("---\n" * 5, DocumentLimits(nodes=4), "more than 4 values; split the file into several"),
        ("- &a 1\n- *a\n- *a\n- *a\n", DocumentLimits(nodes=4), "more than 4 values; split the file into several"),
        (BOMB, DocumentLimits(), "aliases repeat more than 400000 values; write the values out, in several files"),
        (
            MERGES,
            DocumentLimits(aliased=9000),
            "aliases repeat more than 9000 values; write the values out, in several files",
        ),
        (CHAIN, DocumentLimits(), "nested deeper than 100 levels; flatten it: no Kubernetes object is that deep"),
        (
            "[" * 101 + "]" * 101,
            DocumentLimits(),
            "nested deeper than 100 levels; flatten it: no Kubernetes object is that deep",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_a_file_has_limits(text: str, limits: DocumentLimits, problem: str) -> None:
    assert error(text, limits).endswith(problem)


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, '{"a":' * 99 + "[1]" + "}" * 99, "- " * 100 + "x"])
def test_a_hundred_levels_are_not_too_deep(text: str) -> None:
    assert len(read_documents(text.encode(), "f.yaml")) == 1


@pytest.mark.parametrize("deep", ["[", "{", "- ", "? ", '{"a":', "[{a: "])
@pytest.mark.parametrize("closed", [True, False])
def test_fifty_thousand_levels_do_not_crash_the_interpreter(deep: str, closed: bool) -> None:  # noqa: FBT001
    closing = "".join({"[": "]", "{": "}"}.get(char, "") for char in reversed(deep)) if closed else ""
    assert "nested deeper than 100 levels" in error(deep * 50_000 + "1" + closing * 50_000)


LINE_BREAKS = [b"\n", b"\r", "\u0085".encode(), "\u2028".encode(), "\u2029".encode()]
PIECES = st.sampled_from(
    [
        *"abyn01.:-?,[]{}#&*!|>'\"%@`~<\\ \n\t\r",
        "a: ",
        "- ",
        "\n  ",
        "---\n",
        "<<: ",
        "*a",
        "&a ",
        "!!int ",
        "{{",
        "0x",
        "1e9",
    ]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join) | st.binary(max_size=60))
def test_any_bytes_give_documents_or_a_document_error(data: str | bytes) -> None:
    raw = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    fault: DocumentError | None = None
    documents: list[Document] = []
    try:
        documents = read_documents(raw, "f.yaml")
    except DocumentError as error:
        fault = error
    positions = [document.position(("a", 0)) for document in documents]
    if fault is not None:
        positions.append((fault.line, fault.column))
    breaks = sum(raw.count(end) for end in LINE_BREAKS)
    assert all(1 <= line <= breaks + 2 and 1 <= column <= len(raw) + 1 for line, column in positions)
    assert all(document.line <= document.position(("a", 0))[0] for document in documents)
