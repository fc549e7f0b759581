"""Find the resource of a kind without an API server, and find unevaluated pod templates in unknown kinds.

No Pod policy evaluates these templates. Without a finding, a spot label there would seem to pass ``check``.
"""

from __future__ import annotations

from collections import deque
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.field_paths import field_path
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.provider import pool_resources
from webhook.kube.filling import mapping
from webhook.kube.pod import Pod, PodSpec
from webhook.kube.resources import CRD_GROUP, CRD_KIND, Resource, plural_of, resource_of, resource_of_crd
from webhook.model.decision import Finding, Outcome, engine_finding
from webhook.rules.protocol import Keys, concern_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Index
    from webhook.inputs.objects import Manifest

_LIKENESS: Final = 0.75
"""The similarity from which a group is a typo: ``karpenter.io`` is one; another project's group isn't."""


class ResourceKinds:
    """The resources of built-in kinds, node pools, workloads, CRDs in the manifests, and given resources."""

    def __init__(self, bundle: Bundle, manifests: Iterable[Manifest], given: Iterable[Resource] = ()) -> None:
        workloads = bundle.index.workloads.values()
        crds = (manifest.value for manifest in manifests if (manifest.group, manifest.kind) == (CRD_GROUP, CRD_KIND))
        of_workloads = (
            Resource(workload.group, workload.kind, workload.resource, workload.namespaced) for workload in workloads
        )
        of_crds = filter(None, map(resource_of_crd, crds))
        resources = (*pool_resources(bundle.providers.values()), *of_workloads, *of_crds, *given)
        self._known = {(resource.group, resource.kind): resource for resource in resources}
        self._workloads = {workload.kind: f"{workload.group}/..." for workload in workloads if workload.group}
        self._readers = bundle.readers
        self._replaced = {(reader.group, old): reader for reader in bundle.readers for old in reader.replaces}

    def resource(self, manifest: Manifest) -> Resource | None:
        """Return the resource of an object. Return None if it is unknown, or a node pool of a replaced kind."""
        key = manifest.group, manifest.kind
        return None if key in self._replaced else resource_of(*key) or self._known.get(key)

    def meant(self, manifest: Manifest) -> list[str]:
        """Return the apiVersions that an unknown one may be a typo for.

        For the core group: that of a workload, or those of node pools of this kind, preferably with the object's
        fields. For another group: that of a node pool of this kind with a similar group.
        """
        readers = [reader for reader in self._readers if reader.kind == manifest.kind]
        if manifest.group:
            close = get_close_matches(manifest.group, {reader.group for reader in readers}, n=1, cutoff=_LIKENESS)
            return sorted({f"{reader.group}/{reader.versions[0]}" for reader in readers if reader.group in close})
        fitting = [reader for reader in readers if reader.capacity_query(manifest.value)] or readers
        if pools := {f"{reader.group}/{reader.versions[0]}" for reader in fitting}:
            return sorted(pools)
        return [self._workloads[manifest.kind]] if manifest.kind in self._workloads else []

    def as_meant(self, manifest: Manifest) -> Manifest:
        """Return the object. If its kind is unknown and has a single likely apiVersion, use that one."""
        if self.resource(manifest) is not None or len(meant := self.meant(manifest)) != 1:
            return manifest
        return replace(manifest, api_version=meant[0])

    def replaced(self, manifest: Manifest) -> Finding | None:
        """Return the finding for a node pool of a replaced kind, or None."""
        if (reader := self._replaced.get((manifest.group, manifest.kind))) is None:
            return None
        year = reader.replaces[manifest.kind]
        return engine_finding(
            id="object/replaced-kind",
            outcome=Outcome.WARN,
            reason=f"{manifest.kind} is not evaluated: {reader.kind} replaced it in {year}",
            field="kind",
            fix=f"write it as a {reader.kind} of {reader.group}/{reader.versions[0]}",
        )

    def pools(self, kind: str) -> list[str]:
        """Return the apiVersions of the node pools of this kind."""
        return sorted({f"{reader.group}/{reader.versions[0]}" for reader in self._readers if reader.kind == kind})

    def unread_pools(self, manifests: Iterable[Manifest]) -> Iterator[tuple[Manifest, Finding]]:
        """Yield a hint for the first object of each kind that is named like a node pool's and has another group."""
        kinds = {reader.kind for reader in self._readers}
        seen: set[tuple[str, str]] = set()
        for manifest in manifests:
            kind = (manifest.group, manifest.kind)
            if manifest.kind not in kinds or kind in seen or self.resource(manifest) or self.meant(manifest):
                continue
            seen.add(kind)
            finding = engine_finding(
                id="object/unread-pool",
                outcome=Outcome.AUDIT,
                reason=f"not evaluated: no CapacityProvider reads {manifest.kind} of {manifest.group}",
                field="apiVersion",
                fix="if it is a node pool of this cluster, set `apiVersion` to "
                f"{' or '.join(self.pools(manifest.kind))}, or describe the kind in a CapacityProvider",
            )
            yield manifest, finding


