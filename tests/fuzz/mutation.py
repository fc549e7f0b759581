"""Mutate an input slightly: the values of YAML or JSON, and sometimes its bytes; the bytes of any other input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SIZE_AT_MOST: Final = 64 * 1024
_DEPTH_AT_MOST: Final = 60  # the fuzzer recurses over values; repeated bytes nest deeper
_REPEATS: Final = (2, 3, 10, 100, 1000)
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 18, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("inf"),
    "", " ", "*", "**", "[*]", "${NAME}", "{{ .Values.x }}", "\0", "é", "\u2028", "\ud800", "~", "yes", "0x10", "1e400",
    "30m", "1h30m", "-5s", "99999999h", "1.5Gi", "100m", "1e3", "50%", "101%", "2026-11-23T00:00:00Z", "9999-12-31",
    "a.b", "a[*].b", "@", "`1`", "object.spec", "true", "size(object)", "x" * 300, "/" * 300, "../..", "::", "a/b/c",
    "spot", "on-demand", "shipped", "v1", "Pod", "List", "spec.template", "deny", "audit", "CREATE", "default",
    [], {}, [[]], [{}], [None], {"": ""}, {"a": None}, {"matchLabels": {"a": "b"}}, {"name": "a"},
)  # fmt: skip
_PIECES: Final = (
    b"---\n", b"\n---\n{}\n", b"...", b"&a ", b"*a", b"<<: *a\n", b"!!binary ", b"!!set ", b"!x ", b"? ", b"|\n ", b">-\n",
    b"\t", b"\r\n", b"\r", b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", b"#", b"%YAML 1.1\n",
    b"'", b'"', b"`", b"[", b"{", b"}", b"]", b"(", b")", b"\\", b"\\u0000", b"[*]", b"1e999", b"-", b": ", b", ", b"${X}",
)  # fmt: skip


def mutate(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Return the input with one to four changes; ``others`` are inputs to take parts from."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        documents = _documents(data) if random.random() < 0.75 else []
        data = _changed(documents, others, random) if documents else _changed_bytes(data, others, random)
        data = data[:SIZE_AT_MOST]
    return data


def _documents(data: bytes) -> list[Any]:
    """Return an input's documents; none if they are too deep, or have aliases.

    libyaml recurses in C, where deep lists crash the process. Nested aliases are too large to write as JSON.
    """
    depth = 0
    try:
        for event in yaml.parse(data, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH_AT_MOST or isinstance(event, yaml.AliasEvent):
                return []
        documents = list(yaml.load_all(data, yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):  # including the loader's own faults
        return []
    return documents


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return the places of all values: a list or map, and the index or key."""
    places: list[tuple[Any, Any]] = []
    left, seen = [value], set[int]()
    while left:
        parent = left.pop()
        if id(parent) not in seen:  # not an alias
            seen.add(id(parent))
            keys = list(parent) if isinstance(parent, dict) else range(len(parent)) if isinstance(parent, list) else ()
            places += [(parent, key) for key in keys]
            left += [parent[key] for key in keys]
    return places


def _changed(documents: list[Any], others: Sequence[bytes], random: Random) -> bytes:
    places = _places(documents)
    parent, key = random.choice(places)
    value = parent[key]
    match random.randrange(8):
        case 0 | 1:
            parent[key] = random.choice(_VALUES)
        case 2:
            del parent[key]
        case 3 if isinstance(parent, list):
            parent[key:key] = [value] * random.choice(_REPEATS)
        case 3:
            parent[random.choice([other for _, other in places])] = parent.pop(key)
        case 4:
            parent[key] = random.choice(([value], {"a": value}, str(value), [value, value]))
        case 5 if isinstance(value, str):
            start = random.randrange(len(value) + 1)
            parent[key] = value[:start] + str(random.choice(_VALUES)) + value[random.randrange(start, len(value) + 1) :]
        case _:
            donors = _places(_documents(random.choice(others)) or [None])
            same = [place for place in donors if place[1] == key]
            donor, place = random.choice(same if same and random.random() < 0.7 else donors)
            parent[key] = donor[place]
    try:
        if random.random() < 0.5:
            return "\n---\n".join(map(json.dumps, documents)).encode()
        written = yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
        return str(written).encode(errors="surrogatepass")
    except (TypeError, ValueError, yaml.YAMLError, RecursionError):  # a date as JSON, a recursive alias
        return repr(documents).encode(errors="surrogatepass")


def _changed_bytes(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((0, 1, 2, 10, 100)))
    match random.randrange(4):
        case 0:
            middle = random.choice(_PIECES) * random.choice((1, *_REPEATS))
        case 1:
            middle = data[start:end] * random.choice(_REPEATS)
        case 2:
            middle = random.randbytes(end - start)
        case _:
            other = random.choice(others)
            return data[:start] + other[random.randrange(len(other) + 1) :]
    return data[:start] + middle + data[end:]
