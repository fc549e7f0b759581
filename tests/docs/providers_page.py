"""The tables of ``docs/providers.md``, generated from ``policies/providers/``."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tests.specs import spec_of
from webhook.capacity.providers.schema import CapacityProviderSpec, GpuSpec, LimitedSpec
from webhook.documents import read_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
    for file in (ROOT / "policies" / "providers").glob("*.yaml"):
        (read,) = read_documents(file.read_bytes(), str(file))
        document = cast("dict[str, Any]", read.value)
        listed.append((file.name, document, spec_of(CapacityProviderSpec, document["spec"])))
    listed.sort(key=lambda provider: (provider[0] != "cks.yaml", provider[2].title.casefold()))
    return listed


def provider_table() -> str:
    """Return one row for each provider, with the facts that most readers look for."""
    heads = [
        "provider",
        "labels of spot nodes",
        "taints of spot nodes",
        "removal",
        "budget of a Pod",
        "pools read",
        "checked",
    ]
    rows = (
        (
            f"[{spec.title}](#{spec.title.lower().replace(' ', '-')})",
            _codes(f"{label.key}={label.value}" for label in spec.spot_node_labels),
            _codes(str(taint.taint) for taint in spec.spot_node_taints),
            f"{spec.interruption.removal_seconds} s",
            f"{spec.grace_period.budget_seconds - spec.grace_period.safety_margin_seconds} s",
            _codes(dict.fromkeys(reader.kind for reader in spec.node_pools)),
            min(_pages(name, document).values()).isoformat(),
        )
        for name, document, spec in providers()
    )
    return _table(heads, rows)


def provider_sections() -> str:
    """Return all facts about each provider, and the fields that each of its readers of node pools reads."""
    return "\n\n".join(
        "\n\n".join(
            (
                f"### {spec.title}",
                _facts([("file", f"`{name}`"), *_about(spec), *_sources(name, document)]),
                *(f"#### {reader.kind} ({spec.title})\n\n{_facts(_about_pools(reader))}" for reader in spec.node_pools),
            )
        )
        for name, document, spec in providers()
    )


def _about(spec: CapacityProviderSpec) -> Iterator[tuple[str, str]]:
    """Yield the facts about a provider, each with its title."""
    yield (
        "labels of spot nodes",
        _lines(
            _marked(
                f"{label.key}={label.value}", label.note or ("only spot nodes have the key" if label.spot_only else "")
            )
            for label in spec.spot_node_labels
        ),
    )
    yield "taints of spot nodes", _lines(_marked(str(taint.taint), taint.note) for taint in spec.spot_node_taints)
    yield "pool-name labels", _codes(filter(None, (spec.pool_name_label, *spec.other_pool_name_labels)))
    times = spec.interruption
    yield (
        "cordon, drain, removal",
        f"{times.cordon_seconds} s, {times.drain_seconds} s, {times.removal_seconds} s after the notice",
    )
    yield "drained by", _marked(times.drained_by, times.assumes)
    signals = {f"{signal.type} {_code(signal.key)}": None for signal in spec.reclaim_notice}
    yield "reclaim signals", _lines(signals)
    grace = spec.grace_period
    yield "grace budget", f"{grace.budget_seconds} s, less {grace.safety_margin_seconds} s"
    yield "taints of Arm and Windows nodes", _codes(str(taint.taint) for taint in spec.platform_taints)
    if spec.limited != LimitedSpec():
        yield (
            "time-limited capacity",
            _lines((*(_code(f"{label.key}={label.value}") for label in spec.limited.node_labels), spec.limited.ends)),
        )
    yield "never tolerated", _codes(toleration.key for toleration in spec.never_tolerate)
    usual = GpuSpec()
    yield "GPU resources", _codes(spec.gpu.resources.patterns if spec.gpu.resources != usual.resources else ())
    yield (
        "taints tolerated for Pods that request GPUs",
        _codes(
            f"{taint.key}={taint.value}" if taint.value else taint.key
            for taint in spec.gpu.taints
            if not taint.automatic
        ),
    )
    yield (
        "taints of all nodes with GPUs",
        _codes(
            f"{taint.key}={taint.value}" if taint.value else taint.key for taint in spec.gpu.taints if taint.automatic
        ),
    )
    yield "GPU instance types", _codes(spec.instance_types.gpu.patterns)
    yield "arm64 instance types", _codes(spec.instance_types.arm.patterns)
    yield "never spot", _codes(spec.instance_types.never_spot.patterns)
    yield "labels of machines with GPUs", _codes(spec.gpu.labels.patterns)
    yield "labels that name machines", _codes(label.key for label in spec.machine_labels)
    yield "schedulers whose Pods spotgate doesn't change", _codes(spec.hands_off_schedulers.patterns)
    yield "selectors whose Pods spotgate doesn't change", _codes(spec.hands_off_selectors)
    yield (
        "a GPU spot pool needs",
        _lines(f"an on-demand pool ({need.require}); otherwise {need.outcome}" for need in spec.fallback),
    )


def _about_pools(reader: NodePoolReaderSpec) -> Iterator[tuple[str, str]]:
    """Yield where each fact about a node pool is read, with its title."""
    yield "API", f"`{reader.group}` {', '.join(reader.versions)}" + (" (only in files)" if reader.files_only else "")
    yield "condition", _code(reader.when)
    yield "listed in", f"{reader.listed_in.kind} `{reader.listed_in.field}`" if reader.listed_in else ""
    yield "machine template", _code(reader.template.from_ if reader.template else None)
    yield "spot, on-demand", _of_machines(reader, _capacity)
    yield "instance type", _of_machines(reader, lambda fields: _code(fields.instance_type or reader.requirements))
    yield "GPUs, if the instance type doesn't show them", _of_machines(reader, _accelerators)
    yield "size", _size(reader)
    sizes = (reader.size.autoscaling, reader.size.maximum, reader.size.limits)
    yield "autoscaled; at most", "; ".join(filter(None, map(_code, sizes)))
    yield "taints", _code(reader.taints) + (" as `key=value:Effect`" if reader.taint_texts else "")
    yield "labels", _code(reader.labels)
    yield "built-in pools", _codes(reader.built_in)
    yield "pool name", _code(reader.pool_name or "metadata.name")
    yield "zones", _code(reader.zones or reader.requirements)
    yield "cluster", _cluster(reader)
    yield "grace period", _grace(reader)
    yield (
        "counts as empty if",
        _lines(rule.because + (" (temporary)" if rule.passing else "") for rule in reader.unusable),
    )


def _pages(file: str, document: Mapping[str, Any]) -> dict[str, date]:
    """Return the source pages of the facts about a provider, each with the date of the last check."""
    annotations = document["metadata"].get("annotations", {})
    source = annotations.get("source")
    if not source:
        raise AnnotationError(file, "source", "write the address of the page that its facts are from")
    try:
        pages = {
            page: date.fromisoformat(day) for day, page in map(str.split, annotations.get("checked", "").splitlines())
        }
    except ValueError as error:
        text = "write each line as a date and an address, for example: 2026-11-27 https://..."
        raise AnnotationError(file, "checked", text) from error
    if source not in pages:
        raise AnnotationError(file, "checked", f"add a line with the date and the address in `source`, {source}")
    return pages


def _sources(file: str, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts that no page states, and the pages of the others."""
    yield "not verified", _lines(document["metadata"]["annotations"].get("unverified", "").splitlines())
    yield (
        "source pages, by date of the last check",
        _lines(f"{day} <{page}>" for page, day in _pages(file, document).items()),
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
    values = ", ".join(f"`{value}`: {meant}" for value, meant in capacity.values.items())
    limited = f"; limited if {_code(capacity.limited)}" if capacity.limited else ""
    return f"{where} ({values}); otherwise {capacity.default}{limited}"


def _size(reader: NodePoolReaderSpec) -> str:
    by = reader.size.sized_by
    return _code(reader.size.desired) or (f"{by.kind} `{by.group}`: {_code(by.desired)}" if by is not None else "")


def _cluster(reader: NodePoolReaderSpec) -> str:
    by = reader.size.sized_by
    sized = f"; otherwise {by.kind} {_code(by.cluster)}" if by is not None and by.cluster else ""
    path = f", also as {_code(reader.cluster_path)}" if reader.cluster_path else ""
    return f"{_code(reader.cluster)}{path}{sized}" if reader.cluster else "this one"


def _grace(reader: NodePoolReaderSpec) -> str:
    grace = reader.grace_period
    return _lines((*map(_window, grace.windows), *((f"at most {_code(grace.limit)}",) if grace.limit else ())))


def _window(window: GraceWindowSpec) -> str:
    time = _code(window.from_) or f"{window.budget_seconds} s"
    less = f" less {_code(window.reserved)}" if window.reserved else ""
    where = f" if {_code(window.when)}" if window.when else ""
    return f"{time}{less}, less {window.safety_margin_seconds} s{where}" + (f" ({window.note})" if window.note else "")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return a table of the facts that exist."""
    return _table(["", ""], ([title, text] for title, text in facts if text not in {"", "none"}))


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
