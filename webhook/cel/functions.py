"""Implement the functions that Kubernetes adds to CEL and that the library lacks.

``Matches`` replaces ``matches``, because the library compiles the pattern at each call, which takes 0.4 ms for the
pattern of a DNS label. ``Has`` replaces ``has`` for fields that the library knows as variables.

Quantities, addresses, and URLs have separate types for the type checker. The library supports only built-in types, so
each value is a map with one key, of a type that JSON keys never have: ``{True: "1500"}``.

Source: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cel-libraries
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from ipaddress import ip_address, ip_interface
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2  # type: ignore[import-untyped]

from webhook.cel.addresses import (
    address_of,
    contains,
    is_global_unicast,
    is_link_local_multicast,
    network_of,
)
from webhook.cel.errors import ExpressionError
from webhook.cel.urls import Url, escaped_path, parse_url, query_of
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.cel.addresses import Address, Network

QUANTITY, ADDRESS, NETWORK, URL = "kubernetes.Quantity", "net.IP", "net.CIDR", "kubernetes.URL"

_NO_OVERLOAD: Final = "no such overload"
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


class Function(NamedTuple):
    """A function: the types of its parameters and result, and whether it is a method of the first."""

    name: str
    parameters: tuple[str, ...]
    result: str
    call: Callable[..., Any]
    member: bool = True


def _substring(text: str, start: int, end: int | None = None) -> str:
    size = len(text)
    end = size if end is None else end
    if not 0 <= start <= end <= size:
        raise ValueError(f"substring({start}, {end}) of a string of {size} characters")
    return text[start:end]


def _unwrapped(value: dict[Any, Any], key: bool | int) -> Any:  # noqa: FBT001 - its type is the tag
    """Return the content of a quantity, address, or URL. Raise ValueError for a map from the object."""
    if len(value) != 1 or type(next(iter(value))) is not type(key):
        raise ValueError(_NO_OVERLOAD)
    return value[key]


# Quantities


def _quantity(text: str) -> dict[bool, str]:
    amount = amount_of(text)
    if amount is None:
        raise ValueError(f"{text[:80]!r} is not a quantity")
    return _of_amount(amount)


def _of_amount(amount: Decimal) -> dict[bool, str]:
    return {True: f"{amount.normalize():f}"}  # equal amounts, such as 1000m and 1, have equal texts


def _amount(value: dict[Any, Any]) -> Decimal:
    return Decimal(_unwrapped(value, key=True))


def _as_integer(value: dict[Any, Any]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_amount(value))


def _is_integer(value: dict[Any, Any]) -> bool:
    amount = _amount(value)
    return amount == int(amount) and int(amount) in _INTEGERS


def _compare(one: Decimal, other: Decimal) -> int:
    return (one > other) - (one < other)


# Addresses and URLs


def _ip(value: dict[Any, Any]) -> Address:
    return ip_address(_unwrapped(value, 0))


def _cidr(value: dict[Any, Any]) -> Network:
    return ip_interface(_unwrapped(value, key=True)[0])


def _of_address(address: Address) -> dict[int, str]:
    return {0: str(address)}


def _url(value: dict[Any, Any]) -> Url:
    return parse_url(_unwrapped(value, 0)[0])


def _of_url(text: str) -> dict[int, list[str]]:
    scheme = parse_url(text).scheme
    return {0: [scheme + text[len(scheme) :]]}  # the scheme is in lowercase, because URLs compare as text


# Regular expressions: RE2 matches in linear time


@cache
def pattern_of(pattern: str) -> Any:
    """Compile and cache a regular expression. Raise ExpressionError if it is malformed."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        problem = error.args[0] if error.args else error
        message = problem.decode(errors="replace") if isinstance(problem, bytes) else problem
        raise ExpressionError(f"invalid regular expression: {message}") from None


