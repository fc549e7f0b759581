"""A certificate from a CA made for it alone, for trying things out: `spotgate serve --self-signed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certs.authority import KeyPair, create_authority, issue_leaf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def self_signed(names: Sequence[str], ips: Sequence[str], now: datetime) -> tuple[bytes, KeyPair]:
    """Return the CA's certificate, for clients to verify against, and a leaf; the CA's key is forgotten.

    Raises ValueError as `issue_leaf` does.
    """
    authority = create_authority(now)
    return authority.certificate_pem, issue_leaf(authority, names=names, ips=ips, now=now)
