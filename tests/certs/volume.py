"""The volume of a mounted Secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from certs.authority import KeyPair


def mount(volume: Path, revision: str, pair: KeyPair) -> None:
    """Write a pair to a volume as the kubelet does: create a directory, then point `..data` at it."""
    directory = volume / f"..{revision}"
    directory.mkdir(parents=True)
    (directory / "tls.crt").write_bytes(pair.certificate_pem)
    (directory / "tls.key").write_bytes(pair.key_pem)
    link = volume / "..data_tmp"
    link.symlink_to(directory.name)
    link.rename(volume / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
