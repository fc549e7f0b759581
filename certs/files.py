"""Read certificates from files, such as those of cert-manager or a mounted Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certs.authority import KeyPair
from certs.verify import CertificateProblem

if TYPE_CHECKING:
    from pathlib import Path


def read_pair(certificate: Path, key: Path) -> KeyPair:
    """Return the contents of the two files, unverified. Raise CertificateProblem if a file can't be read.

    The kubelet updates a mounted Secret by swapping a link to a directory (`..data`). If it swaps the link between the
    two reads, the pair doesn't match: `verify` rejects it, and the next read returns a matching pair.
    """
    return KeyPair(read_file(certificate, "certificate"), read_file(key, "key"))


def read_file(path: Path, what: str) -> bytes:
    """Return the contents of a file. Raise CertificateProblem if it can't be read; the message names ``what``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateProblem(
            f"{path}: the {what} file can't be read ({error.strerror})",
            "check the path, the mounted volume, and the permissions of this user",
        ) from error
