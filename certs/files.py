"""Read certificates from files, such as those of cert-manager or a mounted Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certs.authority import KeyPair
from certs.verify import CertificateProblem

if TYPE_CHECKING:
    from pathlib import Path


def read_pair(certificate: Path, key: Path) -> KeyPair:
    """Return the contents of the two files, unverified. Raise CertificateProblem if one can't be read.

    The kubelet updates a mounted Secret by swapping a link to a directory (`..data`). A swap between the two reads
    returns a pair that doesn't match: `verify` rejects it, and the next read returns another one.
    """
    return KeyPair(read_file(certificate, "certificate"), read_file(key, "key"))


def read_file(path: Path, what: str) -> bytes:
    """Return the contents of a file. Raise CertificateProblem, which calls it ``what``, if it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateProblem(
            f"{path}: the {what} file can't be read ({error.strerror})",
            "check the path, the mounted volume, and the permissions of this user",
        ) from error
