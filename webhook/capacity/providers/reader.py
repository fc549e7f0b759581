"""Read node pools of one kind into the normalized `Pool`, according to the ``CapacityProvider`` document.

The reader doesn't fail if fields are missing or have a wrong type. It lists them in ``Pool.problems``.
"""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from webhook.base.placeholders import placeholder_in
from webhook.capacity.providers.joins import Sizer, cluster_of, with_template
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.pool import CapacityType, Gpu, MachineFacts, Pool, Taint, TemplateRef
from webhook.capacity.providers.query import Query, QueryResults
from webhook.capacity.providers.reader_schema import CapacityReaderSpec, NodePoolReaderSpec
from webhook.capacity.providers.requirements import NO_REQUIREMENTS, Requirements, read_requirements
from webhook.capacity.providers.taints import read_taints
from webhook.kube.containers import ARCH_LABEL
from webhook.kube.layouts import member
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.capacity.providers.machines import Machines
    from webhook.capacity.providers.schema import CapacityProviderSpec


ANY_TYPE: Final = "*"
"""The instance type of a pool that gets it from an object that can't be read, such as a launch template."""

_SHOWN: Final = 60
"""Maximum characters of an unexpected value that a problem quotes."""


class PoolReader(NodePoolReaderSpec, dict=True):
    """The reader of one kind of node pool, or of one kind of machine template.

    Attributes:
        provider: the name of the `CapacityProvider`.
        facts: the provider's document.
        machines: the document's facts about machines.
    """

    provider: str
    facts: CapacityProviderSpec
    machines: Machines
    capacity: CapacityReaderSpec
    is_template: bool = False

    @cached_property
    def sizer(self) -> Sizer | None:
        """Return the reader of the objects that size these pools. Return None if the pools contain their size."""
        by = self.size.sized_by
        if by is None:
            return None
        return Sizer(**asdict(by), pool_kind=self.kind, this_cluster=self.facts.this_cluster)

    @property
    def served(self) -> bool:
        """Return whether an API server can serve the resource."""
        return self.listed_in is None and not self.files_only

    @property
    def capacity_query(self) -> Query:
        """Return the expression of the field that determines the capacity type, or that references the template."""
        template = self.template.from_ if self.template is not None else None
        places = (template, self.capacity.from_, self.requirements)
        return next(query for query in places if query is not None)

    @property
    def is_cluster(self) -> bool:
        """Return whether the object is the cluster itself, so that all pools of the cluster are deleted with it."""
        return self.cluster is not None and self.cluster.text == "metadata.name"

    def written_path(self, query: Query) -> str:
        """Return the path of a plain field as users write it."""
        return query.text.removeprefix("spec.") if self.listed_in is not None else query.text

    def read(self, value: Mapping[str, Any]) -> Pool:
        """Return the pool that a resource of this kind declares. Never raise because of its contents."""
        return _PoolParser(self, value).pool()


