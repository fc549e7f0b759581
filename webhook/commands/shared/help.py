"""Read the help of a command from the docstring of its module."""

from __future__ import annotations

import re
from typing import Final

_HEADING: Final = re.compile(r"^[a-z][\w ]+:$", re.MULTILINE)


def help_of(docstring: str | None) -> tuple[str, str]:
    """Return the help above and below the flags: the text under the title, and that from the first heading on.

    A heading is a line such as ``examples:``.
    """
    _, _, text = (docstring or "").partition("\n\n")
    heading = _HEADING.search(text)
    end = len(text) if heading is None else heading.start()
    return text[:end], text[end:]
