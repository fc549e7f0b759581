"""Identify callers, and reject those whose reviews are not judged.

A caller is identified by the name in its client certificate, which TLS has verified. API servers of Kubernetes 1.37
can send a ServiceAccount token with each review instead (KEP-6060, alpha): it would be verified here, from the
request's headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from webhook.server.rejected import RejectedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNAUTHENTICATED: Final = "unauthenticated"
"""Stands in the log for the name of a caller that did not show who it is."""

_FORBIDDEN: Final = 403
_UNNAMED: Final = "unnamed"


@dataclass(frozen=True, slots=True)
class Callers:
    """The callers whose reviews are judged.

    Attributes:
        names: of client certificates; empty: any caller that passes TLS.
    """

    names: frozenset[str] = frozenset()

    def identify(self, names: Sequence[str]) -> str:
        """Return the name of the caller, or an empty string if it showed no certificate.

        Args:
            names: those in its client certificate.

        Raises:
            RejectedError: reviews of this caller are not judged.
        """
        if self.names and self.names.isdisjoint(names):
            shown = ", ".join(names)
            raise RejectedError(
                _FORBIDDEN, "caller", f"the client certificate is for {shown}, and spotgate judges only for others"
            )
        return names[0] if names else ""


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the common name and the DNS names in a certificate, as `ssl.SSLSocket.getpeercert` shows it.

    Return an empty tuple if there is no certificate. A certificate without a name has the name ``unnamed``.
    """
    if not certificate:
        return ()
    return tuple(_names_in(certificate)) or (_UNNAMED,)


def _names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    for attributes in certificate.get("subject", ()):
        yield from (value for name, value in attributes if name == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
