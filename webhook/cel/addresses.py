"""Parse IP addresses and CIDRs like the CEL functions of Kubernetes.

Source: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-ip-address-library; Go's net/netip.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    Address = IPv4Address | IPv6Address
    Network = IPv4Interface | IPv6Interface

_PREFIX_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}")


def address_of(text: str) -> Address:
    """Parse an IP address. Raise ValueError if it is invalid, has a zone, or is an IPv4-mapped IPv6 address."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address.scope_id is not None):
        raise ValueError(f"IPv4-mapped addresses and zones are not allowed: {text[:80]!r}")
    return address


def network_of(text: str) -> Network:
    """Parse a CIDR. As in Kubernetes, bits after the prefix may be set.

    Raise ValueError if the text isn't a CIDR.
    """
    address, slash, length = text.rpartition("/")
    if not slash or not _PREFIX_LENGTH.fullmatch(length):
        raise ValueError(f"{text[:80]!r} has no prefix length")
    address_of(address)
    return ip_interface(text)


def contains(network: Network, other: Network) -> bool:
    """Return whether the network contains the whole other network."""
    return network.version == other.version and other.network.subnet_of(network.network)  # type: ignore[arg-type]


def is_link_local_multicast(address: Address) -> bool:
    """Return whether the address is in 224.0.0.0/24, or a multicast address with link-local scope."""
    if isinstance(address, IPv4Address):
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2  # noqa: PLR2004 - scope: link


def is_global_unicast(address: Address) -> bool:
    """Return whether the address is a global unicast address. As in Go, private addresses are included."""
    others = address.is_unspecified, address.is_loopback, address.is_multicast, address.is_link_local
    return not any(others) and address.packed != b"\xff\xff\xff\xff"
