"""Read YAML files from libyaml's events: the documents, their values, and the positions of errors.

PyYAML's composer recurses in C and crashes the interpreter at a few thousand levels. The reader uses PyYAML's events,
which don't recurse, and limits the depth itself.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)
from yaml.reader import ReaderError

from webhook.base.text import line_and_column
from webhook.documents.model import DocumentError, DocumentLimits, JSONValue, TextPart
from webhook.documents.values import Scalar, as_json, key_text, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from functools import _lru_cache_wrapper

_T = TypeVar("_T")
_Event: TypeAlias = Any  # PyYAML's stubs type every mark as optional, but the events of a parser always have marks

_OPEN: Final = object()
_TEMPLATE: Final = re.compile(r"""^[^"'#\n]*?(\{[{%]|%\{)""", re.MULTILINE)
_CLOSING: Final = {"{{": "}}", "{%": "%}", "%{": "}"}
"""The opening delimiters of Helm, Jinja, and Terraform templates, and the closing ones."""
_EXPRESSION: Final = re.compile(r"[ {-]*(\w*[eE]xpression): *([^ |>]|[|>][-+]? *\S)")
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"  # yq writes it before <<
_TEXT: Final = frozenset({"!", f"{_TAG}str"})
_TAGGED: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
    f"{_TAG}timestamp": (str,),
}
"""The types that each tag allows. PyYAML writes these tags when it quotes every scalar."""

_CACHED_AT_MOST: Final = 64
"""Characters of a scalar in the caches, so that long ones don't stay in memory."""


@lru_cache(maxsize=4096)
def _plain_key(text: str) -> str:
    """Return an unquoted key. Manifests repeat the same words, which share their strings."""
    return intern(key_text(resolve(text)))


@lru_cache(maxsize=4096)
def _plain_value(text: str) -> Scalar:
    """Return the value of an unquoted scalar."""
    value = resolve(text)
    return as_json(value) if type(value) is int or type(value) is float else value


