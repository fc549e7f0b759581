"""The tables of ``docs/providers.md``, generated from ``policies/providers/``."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.documents import read_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.reader_schema import GraceWindowSpec, MachinesSpec, NodePoolReaderSpec

ROOT: Final = Path(__file__).parents[2]


class AnnotationError(Exception):
    """An annotation of a shipped provider that doesn't name the pages of its facts."""

    def __init__(self, file: str, annotation: str, text: str) -> None:
        super().__init__(f"policies/providers/{file}: metadata.annotations.{annotation}: {text}")


def providers() -> list[tuple[str, dict[str, Any], CapacityProviderSpec]]:
    """Return the file name, document, and spec of each shipped provider."""
    listed = []
    files = (ROOT / "policies" / "providers").glob("*.yaml")
    for file in sorted(files, key=lambda file: (file.stem != "cks", file.stem)):
        (read,) = read_documents(file.read_bytes(), str(file))
        document = cast("dict[str, Any]", read.value)
        listed.append((file.name, document, CapacityProviderSpec.model_validate(document["spec"])))
    return listed


def provider_table() -> str:
    """Return the facts about each provider."""
    specs = [spec for _, _, spec in providers()]
    heads = [f"[{spec.title}]({_source(name, document)})" for name, document, spec in providers()]
    rows: list[tuple[str, Callable[[CapacityProviderSpec], str]]] = [
        ("file", lambda spec: next(f"`{name}`" for name, _, provider in providers() if provider.title == spec.title)),
        (
            "labels of spot nodes",
            lambda spec: _lines(
                _marked(
                    f"{label.key}={label.value}", label.note or ("no other node has the key" if label.spot_only else "")
                )
                for label in spec.spot_node_labels
            ),
        ),
        ("label that names a node's pool", lambda spec: _codes([spec.pool_name_label, *spec.other_pool_name_labels])),
        (
            "taints of spot nodes",
            lambda spec: _lines(
                _marked(f"{taint.key}={taint.value}:{taint.effect}", taint.note) for taint in spec.spot_node_taints
            ),
        ),
        (
            "taints of a platform",
            lambda spec: _codes(f"{taint.key}={taint.value}:{taint.effect}" for taint in spec.platform_taints),
        ),
        (
            "capacity that ends by itself",
            lambda spec: _lines(
                (
                    *(_code(f"{label.key}={label.value}") for label in spec.limited.node_labels),
                    *((spec.limited.ends,) if "limited" in spec.model_fields_set else ()),
                )
            ),
        ),
        ("never tolerated", lambda spec: _codes(toleration.key for toleration in spec.never_tolerate)),
        ("GPU resources", lambda spec: _codes(spec.gpu.resources.patterns)),
        (
            "taints only for Pods that request GPUs",
            lambda spec: ", ".join(
                _marked(
                    f"{taint.key}={taint.value}" if taint.value else taint.key,
                    "on every node with GPUs" if taint.automatic else "",
                )
                for taint in spec.gpu.taints
            ),
        ),
        ("instance types with GPUs", lambda spec: _codes(spec.instance_types.gpu.patterns)),
        ("instance types of arm64", lambda spec: _codes(spec.instance_types.arm.patterns)),
        ("labels of machines with GPUs", lambda spec: _codes(spec.gpu.labels.patterns)),
        ("labels that name machines", lambda spec: _codes(label.key for label in spec.machine_labels)),
        ("never spot", lambda spec: _codes(spec.instance_types.never_spot.patterns)),
        (
            "ignored",
            lambda spec: _lines(
                (
                    *(f"scheduler `{item}`" for item in spec.hands_off_schedulers.patterns),
                    *(f"selector `{item}`" for item in spec.hands_off_selectors),
                )
            ),
        ),
        (
            "a reclaim: cordon, drain, removal",
            lambda spec: ", ".join(
                f"{seconds} s"
                for seconds in (
                    spec.interruption.cordon_seconds,
                    spec.interruption.drain_seconds,
                    spec.interruption.removal_seconds,
                )
            ),
        ),
        (
            "grace budget of a Pod",
            lambda spec: f"{spec.grace_period.budget_seconds} s, less {spec.grace_period.safety_margin_seconds} s",
        ),
        ("a GPU spot pool needs", _needs),
    ]
    return _table(["", *heads], ([title, *(cell(spec) for spec in specs)] for title, cell in rows))


def _source(file: str, document: Mapping[str, Any]) -> str:
    if source := _annotation(document, "source"):
        return source
    raise AnnotationError(file, "source", "write the address of the page that its facts are from")


def _annotation(document: Mapping[str, Any], name: str) -> str:
    return str(document["metadata"].get("annotations", {}).get(name, ""))


def checked_pages() -> str:
    """Return the source pages of the facts about each provider, and the date of the last check."""
    rows: list[list[str]] = []
    for name, document, spec in providers():
        checked = _annotation(document, "checked")
        try:
            pages = {page: date.fromisoformat(day) for day, page in map(str.split, checked.splitlines())}
        except ValueError as error:
            text = "write each line as a date and an address, for example: 2026-11-27 https://..."
            raise AnnotationError(name, "checked", text) from error
        if (source := _source(name, document)) not in pages:
            raise AnnotationError(name, "checked", f"add a line with the date and the address in `source`, {source}")
        rows += [[spec.title, day.isoformat(), f"<{page}>"] for page, day in pages.items()]
    return _table(["provider", "checked", "page"], rows)


