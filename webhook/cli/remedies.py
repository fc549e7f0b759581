"""The remedy of a finding, as edits of the file that the object is in."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING

from webhook.cli.judging import as_written
from webhook.cli.report import Remedy
from webhook.cluster.sources import STDIN
from webhook.documents import field_path, parse_pointer
from webhook.kube.selectors import selected_keys
from webhook.patch import PatchError, apply_json

if TYPE_CHECKING:
    from webhook.cluster.manifests import Manifest
    from webhook.patch import Operation


def remedy_of(manifest: Manifest, operations: tuple[Operation, ...]) -> Remedy | None:
    """Which characters of the file become which.

    None where no file can be edited (standard input, what another program rendered), where the text does not allow it,
    as inside of what an alias repeats, where it is about something that only the API server has, and where a selector
    in the object names a key that would go.
    """
    document = manifest.document
    if not document.source or manifest.file == STDIN:
        return None
    gone = {str(parse_pointer(each.path)[-1]) for each in operations if each.op == "remove"}
    if not gone.isdisjoint(selected_keys(manifest.value)):
        return None
    from webhook.documents.edit import Edit, EditError, edits  # noqa: PLC0415 - few findings have a remedy

    try:
        wanted = apply_json(as_written(operations, manifest), deepcopy(document.value))
        found = edits(document.source, document.value, wanted)
    except (PatchError, EditError):
        return None
    if not found:
        return None
    begin = document.begin
    placed = tuple(Edit(begin + start, begin + end, text) for start, end, text in found)
    return Remedy(_described(operations), placed)


def _described(operations: tuple[Operation, ...]) -> str:
    """What they do, for people."""
    first, *others = operations
    path = parse_pointer(first.path)
    match first.op, others:
        case "replace", _:
            return f"write {json.dumps(first.value, ensure_ascii=False)} at {field_path(path)}"
        case "remove", [added]:
            to = parse_pointer(added.path)
            return (
                f"rename {field_path(path)} to {to[-1]}"
                if path[:-1] == to[:-1]
                else f"move {field_path(path)} to {field_path(to[:-1])}"
            )
        case "remove", _:
            return f"remove {field_path(path)}"
        case _:
            return f"add to {field_path(path[:-1])}"
