"""Build the TLS context of a server from a verified pair.

Always build a new context: `load_cert_chain` breaks a live one if the pair doesn't match.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from certs.verify import CertificateProblem, VerifiedKeyPair

if TYPE_CHECKING:
    from collections.abc import Iterator


def server_context(verified: VerifiedKeyPair, client_authorities: bytes | None = None) -> ssl.SSLContext:
    """Return a server context: TLS 1.2 or newer, HTTP/1.1.

    With `client_authorities` (DER, see `certs.verify`), only clients with a certificate from these CAs complete the
    handshake. Otherwise, clients need no certificate. Raises CertificateProblem if OpenSSL rejects the pair, such as
    for a short key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with _file(verified.pair.certificate_pem) as certificate, _file(verified.pair.key_pem) as key:
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise CertificateProblem(
                f"OpenSSL rejects the certificate ({error.reason})",
                "issue it with a P-256 or RSA-2048 key and a SHA-256 signature",
            ) from error
    if client_authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Go, an intermediate CA in the file is enough
        context.load_verify_locations(cadata=client_authorities)
    return context


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Yield a path to `content` for OpenSSL, which reads only files. The file is private and temporary.

    On Linux, the file is in memory: keys never reach a disk, and it works with a read-only root file system.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