def node_pool_tables() -> str:
    """Return the fields that each reader of node pools reads."""
    kinds = [(spec, reader) for _, _, spec in providers() for reader in spec.node_pools]
    rows: list[tuple[str, Callable[[NodePoolReaderSpec], str]]] = [
        ("API", lambda reader: f"`{reader.group}` {', '.join(reader.versions)}"),
        ("condition", lambda reader: _code(reader.when)),
        ("listed in", lambda reader: f"{reader.listed_in.kind} `{reader.listed_in.field}`" if reader.listed_in else ""),
        ("template of its machines", lambda reader: _code(reader.template.from_ if reader.template else None)),
        ("spot, on-demand", lambda reader: _of_machines(reader, _capacity)),
        (
            "instance type",
            lambda reader: _of_machines(reader, lambda fields: _code(fields.instance_type or reader.requirements)),
        ),
        ("GPUs, in addition to the type", lambda reader: _of_machines(reader, _accelerators)),
        ("size", _size),
        (
            "autoscaled; at most",
            lambda reader: "; ".join(
                filter(None, (_code(reader.size.autoscaling), _code(reader.size.maximum), _code(reader.size.limits)))
            ),
        ),
        ("taints", lambda reader: _code(reader.taints) + (" as `key=value:Effect`" if reader.taint_texts else "")),
        ("labels", lambda reader: _code(reader.labels)),
        ("pools without an object", lambda reader: _codes(reader.built_in)),
        ("name of the pool", lambda reader: _code(reader.pool_name or "metadata.name")),
        ("zones", lambda reader: _code(reader.zones or reader.requirements)),
        ("cluster", _cluster),
        ("grace period", _grace),
        (
            "no nodes",
            lambda reader: _lines(rule.because + (" (it passes)" if rule.passing else "") for rule in reader.unusable),
        ),
    ]
    return "\n\n".join(
        f"### {reader.kind} ({spec.title})\n\n"
        + _table(
            ["", "where it is read"],
            ([title, text] for title, cell in rows if (text := cell(reader)) not in {"", "none"}),
        )
        for spec, reader in kinds
    )


def _of_machines(reader: NodePoolReaderSpec, cell: Callable[[MachinesSpec], str]) -> str:
    """Return the machine fields of a pool, or those of each kind of template."""
    if reader.template is None:
        return cell(reader)
    return _lines(f"{kind.kind}: {text}" for kind in reader.template.kinds if (text := cell(kind)))


def _accelerators(machines: MachinesSpec) -> str:
    where = machines.accelerators
    return _codes(filter(None, (where.type, where.count, where.when)))


def _capacity(machines: MachinesSpec) -> str:
    capacity = machines.capacity
    if capacity is None:
        return ""
    where = _code(capacity.from_) or f"requirements on `{capacity.label}`"
    values = ", ".join(f"`{value}` {meant}" for value, meant in capacity.values.items())
    limited = f"; limited where {_code(capacity.limited)}" if capacity.limited else ""
    return f"{where}: {values}; else {capacity.default}{limited}"


def _size(reader: NodePoolReaderSpec) -> str:
    by = reader.size.sized_by
    return _code(reader.size.desired) or (f"{by.kind} `{by.group}`: {_code(by.desired)}" if by is not None else "")


def _cluster(reader: NodePoolReaderSpec) -> str:
    by = reader.size.sized_by
    sized = f"; else {by.kind} {_code(by.cluster)}" if by is not None and by.cluster else ""
    path = f", also as {_code(reader.cluster_path)}" if reader.cluster_path else ""
    return f"{_code(reader.cluster)}{path}{sized}" if reader.cluster else "this one"


def _grace(reader: NodePoolReaderSpec) -> str:
    grace = reader.grace_period
    return _lines((*map(_window, grace.windows), *((f"at most {_code(grace.limit)}",) if grace.limit else ())))


def _needs(spec: CapacityProviderSpec) -> str:
    needs = (f"an on-demand pool, {need.require}: else {need.outcome}" for need in spec.fallback)
    return _lines(needs) if spec.fallback else "what the policy requires"


def _window(window: GraceWindowSpec) -> str:
    time = _code(window.from_) or f"{window.budget_seconds} s"
    less = f" less {_code(window.reserved)}" if window.reserved else ""
    where = f" where {_code(window.when)}" if window.when else ""
    return f"{time}{less}, less {window.safety_margin_seconds} s{where}" + (f" ({window.note})" if window.note else "")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _marked(text: str, note: str) -> str:
    return f"`{text}`" + (f" ({note})" if note else "")


def _code(text: Query | str | None) -> str:
    if not text:
        return ""
    text = " ".join((text if isinstance(text, str) else text.text).split())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _codes(texts: Iterable[Query | str]) -> str:
    return ", ".join(map(_code, texts)) or "none"


def _lines(texts: Iterable[str]) -> str:
    return "<br>".join(texts) or "none"
