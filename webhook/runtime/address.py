"""Parse and bind the addresses to listen on."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

_BACKLOG: Final = 1024
"""The maximum number of connections that wait to be accepted. Linux also limits it (net.core.somaxconn, 4096)."""


class Address(NamedTuple):
    """An address to listen on. Port 0 selects a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``host:port``, ``[::]:port`` or ``:port``.

        Raises:
            ValueError: the text isn't an address.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - of TCP
            raise ValueError(f"{text!r} isn't an address to listen on; write host:port, such as 0.0.0.0:8443")
        return cls(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def bind(self) -> socket.socket:
        """Return a listening socket. Raise OSError if the address can't be bound."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server(self, family=family, backlog=_BACKLOG)
        listener.settimeout(0)
        return listener
