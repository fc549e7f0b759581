"""Certificates that somebody else puts into files: cert-manager, a mounted Secret, a person."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from certs.authority import KeyPair
from certs.verify import CertificateProblem

if TYPE_CHECKING:
    from pathlib import Path


class CertificateFiles:
    """A certificate file and a key file, noticed by content when they change.

    By content and not by time stamps or inodes: a mounted Secret is swapped through a link of its directory
    (`..data`). A swap between the two reads gives a pair that does not match: `verify` refuses it, and the
    next `changed` is true again.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._last_read: bytes | None = None

    def read(self) -> KeyPair:
        """Return what the files hold, unverified. Raises CertificateProblem if one can't be read."""
        pair = self._pair()
        self._last_read = _digest(pair)
        return pair

    def changed(self) -> bool:
        """Tell whether `read` would not return what it last returned; true also where it would raise."""
        try:
            return _digest(self._pair()) != self._last_read
        except CertificateProblem:
            return True

    def _pair(self) -> KeyPair:
        return KeyPair(_content(self._certificate, "certificate"), _content(self._key, "key"))


def _content(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateProblem(
            f"{path}: the {what} file can't be read ({error.strerror})",
            "check the path, the mounted Secret and that this user may read it",
        ) from error


def _digest(pair: KeyPair) -> bytes:
    # The digest and not the pair is kept, so no second copy of the key stays in memory. PEM has no NUL.
    return hashlib.sha256(pair.certificate_pem + b"\0" + pair.key_pem).digest()