class _PoolParser(QueryResults):
    """The parser of one object. It collects the problems of the object."""

    def __init__(self, reader: PoolReader, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self._reader = reader

    def pool(self) -> Pool:
        """Return the pool that the object declares. Never raise because of its contents."""
        reader, value, facts = self._reader, self.value, self._reader.facts
        name = _text(member(value, ("metadata", "name"))) or _text(member(value, ("metadata", "generateName")))
        namespace = _text(member(value, ("metadata", "namespace")))
        labels = self._labels(name)
        requirements = self._requirements(labels)
        types = self._instance_types(requirements)
        labels |= self._implied(labels, requirements, types)
        machines = self._machines(requirements, types)
        blocked, where, passing = self._blocked(requirements, machines)
        usual = (facts.grace_period.budget_seconds, facts.grace_period.safety_margin_seconds)
        grace_seconds, margin = reader.grace_period.read(self, usual) or (None, None)
        cluster, cluster_path = self._cluster(namespace, name)
        label_keys = self._label_keys(labels, requirements)
        pool = Pool(
            **asdict(machines),
            provider=reader.provider,
            kind=reader.kind,
            name=name,
            namespace=namespace,
            pool_name=labels.get(facts.pool_name_label, ""),
            partly_limited=machines.capacity is CapacityType.SPOT and bool(self.ask(reader.capacity.limited)),
            machines=reader.machines.described(requirements),
            autoscaling=self.typed(reader.size.autoscaling, bool, "neither true nor false", doubt=True) is True,
            taints=self._taints(),
            desired=self.number(reader.size.desired),
            maximum=self.number(reader.size.maximum),
            unlimited=reader.size.unlimited,
            blocked=blocked,
            passing=passing,
            # All fields above are read before: `self.unread` is the first of them that is in doubt.
            unread=f"its {self.unread} can't be read" if self.unread else "",
            held_by=where.place(value) if where is not None else self.unread,
            bare=bool(self.ask(reader.without_platform_taints)),
            requirements=requirements if reader.requirements is not None else None,
            labels=labels,
            label_keys=label_keys,
            label_domains=reader.machines.label_domains if label_keys is not None else frozenset(),
            zones=self._zones(requirements),
            grace_seconds=grace_seconds,
            safety_margin_seconds=margin,
            cluster=cluster,
            cluster_path=cluster_path,
            chosen_by=reader.chosen_by or "",
            uses=frozenset(name for name in self.ask(reader.uses_pools) or () if isinstance(name, str)),
            is_cluster=reader.is_cluster,
            template=self._template(namespace),
            is_template=reader.is_template,
            deleting=bool(member(value, ("metadata", "deletionTimestamp"))),
            problems=tuple(self.problems),
        )
        return pool if pool.template is None else with_template(pool, None)

    def _requirements(self, labels: Mapping[str, str]) -> Requirements:
        query = self._reader.requirements
        requirements = NO_REQUIREMENTS if query is None else read_requirements(self.ask(query), query.field, labels)
        self.problems += requirements.problems
        return requirements

    def _instance_types(self, requirements: Requirements) -> tuple[str, ...]:
        query = self._reader.instance_type
        if query is None:
            return tuple(sorted(requirements.of(TYPE_LABEL).values or ()))
        written = self.ask(query)
        if self.is_unread(query) or written == ANY_TYPE:
            return ()
        several = written if isinstance(written, list) else [written]
        types = {name for name in several if isinstance(name, str) and name}
        where = query.place(self.value)
        if placeholder := placeholder_in(written):
            problem = f"has the placeholder {placeholder}"
        elif not written:
            problem = "is missing" if member(self.value, tuple(where.split("."))) is None else "names no instance type"
        elif not all(isinstance(name, str) and name for name in several):
            problem = "has items that are not strings" if types else "is not text"
        else:
            return tuple(sorted(types))
        self.note(f"{where} {problem}")
        return ()

    def _machines(self, requirements: Requirements, types: tuple[str, ...]) -> MachineFacts:
        """Return the facts about the machines within the limits of the pool."""
        reader = self._reader
        capacity = self._capacity(requirements)
        limited = capacity is CapacityType.ON_DEMAND and self.ask(reader.capacity.limited)
        gpu_type, gpu_count, gpu = self._gpu(types, requirements)
        # If the limits allow no GPUs and not all machines have GPUs, only machines without GPUs remain.
        without_gpus = gpu is not Gpu.YES and any(map(reader.facts.gpu.resources.match, self._exhausted))
        return MachineFacts(
            capacity=CapacityType.LIMITED if limited else capacity,
            gpu=Gpu.NO if without_gpus else gpu,
            gpu_type=gpu_type,
            gpu_count=gpu_count,
            instance_type=", ".join(types),
            superchip=reader.machines.never_spot(types),
            marked=reader.labels_spot_nodes,
            own_marks=tuple((self.ask(reader.own_spot_labels) or {}).items()),
        )

    def _capacity(self, requirements: Requirements) -> CapacityType:
        capacity = self._reader.capacity
        if self._reader.template is not None:
            return CapacityType(capacity.default) if self._template("") is None else CapacityType.UNKNOWN
        if capacity.label:
            return self._required_capacity(capacity.label, requirements)
        query = self._reader.capacity_query
        written = self.ask(query)
        if self.is_unread(query):
            return CapacityType.UNKNOWN
        # In a boolean field, an empty string is a wrong value.
        if written is None or (written == "" and "true" not in capacity.meanings):
            return CapacityType(capacity.default)
        meant = capacity.meanings.get(str(written).casefold()) if isinstance(written, bool | str) else None
        if meant is not None:
            return meant
        self.note(f"{query.place(self.value)} is {_shown(written)}, not one of {', '.join(capacity.values)}")
        return CapacityType.UNKNOWN

    def _required_capacity(self, label: str, requirements: Requirements) -> CapacityType:
        capacity, facts = self._reader.capacity, self._reader.facts
        marks = {CapacityType.SPOT: facts.spot_node_labels, CapacityType.LIMITED: facts.limited.node_labels}
        if any(map(requirements.is_unreadable, (label, *(mark.key for of in marks.values() for mark in of)))):
            return CapacityType.UNKNOWN
        for meant, of in marks.items():
            if any(requirements.admits_only(mark.key, mark.value) for mark in of):
                return meant
        if label not in requirements.labels:
            return CapacityType(capacity.default)
        values = requirements.of(label)
        for odd in sorted((values.values or frozenset()).difference(capacity.meanings)):
            problem = f"{self._reader.capacity_query.field} has {label} {odd[:_SHOWN]!r}, not one of "
            self.note(problem + ", ".join(capacity.values))
        capacities = {meant for value, meant in capacity.meanings.items() if values.admits(value)}
        both = CapacityType.BOTH if capacities else CapacityType.UNKNOWN
        return capacities.pop() if len(capacities) == 1 else both

    def _gpu(self, types: tuple[str, ...], requirements: Requirements) -> tuple[str, int | None, Gpu]:
        """Return the accelerator type, the count, and whether the nodes have GPUs."""
        reader = self._reader
        where = reader.accelerators
        kind, count = self.typed(where.type, str, "not text"), self.number(where.count)
        queries = [query for query in (where.type, where.count, where.when) if query is not None]
        unread = any(map(self.is_unread, queries))
        for query, answer in ((where.type, kind), (where.count, count)) if count != 0 else ():
            if query is not None and answer is None and member(self.value, query.path) not in (None, []):
                self.note(f"{query.field} has no accelerators with a type and a count")
                unread = True
        named = kind or "" if count != 0 else ""
        if named or (count or 0) > 0 or self.ask(where.when):
            return named, count, Gpu.YES
        if unread:
            return "", count, Gpu.UNKNOWN
        if reader.requirements is not None and reader.instance_type is None:
            return "", count, reader.machines.gpus_of(requirements)
        # The provider picks any of the pool's types, regardless of the Pods' requests.
        if count == 0 and not types:
            return "", count, Gpu.NO
        gpu = reader.machines.classify(types)
        return "", count, Gpu.UNKNOWN if gpu is Gpu.ANY else gpu

    @cached_property
    def _exhausted(self) -> list[str]:
        """Return the resources of which the limits allow 0, sorted."""
        query = self._reader.size.limits
        limits = self.typed(query, dict, "not a map", doubt=True)
        if query is None or limits is None:
            return []
        amounts = {str(resource): amount_of(limit) for resource, limit in limits.items()}
        for resource in (name for name, amount in amounts.items() if amount is None):
            self.note(f"{query.field}[{resource[:_SHOWN]!r}] is not a quantity", query)
        return [resource for resource, amount in sorted(amounts.items()) if amount is not None and amount <= 0]

    def _blocked(self, requirements: Requirements, machines: MachineFacts) -> tuple[str, Query | None, bool]:
        """Return why the pool gets no nodes, the field of the reason, and whether the reason is temporary."""
        reader, impossible = self._reader, requirements.impossible
        exhausted = [
            name for name in self._exhausted if machines.gpu is Gpu.YES or not reader.facts.gpu.resources.match(name)
        ]
        reasons = [
            *((f"its limits allow 0 of {name}", reader.size.limits, False) for name in exhausted),
            (impossible and f"no node can meet its requirements on {impossible}", reader.requirements, False),
            *((case.because, case.when, case.passing) for case in reader.unusable if self.ask(case.when, doubt=True)),
        ]
        # A permanent reason takes precedence over a temporary one.
        holding = (reason for reason in reasons if reason[0])
        return min(holding, key=itemgetter(2), default=("", None, False))

    def _taints(self) -> tuple[Taint, ...]:
        reader, query = self._reader, self._reader.taints
        written = self.ask(query, doubt=True)
        if query is None or written is None:
            return ()
        taints, problems = read_taints(written, query.place(self.value), reader.taint_effects, texts=reader.taint_texts)
        for problem in problems:
            self.note(problem, query)
        return taints

    def _labels(self, name: str) -> dict[str, str]:
        """Return the labels that an object of this name declares for the nodes."""
        reader = self._reader
        labels: dict[str, str] = {}
        where = reader.labels.field if reader.labels is not None else ""
        for key, item in (self.typed(reader.labels, dict, "not a map") or {}).items():
            if not isinstance(item, str):
                self.note(f"{where}[{key!r}] is not text")
            elif _is_of(key, reader.label_domains):
                labels[key] = item
        for key, query in reader.known_labels.items():
            if isinstance(item := self.answer(query)[0], str):
                labels[key] = item
        # The name of a template isn't the name of a pool.
        own = "" if reader.is_template else name
        if pool_name := own if reader.pool_name is None else self.typed(reader.pool_name, str, "not text"):
            labels[reader.facts.pool_name_label] = pool_name
        if reader.chosen_by:
            labels[reader.chosen_by] = name
        return labels

    def _implied(self, labels: Mapping[str, str], requirements: Requirements, types: tuple[str, ...]) -> dict[str, str]:
        """Return further labels of the nodes, which follow from the requirements and the instance types."""
        reader = self._reader
        marks = (label for label in reader.facts.spot_node_labels if label.instead)
        implied = {mark.key: mark.value for mark in marks if requirements.admits_only(mark.key, mark.value)}
        if ARCH_LABEL not in labels and (architecture := reader.machines.architecture(types, requirements)):
            implied[ARCH_LABEL] = architecture
        return implied

    def _label_keys(self, labels: Mapping[str, str], requirements: Requirements) -> frozenset[str] | None:
        """Return the keys of all labels that the nodes may have. Return None if that is unknown."""
        if not self._reader.labels_complete or self._reader.requirements is None or None in requirements.unreadable:
            return None
        unread = filter(None, requirements.unreadable)
        return self._reader.machines.label_keys.union(labels, requirements.labels, unread)

    def _zones(self, requirements: Requirements) -> frozenset[str]:
        query = self._reader.zones
        if query is None:
            return requirements.of(ZONE_LABEL).values or frozenset()
        written = self.ask(query)
        zones = written if isinstance(written, list) else [written] if written else []
        texts = frozenset(zone for zone in zones if isinstance(zone, str))
        if not all(isinstance(zone, str) for zone in zones):
            self.note(f"{query.field} {'has items that are not strings' if zones is written else 'is not a list'}")
        return texts

    def _template(self, namespace: str) -> TemplateRef | None:
        """Return the template that the pool references. Return None if no reader reads its kind."""
        template = self._reader.template
        if template is None:
            return None
        reference = self.ask(template.from_)
        kind = _text(member(reference, ("kind",)))
        if kind and kind not in {spec.kind for spec in template.kinds}:
            return None
        return kind, namespace, _text(member(reference, ("name",)))

    def _cluster(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the pool's cluster from `cluster_of`. Return empty strings for this cluster, or if the pool has none.

        A pool whose cluster can't be read is in an unknown cluster: it has no fallback and is never a fallback.
        """
        query = self._reader.cluster
        if query is None:
            return "", ""
        unknown = f"{namespace}/? of {name}", ""
        written = self.ask(query)
        if self.is_unread(query):
            return unknown
        if written is None:
            return "", ""
        if not isinstance(written, str) or not written.strip("/"):
            where = query.place(self.value)
            self.note(f"{where} is not {'the name of a cluster' if isinstance(written, str) else 'text'}")
            return unknown
        other = self.ask(outside := self._reader.cluster_namespace)
        if outside is not None and not isinstance(other, str | None):
            self.note(f"{outside.field} is not text")
            return unknown
        inside = "" if self._reader.listed_in is not None else namespace
        cluster, path = cluster_of(written, other or inside, self._reader.facts.this_cluster)
        if cluster and isinstance(own := self.ask(self._reader.cluster_path), str):
            path = cluster_of(own, namespace, self._reader.facts.this_cluster)[1]
            cluster = cluster if path else ""
        return cluster, path


def _is_of(key: str, domains: Sequence[str]) -> bool:
    """Return whether a label is in one of these domains or their subdomains. Without domains, return True."""
    domain = key.rpartition("/")[0]
    return not domains or any(domain == parent or domain.endswith(f".{parent}") for parent in domains)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: object) -> str:
    """Describe an unexpected value in a phrase."""
    if placeholder := placeholder_in(value):
        return f"the placeholder {placeholder}"
    if isinstance(value, bool | str):
        return repr(value)[:_SHOWN]
    return "a list or map" if isinstance(value, list | dict) else "a number"
