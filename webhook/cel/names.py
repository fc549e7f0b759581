"""Load the names of the language, and the translations of its messages: ``names.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec


class Names(msgspec.Struct, frozen=True):
    """The names of the language.

    Attributes:
        functions: the functions and macros of the library.
        variables: the type of each variable. The library resolves the longest name. So ``request.operation`` can be
            known while the rest of the request isn't, and it has a type, unlike a field that may be absent.
        fields: the fields of the request, its namespace, and node pools: fewer than in a ValidatingAdmissionPolicy.
        messages: patterns of the library's messages at evaluation, each with the message in Kubernetes' terms.
        replacements: the names in the library's messages, each with the name in policies.
    """

    functions: tuple[str, ...]
    variables: dict[str, str]
    fields: dict[str, tuple[str, ...]]
    messages: tuple[tuple[str, str], ...]
    replacements: tuple[tuple[str, str], ...]


NAMES: Final = msgspec.json.decode(Path(__file__).with_name("names.json").read_bytes(), type=Names)
