from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from certs.files import CertificateFiles
from certs.self_signed import self_signed
from certs.verify import CertificateProblem
from tests.certs.volume import mount

if TYPE_CHECKING:
    from pathlib import Path


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
_, FIRST = self_signed(["first.svc"], [], NOW)
_, SECOND = self_signed(["second.svc"], [], NOW)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    mount(tmp_path, "1", FIRST)
    return tmp_path


@pytest.fixture
def files(volume: Path) -> CertificateFiles:
    return CertificateFiles(volume / "tls.crt", volume / "tls.key")


def test_what_was_never_read_has_changed(files: CertificateFiles) -> None:
    assert files.changed()


def test_what_was_read_has_not_changed(files: CertificateFiles) -> None:
    assert files.read() == FIRST
    assert not files.changed()


def test_a_swap_of_the_mounted_secret_is_seen_until_it_is_read(files: CertificateFiles, volume: Path) -> None:
    files.read()
    mount(volume, "2", SECOND)
    assert files.changed()
    assert files.changed()
    assert files.read() == SECOND
    assert not files.changed()


def test_a_swap_to_the_same_content_is_no_change(files: CertificateFiles, volume: Path) -> None:
    files.read()
    mount(volume, "2", FIRST)
    assert not files.changed()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
def test_a_change_of_either_file_is_seen(files: CertificateFiles, volume: Path, name: str) -> None:
    files.read()
    path = volume / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert files.changed()


@pytest.mark.parametrize(("name", "what"), [("tls.crt", "certificate"), ("tls.key", "key")])
def test_a_missing_file_is_a_change_and_reading_says_which(
    files: CertificateFiles, volume: Path, name: str, what: str
) -> None:
    files.read()
    (volume / name).unlink()
    assert files.changed()
    with pytest.raises(CertificateProblem) as caught:
        files.read()
    assert caught.value.problem == f"{volume / name}: the {what} file can't be read (No such file or directory)"
    assert "this user may read it" in caught.value.fix


def test_a_file_that_came_back_as_it_was_is_no_change(files: CertificateFiles, volume: Path) -> None:
    files.read()
    (volume / "tls.key").unlink()
    with pytest.raises(CertificateProblem):
        files.read()
    (volume / "tls.key").symlink_to("..data/tls.key")
    assert not files.changed()


def test_a_directory_in_place_of_a_file_is_refused(volume: Path) -> None:
    files = CertificateFiles(volume, volume / "tls.key")
    with pytest.raises(CertificateProblem, match="Is a directory"):
        files.read()
