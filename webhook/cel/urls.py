"""Parse URLs like the CEL functions of Kubernetes.

Source: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-url-library; Go's net/url.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_AUTHORITY: Final = r"//(?:([^/?]*)@)?([^/?]*)"
_REST: Final = r"([^?#]*)(?:\?([^#]*))?(?:#.*)?"
_URI: Final = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*):(?:{_AUTHORITY})?{_REST}", re.DOTALL)
_PATH: Final = re.compile(rf"()(?:(?!///){_AUTHORITY})?{_REST}", re.DOTALL)
"""A path can start with three slashes. Two slashes start an authority."""
_USER: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%25[^\s\[\]%]+)?\]|[^\s\[\]:^`{|}\\#%]*)(?::(\d*))?", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_AS_IT_IS: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]/%]*")
_KEPT_IN_PATH: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")


class Url(NamedTuple):
    """The parts of a URL. Missing parts are empty.

    Attributes:
        host: the host with its port, and with the brackets of an IPv6 address; ``hostname`` omits both.
    """

    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


def parse_url(text: str) -> Url:
    """Parse an absolute URI or an absolute path. Raise ValueError if it is neither."""
    match = _URI.fullmatch(text) or _PATH.fullmatch(text)
    if match is None or not text or _CONTROL.search(text) or _NO_ESCAPE.search(text.partition("?")[0]):
        raise ValueError(f"{text[:80]!r} is not a URL")
    scheme, user, authority, path, query = (part or "" for part in match.groups())
    host = _HOST.fullmatch(authority)
    if host is None or not _USER.fullmatch(user) or not (scheme or text.startswith("/") or text == "*"):
        raise ValueError(f"{text[:80]!r} is not a URL: neither an absolute URI nor an absolute path")
    shown = authority.replace("%25", "%")
    return Url(scheme.lower(), shown, host[1].strip("[]").replace("%25", "%"), host[2] or "", path, query)


def _unescaped(text: str) -> str:
    octets = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
    return octets.decode(errors="replace")


def escaped_path(url: Url) -> str:
    """Return the path, percent-encoded."""
    if not url.host and not url.path.startswith("/"):
        return ""  # opaque, such as mailto:someone
    if _PATH_AS_IT_IS.fullmatch(url.path):
        return url.path
    octets = _unescaped(url.path).encode()
    return "".join(chr(octet) if octet in _KEPT_IN_PATH else f"%{octet:02X}" for octet in octets)


def query_of(url: Url) -> dict[str, list[str]]:
    """Return the decoded parameters of the query, each with all its values."""
    parameters: dict[str, list[str]] = {}
    for part in filter(None, url.query.split("&")):
        if ";" not in part and not _NO_ESCAPE.search(part):
            key, _, value = part.replace("+", " ").partition("=")
            parameters.setdefault(_unescaped(key), []).append(_unescaped(value))
    return parameters
