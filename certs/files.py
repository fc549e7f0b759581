"""Read certificates from files, such as those of cert-manager or a mounted Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certs.authority import KeyPair
from certs.verify import CertificateProblem

if TYPE_CHECKING:
    from pathlib import Path


def read_pair(certificate: Path, key: Path) -> KeyPair:
    """Return what the two files hold, unverified. Raise CertificateProblem if one can't be read.

    A mounted Secret is swapped through a link of its directory (`..data`). A swap between the two reads gives a pair
    that does not match: `verify` refuses it, and the next read gives another one.
    """
    return KeyPair(read_file(certificate, "certificate"), read_file(key, "key"))


def read_file(path: Path, what: str) -> bytes:
    """Return what a file holds; ``what`` names it in the CertificateProblem that is raised if it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateProblem(
            f"{path}: the {what} file can't be read ({error.strerror})",
            "check the path, the mounted volume and that this user may read it",
        ) from error
