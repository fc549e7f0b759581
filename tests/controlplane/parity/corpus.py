"""The objects to compare, from the examples and the golden reviews, with their users and namespaces."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import strategies as st

from tests.controlplane.parity.answers import Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

JSON = dict[str, Any]

EXAMPLES = Path(__file__).parents[3] / "examples"
REVIEWS = Path(__file__).parents[2] / "golden" / "reviews"

KEPT = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
"""Metadata that the API server sets."""

# The group of all identities, with all permissions in RBAC. Only ON_CALL is also in a group that policies name.
PLATFORM = "platform"
ALICE = Identity("alice", (PLATFORM,))
ON_CALL = Identity("omar", (PLATFORM, "system:masters"))
REPLICASET_CONTROLLER = Identity("system:serviceaccount:kube-system:replicaset-controller", (PLATFORM,))
NAMESPACE_CONTROLLER = Identity("system:serviceaccount:kube-system:namespace-controller", (PLATFORM,))
identities = st.sampled_from((ALICE, ALICE, ALICE, ON_CALL, REPLICASET_CONTROLLER, NAMESPACE_CONTROLLER))

# The namespaces of generated objects: one without labels, one that targets spot, and one of CoreWeave.
PLAIN, SPOT, SYSTEM = "shop", "batch", "hpc-verification"
LABELS = {SPOT: {"spotgate.dev/capacity": "spot"}, SYSTEM: {"ns.coreweave.cloud/org": "control-plane"}}
ALWAYS_THERE = {"default", "kube-system", "spotgate-system"}
namespaces = st.sampled_from((PLAIN, PLAIN, PLAIN, SPOT, SPOT, SYSTEM))


def examples() -> Iterator[tuple[str, JSON]]:
    """Yield the objects of examples/, with names from the file, the kind, and the object."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        for thing in yaml.safe_load_all(file.read_text()):
            yield f"{file.stem}-{thing['kind']}-{thing['metadata']['name']}", thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """The request of a golden review for `thing`, which replaces `old`; None if nothing exists yet."""

    name: str
    thing: JSON
    identity: Identity
    operation: str
    old: JSON | None


def golden() -> Iterator[Golden]:
    """Yield the golden reviews that can be sent again: for whole objects that aren't being deleted."""
    for file in sorted(REVIEWS.glob("*.json")):
        request = json.loads(file.read_bytes())["request"]
        old, new = (_sendable(request[member]) for member in ("oldObject", "object"))
        thing = new or old
        if thing is None or request.get("subResource") or "deletionTimestamp" in thing["metadata"]:
            continue
        user = request["userInfo"]
        groups = (*(group for group in user["groups"] if group not in {"", "system:authenticated"}), PLATFORM)
        identity = Identity(user["username"], groups)
        yield Golden(name=file.stem, thing=thing, identity=identity, operation=request["operation"], old=old)


def _sendable(thing: JSON | None) -> JSON | None:
    """Return the object without the fields that only an API server may write."""
    if thing is None:
        return None
    metadata = {key: member for key, member in thing["metadata"].items() if key not in KEPT}
    return {**{key: member for key, member in thing.items() if key != "status"}, "metadata": metadata}


def namespaces_of(things: Iterable[JSON]) -> list[JSON]:
    """Return the Namespaces that these objects and the generated ones need."""
    names = {PLAIN, SPOT, SYSTEM, *(thing["metadata"].get("namespace", "default") for thing in things)} - ALWAYS_THERE
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": LABELS.get(name, {})}}
        for name in sorted(names)
    ]
