"""Parse Kubernetes versions in the forms that users write."""

from __future__ import annotations

import re
from typing import Final

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
