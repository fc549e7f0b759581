"""Parse a node-pool resource into the normalised `Pool`, as its ``CapacityProvider`` document says.

A pool with missing fields or wrong types is parsed as far as possible; what could not be read is in ``Pool.problems``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.providers.clusters import cluster_of
from webhook.capacity.providers.joins import with_template
from webhook.capacity.providers.limits import within_limits
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.query import at
from webhook.capacity.providers.query_results import QueryResults
from webhook.capacity.providers.requirements import read_requirements
from webhook.capacity.providers.taints import read_taints
from webhook.kube.containers import ARCH_LABEL
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.capacity.providers.grace import PoolGrace
    from webhook.capacity.providers.pool import Taint, TemplateRef
    from webhook.capacity.providers.pool_fields import CapacityField, PoolFields
    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.requirements import Requirements

ANY_TYPE: Final = "*"
"""The instance type of a pool that leaves it to something which can't be read, as a launch template."""

_SHOWN: Final = 60
"""Characters of an unexpected value that are repeated in a problem."""


class PoolParser(QueryResults):
    """Parse one object, and collect the problems in it."""

    __slots__ = ("_reader",)

    def __init__(self, reader: PoolFields, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self._reader = reader

    def pool(self) -> Pool:
        """Return the pool that the object declares. Never raise for its contents."""
        reader, value = self._reader, self._value
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = _text(metadata.get("name")) or _text(metadata.get("generateName"))
        namespace = _text(metadata.get("namespace"))
        # The name of a template is no pool's.
        labels = self._labels("" if reader.is_template else name)
        if reader.chosen_by:
            labels[reader.chosen_by] = name
        requirements = self._requirements(labels)
        types = self._instance_types(requirements)
        if ARCH_LABEL not in labels and (architecture := self._architecture(types, requirements)):
            labels[ARCH_LABEL] = architecture
        capacity = self._capacity(requirements)
        gpu_type, gpu_count, gpu = self._gpu(types, requirements)
        gpu, limited = self._limited(gpu, requirements)
        status, says, passes = self._status()
        blocks = (
            (limited, reader.limits, False),
            (self._impossible(requirements), reader.requirements, False),
            (status, says, passes),
        )
        blocked, where, passing = next((each for each in blocks if each[0]), ("", None, False))
        grace = self._grace()
        cluster, cluster_path = self._cluster(namespace, name)
        autoscaling, taints = self._flag(reader.autoscaling), self._taints()
        pool = Pool(
            provider=reader.provider,
            kind=reader.kind,
            name=name,
            namespace=namespace,
            pool_name=labels.get(reader.pool_label, ""),
            capacity=capacity,
            gpu=gpu,
            gpu_type=gpu_type,
            gpu_count=gpu_count,
            instance_type=", ".join(types),
            machines=reader.machines.described(requirements) if requirements is not None else (),
            superchip=reader.machines.superchip(types),
            autoscaling=autoscaling,
            desired=self._number(reader.desired),
            maximum=self._number(reader.maximum),
            unlimited=reader.unlimited,
            blocked=blocked,
            passing=passing,
            unread=f"its {self._unread} can't be read" if self._unread else "",
            held_by=where.place(value) if where is not None else self._unread,
            taints=taints,
            requirements=requirements,
            labels=labels,
            zones=self._zones(requirements),
            grace_seconds=grace.seconds if grace is not None else None,
            safety_margin_seconds=grace.margin if grace is not None else None,
            cluster=cluster,
            cluster_path=cluster_path,
            chosen_by=reader.chosen_by,
            is_cluster=reader.is_cluster,
            template=self._template(namespace),
            marked=reader.marks_spot,
            is_template=reader.is_template,
            deleting=bool(metadata.get("deletionTimestamp")),
            problems=tuple(self._problems),
        )
        return pool if pool.template is None else with_template(pool, None)

    def _requirements(self, labels: Mapping[str, str]) -> Requirements | None:
        query = self._reader.requirements
        if query is None:
            return None
        found = read_requirements(self._ask(query), query.field, labels)
        self._problems += found.problems
        return found

    def _instance_types(self, requirements: Requirements | None) -> tuple[str, ...]:
        query = self._reader.instance_type
        if query is None:
            return tuple(sorted(requirements.of(TYPE_LABEL).values or ())) if requirements is not None else ()
        if self._out_of_reach(query):
            return ()
        found = self._answer(query)[0]
        several = found if isinstance(found, list) else [found]
        types = tuple(sorted(each for each in several if isinstance(each, str) and each))
        where = query.place(self._value)
        if found == ANY_TYPE:
            return ()
        if not found:
            self._note(f"{where} {'is missing' if at(self._value, where) is None else 'names no instance type'}")
        elif not types:
            self._note(f"{where} is not text")
        elif len(types) < len(several):
            self._note(f"{where} has items that are not strings")
        return tuple(dict.fromkeys(types)) if len(types) == len(several) else ()

    def _architecture(self, types: tuple[str, ...], requirements: Requirements | None) -> str:
        """Return the architecture of all machines of the pool. Return an empty string if it is unknown, or not one."""
        machines = self._reader.machines
        if requirements is not None and machines.only_arm(requirements):
            return "arm64"
        return machines.architecture(types)

    def _capacity(self, requirements: Requirements | None) -> CapacityType:
        capacity = self._reader.capacity
        if self._reader.template is not None:
            return capacity.default if self._template("") is None else CapacityType.UNKNOWN
        if capacity.label and requirements is not None:
            return self._required_capacity(capacity, requirements)
        if self._out_of_reach(capacity.query):
            return CapacityType.UNKNOWN
        written = self._answer(capacity.query)[0]
        if written is None or (written == "" and not capacity.flag):
            return capacity.default
        meant = capacity.values.get(str(written).casefold()) if isinstance(written, bool | str) else None
        if meant is not None:
            return meant
        where = capacity.query.place(self._value)
        self._note(f"{where} is {_shown(written)}, not one of {', '.join(capacity.words)}")
        return CapacityType.UNKNOWN

    def _required_capacity(self, capacity: CapacityField, requirements: Requirements) -> CapacityType:
        if requirements.is_unreadable(capacity.label):
            return CapacityType.UNKNOWN
        if capacity.label not in requirements.labels:
            return capacity.default
        values = requirements.of(capacity.label)
        for odd in sorted((values.values or frozenset()).difference(capacity.values)):
            problem = f"{capacity.query.field} has {capacity.label} {odd[:_SHOWN]!r}, not one of "
            self._note(problem + ", ".join(capacity.words))
        found = {meant for value, meant in capacity.values.items() if values.admits(value)}
        if not found:
            return CapacityType.UNKNOWN
        return found.pop() if len(found) == 1 else CapacityType.BOTH

    def _gpu(self, types: tuple[str, ...], requirements: Requirements | None) -> tuple[str, int | None, Gpu]:
        """Return the accelerator type, the count, and whether the nodes have GPUs."""
        reader = self._reader
        where = reader.accelerators
        kind, count = self._ask(where.type), self._number(where.count)
        unread = self._unread_accelerators(kind, count)
        if kind is not None and not isinstance(kind, str):
            self._note(f"{where.type.field if where.type else ''} is not text")
        named = kind if isinstance(kind, str) and count != 0 else ""
        if named or (count or 0) > 0 or self._ask(where.when):
            return named, count, Gpu.YES
        if unread or (kind is not None and not isinstance(kind, str)):
            return "", count, Gpu.UNKNOWN
        if requirements is not None and reader.instance_type is None:
            return "", count, reader.machines.required(requirements)
        # The provider picks any of the types that a pool lists, whatever the Pods request.
        if count == 0 and not types:
            return "", count, Gpu.NO
        found = reader.machines.classify(types)
        return "", count, Gpu.UNKNOWN if found is Gpu.ANY else found

    def _unread_accelerators(self, kind: object, count: int | None) -> bool:
        """Return whether the object has an accelerators field that can't be read."""
        where = self._reader.accelerators
        queries = [query for query in (where.type, where.count, where.when) if query is not None]
        if any(self._out_of_reach(query) for query in queries):
            return True
        unread = [query for query, found in ((where.type, kind), (where.count, count)) if query and found is None]
        if count == 0:
            return False
        fields = [query.field for query in unread if query.written(self._value) not in (None, [])]
        for field in fields:
            self._note(f"{field} has no accelerators with a type and a count")
        return bool(fields)

    def _limited(self, gpu: Gpu, requirements: Requirements | None) -> tuple[Gpu, str]:
        """Return which GPUs the pool's limits allow, and why they allow no nodes at all."""
        query = self._reader.limits
        limits = self._ask_in_doubt(query)
        if query is None or limits is None:
            return gpu, ""
        if not isinstance(limits, dict):
            self._doubt(query, f"{query.field} is not a map")
            return gpu, ""
        amounts = {str(resource): amount_of(limit) for resource, limit in limits.items()}
        odd = [resource for resource, amount in amounts.items() if amount is None]
        self._doubt(query, *(f"{query.field}[{resource[:_SHOWN]!r}] is not a quantity" for resource in odd))
        known = {resource: amount for resource, amount in amounts.items() if amount is not None}
        return within_limits(known, gpu, self._reader.least, requirements)

    def _impossible(self, requirements: Requirements | None) -> str:
        key = requirements.impossible if requirements is not None else ""
        return f"no node can meet its requirements on {key}" if key else ""

    def _status(self) -> tuple[str, Query | None, bool]:
        """Return why the pool's status says it gets no nodes, its field, and whether that passes.

        A lasting reason comes before one that passes.
        """
        held = [each for each in self._reader.unusable if self._ask_in_doubt(each.when)]
        found = min(held, key=lambda each: each.passing, default=None)
        return (found.because, found.when, found.passing) if found is not None else ("", None, False)

    def _taints(self) -> tuple[Taint, ...]:
        reader, query = self._reader, self._reader.taints
        found = self._ask_in_doubt(query)
        if query is None or found is None:
            return ()
        taints, problems = read_taints(found, query.place(self._value), reader.taint_effects, texts=reader.taint_texts)
        self._doubt(query, *problems)
        return taints

    def _labels(self, name: str) -> dict[str, str]:
        reader = self._reader
        labels: dict[str, str] = {}
        found = self._ask(reader.labels)
        if isinstance(found, dict):
            given = {key: item for key, item in found.items() if isinstance(item, str)}
            where = reader.labels.field if reader.labels else ""
            self._problems += [f"{where}[{key!r}] is not text" for key in found if key not in given]
            labels |= {key: item for key, item in given.items() if _is_of(key, reader.label_domains)}
        elif reader.labels is not None and found is not None:
            self._problems.append(f"{reader.labels.field} is not a map")
        for key, query in reader.known_labels.items():
            if isinstance(item := self._answer(query)[0], str):
                labels[key] = item
        if reader.pool_name is not None:
            written = self._ask(reader.pool_name)
            name = written if isinstance(written, str) else ""
            if not isinstance(written, str | None):
                self._note(f"{reader.pool_name.place(self._value)} is not text")
        if name:
            labels[reader.pool_label] = name
        return labels

    def _zones(self, requirements: Requirements | None) -> frozenset[str]:
        if self._reader.zones is None:
            return (requirements.of(ZONE_LABEL).values or frozenset()) if requirements is not None else frozenset()
        found = self._ask(self._reader.zones)
        if found is None or isinstance(found, str):
            return frozenset((found,)) if found else frozenset()
        if not isinstance(found, list):
            self._problems.append(f"{self._reader.zones.field} is not a list")
            return frozenset()
        zones = frozenset(zone for zone in found if isinstance(zone, str))
        if not all(isinstance(zone, str) for zone in found):
            self._problems.append(f"{self._reader.zones.field} has items that are not strings")
        return zones

    def _template(self, namespace: str) -> TemplateRef | None:
        """Return the template to which the pool refers. Return None if it is of no kind that is read."""
        query = self._reader.template
        if query is None:
            return None
        found = self._ask(query)
        reference = found if isinstance(found, dict) else {}
        kind = _text(reference.get("kind"))
        if kind and kind not in self._reader.template_kinds:
            return None
        return kind, namespace, _text(reference.get("name"))

    def _grace(self) -> PoolGrace | None:
        grace = self._reader.grace
        for window in grace.windows:
            self._ask(window.when)
            self._ask(window.total)
            self._ask(window.reserved)
        self._ask(grace.limit)
        return grace.of(self._value, self._problems)

    def _cluster(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the cluster of the pool as `cluster_of` does; empty strings for this one, or if the pool does not say.

        A pool whose cluster can't be read is in a cluster of its own: it has no fallback, and is none.
        """
        query = self._reader.cluster
        if query is None:
            return "", ""
        unknown = f"{namespace}/? of {name}", ""
        if self._out_of_reach(query):
            return unknown
        found = self._answer(query)[0]
        if found is None:
            return "", ""
        if not isinstance(found, str) or not found.strip("/"):
            where = query.place(self._value)
            self._note(f"{where} is {'no name of a cluster' if isinstance(found, str) else 'not text'}")
            return unknown
        other = self._ask(outside := self._reader.cluster_namespace)
        if outside is not None and not isinstance(other, str | None):
            self._note(f"{outside.field} is not text")
            return unknown
        inside = "" if self._reader.listed_in is not None else namespace
        cluster, path = cluster_of(found, other or inside, self._reader.this_cluster)
        if cluster and isinstance(own := self._ask(self._reader.cluster_path), str):
            path = cluster_of(own, namespace, self._reader.this_cluster)[1]
            cluster = cluster if path else ""
        return cluster, path


def _is_of(key: str, domains: Sequence[str]) -> bool:
    """Return whether a label is of one of these domains or their subdomains; without domains any is."""
    domain = key.rpartition("/")[0]
    return not domains or any(domain == each or domain.endswith(f".{each}") for each in domains)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: object) -> str:
    """Return an unexpected value as a phrase."""
    if isinstance(value, bool | str):
        return repr(value)[:_SHOWN]
    return "a list or map" if isinstance(value, list | dict) else "a number"