def _matches(text: str, pattern: str) -> bool:
    return pattern_of(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    match = pattern_of(pattern).search(text)
    return match[0] if match is not None else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return list(islice(_matched(text, pattern), limit if limit >= 0 else None))


def _matched(text: str, pattern: str) -> Iterator[str]:
    """Yield all matches as Go does: skip an empty match at the end of the previous match."""
    end = -1
    for match in pattern_of(pattern).finditer(text):
        if match.end() > end:
            yield match[0]
        end = match.end()


# Lists


def _comparable(items: list[Any], *kinds: tuple[type, ...]) -> list[Any]:
    """Return the items. Raise ValueError unless all items are of the same kind."""
    if not any(all(type(item) in kind for item in items) for kind in kinds):
        raise ValueError(_NO_OVERLOAD)
    return items


_NUMBERS: Final = (int, float)
_PLAIN: Final = ((int,), (float,), (str,), (bool,))
"""The types that a function with the result ``dyn`` can return. A duration isn't one of them."""
_ORDERED: Final = (_NUMBERS, *_PLAIN, (timedelta,), (datetime,), (bytearray,))


def _extreme(items: list[Any], choose: Callable[[list[Any]], Any]) -> Any:
    if not _comparable(items, *_PLAIN):
        raise ValueError(f"{choose.__name__} called on an empty list")
    return choose(items)


def _sum(items: list[Any]) -> Any:
    total = sum(_comparable(items, _NUMBERS))
    if isinstance(total, int) and total not in _INTEGERS:
        raise ValueError("integer overflow")
    return total


def _is_sorted(items: list[Any]) -> bool:
    return all(one <= other for one, other in pairwise(_comparable(items, *_ORDERED)))


def _is(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return holds


FUNCTIONS: Final = (
    Function("quantity", ("string",), QUANTITY, _quantity, member=False),
    Function("isQuantity", ("string",), "bool", _is(_quantity), member=False),
    Function("sign", (QUANTITY,), "int", lambda q: _compare(_amount(q), Decimal(0)), member=False),
    Function("isInteger", (QUANTITY,), "bool", _is_integer),
    Function("asInteger", (QUANTITY,), "int", _as_integer),
    Function("asApproximateFloat", (QUANTITY,), "double", lambda q: float(_amount(q))),
    Function("add", (QUANTITY, QUANTITY), QUANTITY, lambda q, other: _of_amount(_amount(q) + _amount(other))),
    Function("add", (QUANTITY, "int"), QUANTITY, lambda q, number: _of_amount(_amount(q) + number)),
    Function("sub", (QUANTITY, QUANTITY), QUANTITY, lambda q, other: _of_amount(_amount(q) - _amount(other))),
    Function("sub", (QUANTITY, "int"), QUANTITY, lambda q, number: _of_amount(_amount(q) - number)),
    Function("isGreaterThan", (QUANTITY, QUANTITY), "bool", lambda q, other: _amount(q) > _amount(other)),
    Function("isLessThan", (QUANTITY, QUANTITY), "bool", lambda q, other: _amount(q) < _amount(other)),
    Function("compareTo", (QUANTITY, QUANTITY), "int", lambda q, other: _compare(_amount(q), _amount(other))),
    Function("ip", ("string",), ADDRESS, lambda text: _of_address(address_of(text)), member=False),
    Function("ip", (NETWORK,), ADDRESS, lambda cidr: _of_address(_cidr(cidr).ip)),
    Function("isIP", ("string",), "bool", _is(address_of), member=False),
    Function("ip.isCanonical", ("string",), "bool", lambda text: str(address_of(text)) == text, member=False),
    Function("family", (ADDRESS,), "int", lambda ip: _ip(ip).version),
    Function("isUnspecified", (ADDRESS,), "bool", lambda ip: _ip(ip).is_unspecified),
    Function("isLoopback", (ADDRESS,), "bool", lambda ip: _ip(ip).is_loopback),
    Function("isLinkLocalMulticast", (ADDRESS,), "bool", lambda ip: is_link_local_multicast(_ip(ip))),
    Function("isLinkLocalUnicast", (ADDRESS,), "bool", lambda ip: _ip(ip).is_link_local),
    Function("isGlobalUnicast", (ADDRESS,), "bool", lambda ip: is_global_unicast(_ip(ip))),
    Function("cidr", ("string",), NETWORK, lambda text: {True: [str(network_of(text))]}, member=False),
    Function("isCIDR", ("string",), "bool", _is(network_of), member=False),
    Function("containsIP", (NETWORK, "string"), "bool", lambda cidr, ip: address_of(ip) in _cidr(cidr).network),
    Function("containsIP", (NETWORK, ADDRESS), "bool", lambda cidr, ip: _ip(ip) in _cidr(cidr).network),
    Function("containsCIDR", (NETWORK, "string"), "bool", lambda cidr, to: contains(_cidr(cidr), network_of(to))),
    Function("containsCIDR", (NETWORK, NETWORK), "bool", lambda cidr, to: contains(_cidr(cidr), _cidr(to))),
    Function("masked", (NETWORK,), NETWORK, lambda cidr: {True: [str(_cidr(cidr).network)]}),
    Function("prefixLength", (NETWORK,), "int", lambda cidr: _cidr(cidr).network.prefixlen),
    Function("url", ("string",), URL, _of_url, member=False),
    Function("isURL", ("string",), "bool", _is(parse_url), member=False),
    Function("getScheme", (URL,), "string", lambda url: _url(url).scheme),
    Function("getHost", (URL,), "string", lambda url: _url(url).host),
    Function("getHostname", (URL,), "string", lambda url: _url(url).hostname),
    Function("getPort", (URL,), "string", lambda url: _url(url).port),
    Function("getEscapedPath", (URL,), "string", lambda url: escaped_path(_url(url))),
    Function("getQuery", (URL,), "query", lambda url: query_of(_url(url))),
    *(Function("Has", (type_,), "bool", lambda _: True, member=False) for type_ in ("map", "string", "bool")),
    Function("Matches", ("string", "string"), "bool", _matches),
    Function("Matches", ("string", "string"), "bool", _matches, member=False),
    Function("Substring", ("string", "int"), "string", _substring),
    Function("Substring", ("string", "int", "int"), "string", _substring),
    Function("find", ("string", "string"), "string", _find),
    Function("findAll", ("string", "string"), "strings", _find_all),
    Function("findAll", ("string", "string", "int"), "strings", _find_all),
    Function("isSorted", ("list",), "bool", _is_sorted),
    Function("sum", ("list",), "dyn", _sum),
    Function("min", ("list",), "dyn", lambda items: _extreme(items, min)),
    Function("max", ("list",), "dyn", lambda items: _extreme(items, max)),
)
