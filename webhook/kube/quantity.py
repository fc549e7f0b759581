"""Parse quantities (``500m``, ``1.5Gi``) and versions (``v1.34.2``), and write quantities in their canonical form.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal
from functools import lru_cache
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d{1,2}))", re.ASCII)
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MILLI: Final = _DECIMAL.index("m")
_ONE: Final = _DECIMAL.index("")
_LENGTH: Final = 24
"""The maximum length of a quantity to parse, in characters. The largest quantity, 2**63 - 1, has 19 digits."""


def amount_of(value: object) -> Decimal | None:
    """Return the amount of a quantity, or None if the value isn't a quantity."""
    quantity = _read(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    return quantity[0] if quantity is not None else None


def canonical_quantity(value: Any) -> Any:
    """Return a quantity in its canonical form, rounded up to a thousandth. Return other values unchanged.

    ``0.5`` becomes ``500m``, the number 1000 becomes ``1k``, ``2048Mi`` becomes ``2Gi``, and ``1500Mi`` stays.
    """
    text = str(value)
    canonical = _canonical(text) if len(text) <= _LENGTH else None
    return value if canonical is None else canonical


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str | None:
    """Return the canonical form, or None if the text isn't a quantity. Cached, because manifests repeat quantities."""
    quantity = _read(text)
    if quantity is None:
        return None
    amount, binary, exponent = quantity
    thousandths = int(amount.scaleb(3).to_integral_value(ROUND_UP))
    if not thousandths:
        return "0"
    units, rest = divmod(thousandths, 1000)
    if binary and not rest and abs(units) >= 1024:  # noqa: PLR2004 - amounts below 1Ki are decimal
        whole, times = _divide(units, 1024, len(_BINARY) - 1)
        return f"{whole}{_BINARY[times]}"
    whole, times = _divide(thousandths, 1000, len(_DECIMAL) - 1 - _MILLI)
    power = _MILLI + times
    if exponent and power != _ONE:
        return f"{whole}e{3 * (power - _ONE)}"
    return f"{whole}{_DECIMAL[power]}"


def _read(value: object) -> tuple[Decimal, bool, bool] | None:
    """Return the amount, whether it has a binary suffix, and whether it has an exponent. Return None if malformed."""
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH else None
    if match is None:
        return None
    number, binary, decimal, exponent = match.groups()
    amount = Decimal(number)
    if binary:
        amount *= 1024 ** _BINARY.index(binary)
    elif exponent:
        amount = amount.scaleb(int(exponent))
    else:
        amount = amount.scaleb(3 * (_DECIMAL.index(decimal) - _ONE))
    return amount, bool(binary), bool(exponent)


def _divide(number: int, divisor: int, limit: int) -> tuple[int, int]:
    """Divide while the remainder is zero. Return the quotient and the number of divisions."""
    times = 0
    while times < limit and number % divisor == 0:
        number //= divisor
        times += 1
    return number, times


VERSION: Final = r"v?([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]+)?([-+].*)?"
"""A pattern with the same meaning in Python and JavaScript."""


def parse_version(text: str) -> tuple[int, int]:
    """Return (major, minor) of ``1.34``, ``v1.34.2``, or ``v1.34.2-gke.100``.

    Raise ValueError if the text isn't a version.
    """
    match = re.fullmatch(VERSION, text)
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes version; write it as 1.34")
    return int(match[1]), int(match[2])
