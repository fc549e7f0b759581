from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.quantity import amount_of, canonical_quantity, parse_version


# From a kube-apiserver 1.36.
@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (1, "1"),
        (0.5, "500m"),
        (1000, "1k"),
        (1.25, "1250m"),
        (1e-7, "1e-3"),
        (123456789, "123456789"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.0005", "1001m"),
        ("1n", "1m"),
        ("100k", "100k"),
        ("1024M", "1024M"),
        ("0", "0"),
        ("0Mi", "0"),
        ("1023", "1023"),
        ("1024", "1024"),
        ("2048Mi", "2Gi"),
        ("1500Mi", "1500Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1Ei", "1Ei"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1500e-3", "1500e-3"),
        ("1e5", "100e3"),
        ("1E", "1E"),
    ],
)
def test_a_quantity_is_formatted_as_on_the_api_server(written: object, canonical: str) -> None:
    assert canonical_quantity(written) == canonical


@pytest.mark.parametrize(
    "value", ["abc", "1 Gi", "1Ki5", "0x1", "", "-", ".", "1e999999999", "9" * 30, True, None, [], {}]
)
def test_an_invalid_quantity_is_unchanged(value: Any) -> None:
    assert canonical_quantity(value) is value


@given(st.from_regex(r"-?\d{1,15}(\.\d{0,6})?([numkMGTP]|[KMGTP]i|e-?\d)?", fullmatch=True))
def test_the_canonical_form_is_stable(text: str) -> None:
    canonical = canonical_quantity(text)

    assert canonical_quantity(canonical) == canonical


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (0, 0.0),
        ("500m", 0.5),
        (1.5, 1.5),
        ("2Ki", 2048.0),
        ("1e3", 1000.0),
        ("-1", -1.0),
        ("many", None),
        ("", None),
        (True, None),
        (None, None),
        (["1"], None),
        ("9" * 25, None),
    ],
)
def test_a_quantity_is_parsed_to_an_amount(written: object, amount: float | None) -> None:
    assert amount_of(written) == amount


# Versions


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
def test_major_and_minor_are_parsed(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text", ["", "1", "1.", "1.2O", "1.34.", "1.34.2.1", "1.34 ", "1.34\n", "1.٣", "latest", "1.12345"]
)
def test_other_text_is_not_a_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a Kubernetes version; write it as 1\.34$"):
        parse_version(text)