class YAMLReader:
    """A parser of one file."""

    def __init__(self, text: str, file: str, limits: DocumentLimits) -> None:
        self._text = text
        self._file = file
        self._limits = limits
        self._next: Callable[[], _Event] = yaml.CSafeLoader(text).get_event
        self._anchors: dict[str, Any] = {}
        self._nodes = 0
        self._aliased = 0

    def read(self) -> Iterator[TextPart]:
        """Yield the documents, including empty documents.

        The text from start to end is a complete file: it starts with a line and includes the directives.
        Raise DocumentError if the file can't be read.
        """
        try:
            self._next()  # the start of the stream
            while type(opening := self._next()) is DocumentStartEvent:
                self._anchors = {}
                event = self._next()
                first: Any = opening.start_mark if opening.tags else event.start_mark
                begin = first.index - first.column
                value = self._value(event, 0)
                self._count(1, event.start_mark)
                yield begin, self._next().start_mark.index, value
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark  # only PyYAML's composer leaves it None
            raise self._bad_syntax(mark, f"{error.problem} {error.context or ''}".rstrip()) from None
        except ReaderError as error:
            problem = f"{error.reason}: U+{error.character:04X}"
            line, column = line_and_column(self._text, len(self._text.encode()[: error.position].decode()))
            fix = (
                "escape it, in double quotes" if error.character else "save the file as UTF-8: it is UTF-16, or no text"
            )
            raise DocumentError(self._file, line, column, problem, fix) from None

    def _value(self, event: _Event, depth: int) -> JSONValue:
        kind = type(event)
        value: JSONValue
        if kind is ScalarEvent:
            value = self._scalar(event, _plain_value, "write a finite number, or quote it")
        elif kind is AliasEvent:
            return self._alias(event, depth)
        else:
            value = self._collection(event, depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _scalar(self, event: _Event, plain: _lru_cache_wrapper[_T], fix: str) -> _T | str:
        text: str = event.value
        tag = event.tag
        if tag in _TEXT if tag else not event.implicit[0]:
            return text
        if tag is not None and type(resolve(text)) not in _TAGGED.get(tag, ()):
            raise self._unknown_tag(event)
        try:
            return plain(text) if len(text) <= _CACHED_AT_MOST else plain.__wrapped__(text)
        except ValueError as error:
            raise self._error(event.start_mark, str(error), fix) from None

    def _collection(self, start: _Event, depth: int) -> JSONValue:
        """Read a mapping or sequence. Raise DocumentError if it is nested too deep or has an unknown tag."""
        if start.anchor is not None:
            self._anchors[start.anchor] = _OPEN
        if depth > self._limits.depth:
            raise self._too_deep(start.start_mark)
        is_mapping = type(start) is MappingStartEvent
        if start.tag is not None and start.tag != f"{_TAG}{'map' if is_mapping else 'seq'}":
            raise self._unknown_tag(start)
        return self._mapping(start, depth) if is_mapping else self._sequence(start, depth)

    def _sequence(self, start: _Event, depth: int) -> list[JSONValue]:
        items: list[JSONValue] = []
        following, value_of = self._next, self._value
        while type(event := following()) is not SequenceEndEvent:
            items.append(value_of(event, depth))
        self._count(len(items), start.start_mark)
        return items

    def _mapping(self, start: _Event, depth: int) -> dict[str, JSONValue]:
        members: dict[str, JSONValue] = {}
        places: dict[str, Any] = {}  # without merged keys
        following, value_of, scalar = self._next, self._value, self._scalar
        while type(event := following()) is not MappingEndEvent:
            if type(event) is not ScalarEvent:
                key = self._unusual_key(event, depth)
            elif event.value == "<<" and (event.implicit[0] or event.tag == _MERGE):
                self._merge(members, depth)
                continue
            else:
                key = scalar(event, _plain_key, "quote it")
            if key in places:
                first, _ = line_and_column(self._text, places[key].index)
                problem = f"duplicate key {json.dumps(key)}, first at {self._file}:{first}"
                raise self._error(event.start_mark, problem, "keep one of the two")
            places[key] = event.start_mark
            members[key] = value_of(following(), depth)
        self._count(len(places), start.start_mark)
        return members

    def _unusual_key(self, event: _Event, depth: int) -> str:
        """Return a key that is an alias, or raise DocumentError for a collection."""
        key = self._value(event, depth)
        if isinstance(key, (dict, list)):
            raise self._bad_syntax(event.start_mark, "a map or a list can't be a key")
        try:
            return key_text(key)
        except ValueError as error:
            raise self._error(event.start_mark, str(error), "quote it") from None

    def _merge(self, members: dict[str, JSONValue], depth: int) -> None:
        """Merge the value of ``<<``. As in go-yaml v2, it overrides keys above it, and keys below override it."""
        event = self._next()
        value = self._value(event, depth)
        sources = value if isinstance(value, list) and type(event) is not AliasEvent else [value]
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise self._error(event.start_mark, "'<<' takes a map or a list of maps", "name maps, or quote the key")
            members.update(source)

    def _alias(self, event: _Event, depth: int) -> JSONValue:
        if event.anchor not in self._anchors:
            problem = f"no anchor '&{event.anchor}' above"
            raise self._error(event.start_mark, problem, "define it, or quote the text if it isn't an alias")
        value = self._anchors[event.anchor]
        if value is _OPEN:
            raise self._error(event.start_mark, f"anchor '&{event.anchor}' contains itself", "remove the alias")
        return self._repeat(value, depth + 1, event.start_mark)

    def _repeat(self, value: JSONValue, depth: int, mark: yaml.Mark) -> JSONValue:
        """Return a copy of the value that an alias repeats. A change to one copy must not affect the others."""
        self._count(1, mark)
        self._aliased += 1
        if self._aliased > self._limits.aliased:
            problem = f"aliases repeat more than {self._limits.aliased} values"
            raise self._error(mark, problem, "write the values out, in several files")
        if not isinstance(value, (dict, list)):
            return value
        if depth > self._limits.depth:
            raise self._too_deep(mark)
        if isinstance(value, dict):
            return {key: self._repeat(member, depth + 1, mark) for key, member in value.items()}
        return [self._repeat(item, depth + 1, mark) for item in value]

    def _count(self, values: int, mark: yaml.Mark) -> None:
        self._nodes += values
        if self._nodes > self._limits.nodes:
            raise self._error(mark, f"more than {self._limits.nodes} values", "split the file into several")

    def _too_deep(self, mark: yaml.Mark) -> DocumentError:
        problem = f"nested deeper than {self._limits.depth} levels"
        return self._error(mark, problem, "flatten it: no Kubernetes object is that deep")

    def _unknown_tag(self, event: _Event) -> DocumentError:
        fix = self._fix_of_expression(event.start_mark) or "remove it"
        return self._error(event.start_mark, f"Kubernetes doesn't support tag {event.tag!r}", fix)

    def _fix_of_expression(self, mark: yaml.Mark) -> str:
        """Return the fix for a CEL expression that isn't a YAML string, or an empty string if the line has none."""
        line = self._text[self._text.rfind("\n", 0, mark.index) + 1 :].partition("\n")[0]
        match = _EXPRESSION.match(line)
        return f"write `{match[1]}: >-`, and the expression in the line below it" if match else ""

    def _bad_syntax(self, mark: yaml.Mark, problem: str) -> DocumentError:
        if match := _TEMPLATE.search(self._text):
            fix = "render it first, with 'helm template' for example, and pass the result"
            shown = f"{match[1]} ... {_CLOSING[match[1]]}"
            return self._error(mark, f"{problem}: this looks like a template ('{shown}')", fix)
        if self._text[mark.index : mark.index + 1] == "\t":
            return self._error(mark, problem, "indent with spaces: YAML takes no tabs there")
        fix = self._fix_of_expression(mark) or "correct the indentation, quotes or brackets there or just above"
        return self._error(mark, problem, fix)

    def _error(self, mark: yaml.Mark, problem: str, fix: str) -> DocumentError:
        return DocumentError(self._file, *line_and_column(self._text, mark.index), problem, fix)
