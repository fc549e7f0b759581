"""From a ``CapacityProvider`` document to a `Provider`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.capacity.pool import CapacityType, Taint
from webhook.capacity.provider import Label, Provider, TaintPattern, Timeline
from webhook.capacity.reader import InstanceTypes, PoolReader, Query
from webhook.globs import Globs

if TYPE_CHECKING:
    from webhook.policy.facts import CapacityProviderSpec, LabelSpec, NodePoolReaderSpec, TaintPatternSpec


def compile_provider(name: str, spec: CapacityProviderSpec) -> Provider:
    """Compile a provider and its readers."""
    return Provider(
        name=name,
        title=spec.title,
        spot_labels=_labels(spec.spot_node_labels),
        spot_taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.spot_node_taints),
        pool_label=spec.pool_name_label,
        forbidden_taints=_patterns(spec.never_tolerate),
        gpu_taints=_patterns(spec.gpu.taints),
        gpu_resources=Globs(spec.gpu.resources),
        hands_off_schedulers=Globs(spec.hands_off_schedulers),
        system_namespaces=Globs(spec.system_namespaces.names),
        system_namespace_labels=_labels(spec.system_namespaces.labels),
        timeline=Timeline(
            spec.interruption.cordon_seconds,
            spec.interruption.drain_seconds,
            spec.interruption.removal_seconds,
        ),
        grace_budget=spec.grace_period.budget_seconds,
        safety_margin=spec.grace_period.safety_margin_seconds,
        readers=tuple(_reader(name, spec, reader) for reader in spec.node_pools),
    )


def _labels(specs: tuple[LabelSpec, ...]) -> tuple[Label, ...]:
    return tuple(Label(label.key, label.value) for label in specs)


def _patterns(specs: tuple[TaintPatternSpec, ...]) -> tuple[TaintPattern, ...]:
    return tuple(TaintPattern(taint.key, taint.value, taint.effect) for taint in specs)


def _query(text: str | None) -> Query | None:
    return None if text is None else Query(text)


def _reader(name: str, provider: CapacityProviderSpec, spec: NodePoolReaderSpec) -> PoolReader:
    types = provider.instance_types
    return PoolReader(
        provider=name,
        pool_label=provider.pool_name_label,
        instance_types=InstanceTypes(gpu=Globs(types.gpu), cpu=Globs(types.cpu), never_spot=Globs(types.never_spot)),
        group=spec.group,
        versions=spec.versions,
        kind=spec.kind,
        resource=spec.resource,
        namespaced=spec.namespaced,
        scale=spec.scale,
        capacity=Query(spec.capacity.from_),
        capacity_values={value.casefold(): CapacityType(meant) for value, meant in spec.capacity.values.items()},
        capacity_default=CapacityType(spec.capacity.default),
        on_demand_value=next((value for value, meant in spec.capacity.values.items() if meant == "on-demand"), ""),
        instance_type=_query(spec.instance_type),
        desired=Query(spec.size.desired),
        autoscaling=_query(spec.size.autoscaling),
        maximum=_query(spec.size.maximum),
        taints=_query(spec.taints),
        labels=_query(spec.labels),
        known_labels={key: Query(text) for key, text in spec.known_labels.items()},
        zones=_query(spec.zones),
        unusable=tuple((Query(item.when), item.because) for item in spec.unusable),
    )
