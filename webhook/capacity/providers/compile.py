"""Compile a ``CapacityProvider`` document into a `Provider`."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from webhook.capacity.providers.grace import Grace, PoolGrace, Window
from webhook.capacity.providers.joins import Sizer
from webhook.capacity.providers.limits import Least
from webhook.capacity.providers.machines import TYPE_LABEL, GpuLists, Machines
from webhook.capacity.providers.pool import CapacityType, Taint
from webhook.capacity.providers.pool_fields import AcceleratorFields, CapacityField, PoolList, UnusableCondition
from webhook.capacity.providers.provider import (
    FallbackNeed,
    GpuTaint,
    Interruption,
    Label,
    NodeWindow,
    Provider,
    TaintPattern,
)
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.reader import PoolReader
from webhook.capacity.providers.reader_schema import NodePoolReaderSpec, SizeReaderSpec
from webhook.decision import Outcome
from webhook.globs import Globs
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.capacity.providers.query import QueryPath
    from webhook.capacity.providers.reader_schema import TemplateSpec
    from webhook.capacity.providers.schema import CapacityProviderSpec, LabelSpec, SpotLabelSpec, TaintPatternSpec


def compile_provider(
    name: str, spec: CapacityProviderSpec, spot_taints: Sequence[TaintPatternSpec] = (), cluster: str = ""
) -> Provider:
    """Compile a provider and its readers.

    ``spot_taints`` are those that policies name; ``cluster`` replaces the ``thisCluster`` of the spec.
    """
    if cluster:
        spec = spec.model_copy(update={"this_cluster": cluster})
    machines = _machines(spec)
    return Provider(
        name=name,
        title=spec.title,
        spot_labels=_spot_labels(spec.spot_node_labels),
        spot_taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.spot_node_taints),
        spot_taint_patterns=(
            *(TaintPattern(taint.key, taint.value) for taint in spec.spot_node_taints),
            *_patterns(spot_taints),
        ),
        taints_declared_pools=any(taint.declared_pools for taint in spec.spot_node_taints),
        pool_label=spec.pool_name_label,
        other_pool_labels=spec.other_pool_name_labels,
        platform_taints=tuple(Taint(each.key, each.value, each.effect) for each in spec.platform_taints),
        forbidden_taints=_patterns([each for each in spec.never_tolerate if not each.passing]),
        passing_taints=_patterns([each for each in spec.never_tolerate if each.passing]),
        gpu_taints=_patterns(spec.gpu.taints),
        automatic_gpu_taints=tuple(
            GpuTaint(Taint(each.key, each.value, each.effect), Globs(each.instance_types))
            for each in spec.gpu.taints
            if each.automatic and each.effect
        ),
        taints_gpus=any(taint.automatic for taint in spec.gpu.taints),
        gpu_resources=Globs(spec.gpu.resources),
        machines=machines,
        hands_off_schedulers=Globs(spec.hands_off_schedulers),
        hands_off_selectors=frozenset(spec.hands_off_selectors),
        system_namespaces=Globs(spec.system_namespaces.names),
        system_namespace_labels=_labels(spec.system_namespaces.labels),
        timeline=Interruption(
            spec.interruption.cordon_seconds,
            spec.interruption.drain_seconds,
            spec.interruption.removal_seconds,
            evicts=spec.interruption.drained_by == "eviction",
        ),
        grace_budget=spec.grace_period.budget_seconds,
        safety_margin=spec.grace_period.safety_margin_seconds,
        node_windows=tuple(
            NodeWindow(Label(each.key, each.value), each.budget_seconds, each.safety_margin_seconds)
            for each in spec.grace_period.by_node_label
        ),
        fallback=tuple(
            FallbackNeed(each.require, Outcome[each.outcome.upper()], each.because) for each in spec.fallback
        ),
        readers=tuple(chain.from_iterable(_readers(name, spec, reader, machines) for reader in spec.node_pools)),
    )


def _labels(specs: Sequence[LabelSpec]) -> tuple[Label, ...]:
    return tuple(Label(label.key, label.value) for label in specs)


def _spot_labels(specs: Sequence[SpotLabelSpec]) -> tuple[Label, ...]:
    return tuple(Label(label.key, label.value, label.spot_only) for label in specs)


def _patterns(specs: Sequence[TaintPatternSpec]) -> tuple[TaintPattern, ...]:
    return tuple(TaintPattern(taint.key, taint.value, taint.effect) for taint in specs)


@lru_cache(maxsize=512)  # providers repeat each other, and the next bundle this one
def _query(text: str | None) -> Query | None:
    return None if text is None else Query(text)


def _machines(spec: CapacityProviderSpec) -> Machines:
    types = GpuLists(gpu=Globs(spec.instance_types.gpu), cpu=Globs(spec.instance_types.cpu))
    labels = {TYPE_LABEL: types}
    for label in spec.machine_labels:
        labels[label.key] = GpuLists(Globs(label.gpu), Globs(label.cpu)) if label.gpu or label.cpu else types
    return Machines(
        types=types,
        arm=Globs(spec.instance_types.arm),
        arm_labels=tuple((label.key, Globs(label.arm)) for label in spec.machine_labels if label.arm),
        never_spot=Globs(spec.instance_types.never_spot),
        labels=tuple(labels.items()),
        gpu_labels=Globs(spec.gpu.labels),
        domains=frozenset(each.key.partition("/")[0] for each in spec.machine_labels),
        other_labels=frozenset(spec.other_machine_labels),
        allocatable=spec.instance_types.allocatable,
    )


def _readers(
    name: str, provider: CapacityProviderSpec, spec: NodePoolReaderSpec, machines: Machines
) -> Iterator[PoolReader]:
    """Yield the reader of the pools, and those of the templates that say which machines their nodes are."""
    yield _reader(name, provider, spec, machines)
    for kind in spec.template.kinds if spec.template is not None else ():
        fields: dict[str, Any] = {**dict(kind), "namespaced": spec.namespaced, "size": SizeReaderSpec.model_construct()}
        as_pool = NodePoolReaderSpec.model_construct(**fields)
        yield replace(_reader(name, provider, as_pool, machines), is_template=True)


def _of_template(spec: TemplateSpec) -> CapacityField:
    return CapacityField(
        query=Query(spec.from_),
        label="",
        values={},
        default=CapacityType(spec.default),
        words=(),
        on_demand="",
        flag=False,
    )


def _capacity(spec: NodePoolReaderSpec) -> CapacityField:
    capacity = spec.capacity
    if spec.template is not None:
        return _of_template(spec.template)
    if capacity is None:
        raise TypeError("a reader without template has a capacity")
    return CapacityField(
        query=Query(capacity.from_ or spec.requirements or ""),
        label=capacity.label or "",
        values={value.casefold(): CapacityType(meant) for value, meant in capacity.values.items()},
        default=CapacityType(capacity.default),
        words=tuple(capacity.values),
        on_demand=next((value for value, meant in capacity.values.items() if meant == "on-demand"), ""),
        flag={value.casefold() for value in capacity.values} <= {"true", "false"},
    )


def _reader(name: str, provider: CapacityProviderSpec, spec: NodePoolReaderSpec, machines: Machines) -> PoolReader:
    accelerators, size = spec.accelerators, spec.size
    return PoolReader(
        provider=name,
        pool_label=provider.pool_name_label,
        this_cluster=provider.this_cluster,
        machines=machines,
        group=spec.group,
        versions=spec.versions,
        kind=spec.kind,
        resource=spec.resource,
        namespaced=spec.namespaced or spec.listed_in is not None,
        scale=spec.scale,
        when=_query(spec.when),
        capacity=_capacity(spec),
        pool_name=_query(spec.pool_name),
        instance_type=_query(spec.instance_type),
        requirements=_query(spec.requirements),
        accelerators=AcceleratorFields(
            type=_query(accelerators.type), count=_query(accelerators.count), when=_query(accelerators.when)
        ),
        desired=_query(size.desired),
        autoscaling=_query(size.autoscaling),
        maximum=_query(size.maximum),
        limits=_query(size.limits),
        least=Least(
            machine=_amounts(size.least.machine),
            gpu_machine=_amounts(size.least.gpu_machine),
            gpu_resources=Globs(provider.gpu.resources),
            counted=size.least.counted,
        ),
        unlimited=size.unlimited,
        sizer=_sizer(spec, provider.this_cluster),
        taints=_query(spec.taints),
        taint_texts=spec.taint_texts,
        taint_effects=spec.taint_effects,
        labels=_query(spec.labels),
        known_labels={key: Query(text) for key, text in spec.known_labels.items()},
        zones=_query(spec.zones),
        grace=_grace(provider, spec),
        cluster=_query(spec.cluster),
        cluster_namespace=_query(spec.cluster_namespace),
        cluster_path=_query(spec.cluster_path),
        chosen_by=spec.chosen_by or "",
        listed_in=PoolList(spec.listed_in.kind, spec.listed_in.field) if spec.listed_in is not None else None,
        template=_query(spec.template.from_) if spec.template is not None else None,
        template_kinds=frozenset(each.kind for each in spec.template.kinds)
        if spec.template is not None
        else frozenset(),
        marks_spot=spec.labels_spot_nodes,
        is_template=False,
        label_domains=spec.label_domains,
        unusable=tuple(UnusableCondition(Query(item.when), item.because, item.passing) for item in spec.unusable),
        controller_fields=_paths(spec.controller_fields),
    )


def _paths(fields: Sequence[str]) -> tuple[QueryPath, ...]:
    return tuple(tuple(each.split(".")) for each in fields)


def _amounts(quantities: Mapping[str, int | str]) -> dict[str, Decimal]:
    return {resource: amount_of(quantity) or Decimal(0) for resource, quantity in quantities.items()}


def _sizer(spec: NodePoolReaderSpec, this_cluster: str) -> Sizer | None:
    by = spec.size.sized_by
    if by is None:
        return None
    return Sizer(
        group=by.group,
        versions=by.versions,
        kind=by.kind,
        resource=by.resource,
        scale=by.scale,
        pool_kind=spec.kind,
        pool=Query(by.pool),
        desired=Query(by.desired),
        autoscaling=_query(by.autoscaling),
        cluster=_query(by.cluster),
        this_cluster=this_cluster,
        controller_fields=_paths(by.controller_fields),
    )


def _grace(provider: CapacityProviderSpec, spec: NodePoolReaderSpec) -> Grace:
    usual = provider.grace_period
    return Grace(
        usual=PoolGrace(usual.budget_seconds, usual.safety_margin_seconds),
        windows=tuple(
            Window(
                when=_query(window.when),
                seconds=window.budget_seconds,
                total=_query(window.from_),
                reserved=_query(window.reserved),
                margin=window.safety_margin_seconds,
            )
            for window in spec.grace_period.windows
        ),
        limit=_query(spec.grace_period.limit),
    )
