"""Versions of Kubernetes as people, `kubectl version` and providers write them; what is none is refused."""

from __future__ import annotations

import pytest

from webhook.kube.versions import parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.34", (1, 34)),
        ("v1.34.2", (1, 34)),
        ("v1.33.5-gke.1080000", (1, 33)),
        ("v1.32.9-eks-3025e55", (1, 32)),
        ("1.31.1+k3s1", (1, 31)),
    ],
)
def test_major_and_minor_count(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text", ["", "1", "1.", "1.2O", "1.34.", "1.34.2.1", "1.34 ", "1.34\n", "1.٣", "latest", "1.12345"]
)
def test_anything_else_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a Kubernetes version; write it as 1\.34$"):
        parse_version(text)
