"""Addresses and URLs of Kubernetes' CEL: plain functions of text.

Source: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cel-libraries; Go's net/netip and net/url.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ipaddress import IPv4Interface, IPv6Interface

    Address = IPv4Address | IPv6Address
    Network = IPv4Interface | IPv6Interface

_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}")


def address_of(text: str) -> Address:
    """An IP address, without zone, and none of IPv4 in the clothes of IPv6.

    Raises:
        ValueError: it is none.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address.scope_id is not None):
        raise ValueError(f"IPv4-mapped addresses and zones are not allowed: {text[:80]!r}")
    return address


def network_of(text: str) -> Network:
    """An address and the length of its prefix; bits after it may be set, as in Kubernetes.

    Raises:
        ValueError: it is none.
    """
    address, slash, length = text.rpartition("/")
    if not slash or not _LENGTH.fullmatch(length):
        raise ValueError(f"{text[:80]!r} has no prefix length")
    address_of(address)
    return ip_interface(text)


def contains(network: Network, other: Network) -> bool:
    """Is all of the other network in the one?"""
    return network.version == other.version and other.network.subnet_of(network.network)  # type: ignore[arg-type]


def link_local_multicast(address: Address) -> bool:
    """224.0.0.0/24, or a multicast address of the scope of a link."""
    if isinstance(address, IPv4Address):
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2  # noqa: PLR2004 - scope: link


def link_local(address: Address) -> bool:
    """169.254.0.0/16 or fe80::/10."""
    if isinstance(address, IPv4Address):
        return address.packed[:2] == b"\xa9\xfe"
    return address.packed[0] == 0xFE and address.packed[1] & 0xC0 == 0x80  # noqa: PLR2004 - fe80::/10


def global_unicast(address: Address) -> bool:
    """One host, as Go has it: private addresses too."""
    others = address.is_unspecified, address.is_loopback, address.is_multicast, link_local(address)
    return not any(others) and address.packed != b"\xff\xff\xff\xff"


_AUTHORITY: Final = r"//(?:([^/?]*)@)?([^/?]*)"
_REST: Final = r"([^?#]*)(?:\?([^#]*))?(?:#.*)?"
_URI: Final = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*):(?:{_AUTHORITY})?{_REST}", re.DOTALL)
_PATH: Final = re.compile(rf"()(?:(?!///){_AUTHORITY})?{_REST}", re.DOTALL)
"""Three slashes begin a path."""
_USER: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%25[^\s\[\]%]+)?\]|[^\s\[\]:^`{|}\\#%]*)(?::(\d*))?", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_AS_IT_IS: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]/%]*")
_KEPT_IN_PATH: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")


class Url(NamedTuple):
    """The parts of a URL; empty where there is none.

    Attributes:
        host: with the port, an IPv6 address in brackets; ``hostname`` without both.
    """

    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


def parse_url(text: str) -> Url:
    """An absolute URI or an absolute path.

    Raises:
        ValueError: it is neither.
    """
    found = _URI.fullmatch(text) or _PATH.fullmatch(text)
    if found is None or not text or _CONTROL.search(text) or _NO_ESCAPE.search(text.partition("?")[0]):
        raise ValueError(f"{text[:80]!r} is no URL")
    scheme, user, authority, path, query = (part or "" for part in found.groups())
    host = _HOST.fullmatch(authority)
    if host is None or not _USER.fullmatch(user) or not (scheme or text.startswith("/") or text == "*"):
        raise ValueError(f"{text[:80]!r} is no URL: neither an absolute URI nor an absolute path")
    shown = authority.replace("%25", "%")
    return Url(scheme.lower(), shown, host[1].strip("[]").replace("%25", "%"), host[2] or "", path, query)


def _unescaped(text: str) -> str:
    octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return octets.decode(errors="replace")


def escaped_path(url: Url) -> str:
    """The path, escaped where it is not."""
    if not url.host and not url.path.startswith("/"):
        return ""  # opaque, as mailto:someone
    if _PATH_AS_IT_IS.fullmatch(url.path):
        return url.path
    octets = _unescaped(url.path).encode()
    return "".join(chr(octet) if octet in _KEPT_IN_PATH else f"%{octet:02X}" for octet in octets)


def query_of(url: Url) -> dict[str, list[str]]:
    """The parameters, unescaped, each with all its values."""
    parameters: dict[str, list[str]] = {}
    for part in filter(None, url.query.split("&")):
        if ";" not in part and not _NO_ESCAPE.search(part):
            key, _, value = part.replace("+", " ").partition("=")
            parameters.setdefault(_unescaped(key), []).append(_unescaped(value))
    return parameters
