"""Make text of others safe to show."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Replace control characters and lone surrogates by spaces: what somebody wrote must not steer what shows it.

    Args:
        text: of any origin.
        keep: a character that stays although it is no printable one.
    """
    if (text.replace(keep, "") if keep else text).isprintable():
        return text
    return "".join(c if c in keep or c.isprintable() else " " for c in text)