Path = tuple[str | int, ...]

SEARCHED_AT_MOST: Final = 10_000
"""The maximum number of maps and lists of an object to search, outer ones first. The largest workloads have a few
thousand; with aliases, a few lines of YAML can have billions."""

_OWN_GROUP: Final = "spotgate.dev"
_POD_SPEC_MEMBERS: Final = frozenset({
    *("containers", "initContainers", "nodeSelector", "tolerations", "affinity", "priorityClassName", "restartPolicy"),
    *("schedulerName", "serviceAccountName", "terminationGracePeriodSeconds", "topologySpreadConstraints"),
})  # fmt: skip
"""The fields that distinguish a Pod's spec from that of a Machine, a PersistentVolumeClaim, and others."""


class UnknownTemplates:
    """A finder of pod templates that no policy evaluates, in objects of unknown kinds."""

    def __init__(self, index: Index, view: ClusterView) -> None:
        rules = (rule for policy in index.policies for rule in (policy.mutator, policy.validator) if rule is not None)
        concern = concern_of(rules, "", "pods")
        self._keys: Mapping[str, Keys] = {"labels": concern.labels, "annotations": concern.annotations}
        self._known = {(workload.group, workload.kind) for workload in index.workloads.values()}
        self._selectors, self._view, self._providers = concern.selectors, view, index.providers

    def finding(self, manifest: Manifest, resource: Resource | None) -> Finding | None:
        """Return the finding for the first pod template with a key that a policy reads, or None."""
        group, kind = manifest.group, manifest.kind
        if group in {"", _OWN_GROUP} or (group, kind) in self._known or resource_of(group, kind) is not None:
            return None
        path, entry = next(self._found(manifest.value), ((), ""))
        if not path:
            return None
        plural = plural_of(kind) if resource is None else resource.plural
        return engine_finding(
            id="object/template-unknown",
            outcome=Outcome.AUDIT,
            reason=f"no WorkloadTemplates document describes {kind} of {group}, so spotgate evaluates only its Pods",
            field=field_path(path),
            detail="This field seems to be in a pod template, and policies read it.",
            fix="if the object contains a pod template, add this document to the policies:\n"
            "apiVersion: spotgate.dev/v1\n"
            "kind: WorkloadTemplates\n"
            f"metadata: {{name: {plural}}}\n"
            "spec:\n"
            "  workloads:\n"
            f"    - {{group: {group}, kind: {kind}, resource: {plural}, {entry}}}",
        )

    def _found(self, value: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the path of each key of a Pod that a policy reads, and the entry of WorkloadTemplates for the Pod."""
        waiting: deque[tuple[Path, Any]] = deque([((), value)])
        for _ in range(SEARCHED_AT_MOST):
            if not waiting:
                return
            path, branch = waiting.popleft()
            inside: Iterable[tuple[str | int, Any]] = enumerate(branch) if isinstance(branch, list) else branch.items()
            waiting.extend(((*path, step), inner) for step, inner in inside if isinstance(inner, dict | list))
            if not path or isinstance(branch, list):
                continue
            place, is_template = _template_path(path), isinstance(branch.get("spec"), dict)
            pods = f'pods: [{{path: "{place}", spec: ., written: []}}]'
            if not _POD_SPEC_MEMBERS.isdisjoint(branch["spec"] if is_template else branch):
                entry = f'templates: ["{place}"]' if is_template else pods
                for member, keys in self._keys.items():
                    found = (key for key in mapping(branch, "metadata", member) if key in keys)
                    yield from (((*path, "metadata", member, key), entry) for key in found)
            if self._selectors:
                for key, label in mapping(branch, "nodeSelector").items():
                    if self._asks_for_spot({"nodeSelector": {key: label}}):
                        yield (*path, "nodeSelector", key), pods
                if "affinity" in branch and self._asks_for_spot({"affinity": branch["affinity"]}):
                    yield (*path, "affinity"), pods

    def _asks_for_spot(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a Pod with these fields of ``spec`` targets spot."""
        try:
            pod = Pod(spec=msgspec.convert(fields, PodSpec))
        except msgspec.ValidationError:
            return False
        return isinstance(target_of(pod, {}, self._view, self._providers), Target)


def _template_path(path: Path) -> str:
    """Return the path in WorkloadTemplates syntax, with ``[*]`` for items and ``*`` for unusual names."""
    text = ""
    for step in path:
        plain = isinstance(step, str) and step.isalnum() and step.isascii() and step[0].isalpha()
        text += "[*]" if isinstance(step, int) else f".{step if plain else '*'}"
    return text.removeprefix(".")
