"""Who asks: the one place that says so, and who may not.

Today that is the name in a client certificate, which TLS has verified. API servers of Kubernetes 1.37 can send a
ServiceAccount token with each review instead (KEP-6060, alpha): it would be verified here, from the request's headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from webhook.server.intake import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.server.connections import Connection

UNAUTHENTICATED: Final = "unauthenticated"
"""Stands in the log for the name of a caller that did not show who it is."""

_FORBIDDEN: Final = 403
_UNNAMED: Final = "unnamed"


@dataclass(frozen=True, slots=True)
class Callers:
    """Those who may ask.

    Attributes:
        names: of client certificates; empty: whoever TLS lets in.
    """

    names: frozenset[str] = frozenset()

    def identify(self, connection: Connection) -> str:
        """Return the name of the caller, or an empty string if nobody vouches for one.

        Raises:
            Refused: reviews of this caller are not judged.
        """
        names = connection.certificate_names
        if self.names and self.names.isdisjoint(names):
            shown = ", ".join(names)
            raise Refused(
                _FORBIDDEN, "caller", f"the client certificate is for {shown}, and spotgate judges only for others"
            )
        return names[0] if names else ""


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the common name and the DNS names in a certificate, as `ssl.SSLSocket.getpeercert` shows it.

    Return none if there is no certificate; a certificate without a name has the name ``unnamed``.
    """
    if not certificate:
        return ()
    return tuple(_names_in(certificate)) or (_UNNAMED,)


def _names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    for attributes in certificate.get("subject", ()):
        yield from (value for name, value in attributes if name == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
