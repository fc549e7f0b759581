from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from certs.authority import self_signed
from certs.files import read_pair
from certs.verify import CertificateProblem
from tests.certs.volume import mount

if TYPE_CHECKING:
    from pathlib import Path

_, PAIR = self_signed(["first.svc"], [], datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(("name", "what"), [("tls.crt", "certificate"), ("tls.key", "key")])
def test_a_mounted_secret_is_read_and_a_missing_file_is_named(tmp_path: Path, name: str, what: str) -> None:
    mount(tmp_path, "1", PAIR)
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    assert read_pair(*paths) == PAIR
    (tmp_path / name).unlink()
    with pytest.raises(CertificateProblem) as caught:
        read_pair(*paths)
    assert caught.value.problem == f"{tmp_path / name}: the {what} file can't be read (No such file or directory)"
    assert "the permissions of this user" in caught.value.fix


def test_a_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    mount(tmp_path, "1", PAIR)
    with pytest.raises(CertificateProblem, match="Is a directory"):
        read_pair(tmp_path, tmp_path / "tls.key")
