"""Compare `spotgate check` with the API server: both give the same verdict, findings, and final object.

    Parity(server, offline).of(thing, ALICE)  # raises AssertionError with a diff where they differ

Requests that the API server itself refuses don't concern policies; they are only counted.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import yaml

from tests.controlplane.parity.answers import Answer, Refusal
from tests.programs import VERSION
from webhook.cluster.view import version_of
from webhook.engine.enforcement import NEVER_DENIED
from webhook.kube.defaults import TEXTS

if TYPE_CHECKING:
    from tests.controlplane.parity.answers import Identity, Offline, Server

JSON = dict[str, Any]

UNREADABLE = "the pod template can't be read and was not evaluated"

UNTOUCHED = ("kube-system", "spotgate-system")
"""Namespaces that the webhook configurations exclude."""

_KEPT = "the API server keeps it when it stores an object"
_PLUGIN = "an admission plugin fills it in, and no policy reads it"
_AFTER = "filled in between the two webhooks, and no policy reads it"
_ALLOCATED = "the API server allocates it"
_NEWER = "a default since Kubernetes 1.37"
_MADE = "the controller gives it to the Pods that it makes"

EVERY = {
    "metadata/creationTimestamp": _KEPT,
    "metadata/generation": _KEPT,
    "metadata/managedFields": _KEPT,
    "metadata/resourceVersion": _KEPT,
    "metadata/uid": _KEPT,
    "status": "no part of what is asked for",
}
OF_KIND = {
    "DaemonSet": {"metadata/annotations/deprecated.daemonset.template.generation": _KEPT},
    "Job": {
        "*metadata/labels/*controller-uid": f"for the selector: {_AFTER}",
        "*metadata/labels/*job-name": f"for the selector: {_AFTER}",
        "spec/selector": f"made of the uid: {_AFTER}",
    },
    "Pod": {
        "spec/resources/requests": f"made of the containers': {_AFTER}",
        "spec/preemptionPolicy": f"Priority: {_PLUGIN}",
        "spec/priority": f"Priority: {_PLUGIN}",
        "spec/serviceAccount": f"ServiceAccount, where none is named: {_PLUGIN}",
        "spec/serviceAccountName": f"ServiceAccount, where none is named: {_PLUGIN}",
    },
    "Service": {
        "spec/clusterIP": _ALLOCATED,
        "spec/clusterIPs": _ALLOCATED,
        "spec/ipFamilies": _ALLOCATED,
        "spec/ipFamilyPolicy": _ALLOCATED,
        "spec/ports/*/nodePort": _ALLOCATED,
    },
}
if (version_of(VERSION) or (1, 37)) < (1, 37):
    OF_KIND["CSIDriver"] = {"spec/preventPodSchedulingIfMissing": _NEWER}
    OF_KIND["StatefulSet"] = {"spec/updateStrategy/rollingUpdate/maxUnavailable": _NEWER}
OF_MADE_PODS = {
    "metadata/finalizers": _MADE,
    "metadata/generateName": _MADE,
    "metadata/labels/*controller-uid": _MADE,
    "metadata/labels/*job-name": _MADE,
    "metadata/labels/*pod-index": _MADE,
    "metadata/labels/*pod-name": _MADE,
    "metadata/labels/*revision-hash": _MADE,
    "metadata/labels/*template-hash": _MADE,
    "metadata/name": _MADE,
    "metadata/ownerReferences": _MADE,
    "spec/hostname": _MADE,
    "spec/subdomain": _MADE,
    "spec/nodeName": "the scheduler's answer",
}
"""Fields that aren't compared, by path, with the reason: the API server sets them.

Other exceptions: zero or empty members of a manifest, most of which the API server drops; the volume of the
ServiceAccount's token and its mounts; generated names; and the order of tolerations (those of the API server come
before ours, unless the file has ours already).
"""


@dataclass(slots=True)
class Parity:
    """Both sides, the numbers of objects by outcome, and the API server's refusals."""

    server: Server
    offline: Offline
    seen: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)

    def of(self, thing: JSON, identity: Identity, operation: str = "CREATE") -> None:
        """Compare both verdicts on a request. Raise AssertionError if they differ."""
        self.seen["all"] += 1
        if thing["kind"] == "NodePool" and identity.user in NEVER_DENIED:
            return  # not sent: an unavailable webhook must not block deletions
        online = self.server.ask(thing, identity, operation)
        checked = self.offline.check(thing, identity, operation)
        if isinstance(online, Refusal):
            self._refused(thing, identity, operation, online)
            return
        if isinstance(checked, Refusal):
            # Only its controller reads the pod template of a custom resource; `check` reports a bad one itself.
            assert any(UNREADABLE in line for line in online.warnings), f"{checked.message}\n{shown(thing)}"
            return
        self.seen["denied"] += bool(online.denial)
        self.seen["warned"] += bool(online.warnings)
        self.seen["patched"] += checked.written is not None
        assert_alike(thing, online, checked.answer)
        if checked.written is not None and operation == "CREATE" and not online.denial:
            self._written(thing, checked.written, checked.answer, identity)

    def _refused(self, thing: JSON, identity: Identity, operation: str, refusal: Refusal) -> None:
        """Check that the object is also invalid without our patch."""
        self.refusals.append(refusal.message)
        namespace = thing["metadata"].get("namespace")
        if operation == "CREATE" and namespace and namespace not in UNTOUCHED:
            elsewhere = {**thing, "metadata": {**thing["metadata"], "namespace": UNTOUCHED[0]}}
            unpatched = self.server.ask(elsewhere, identity)
            assert isinstance(unpatched, Refusal), f"{refusal.message}\n{shown(thing)}"

    def _written(self, thing: JSON, written: JSON, answer: Answer, identity: Identity) -> None:
        """Check that the webhook changes nothing in the object with the patch from `check`."""
        again = self.offline.check(written, identity)
        assert not isinstance(again, Refusal), again.message
        assert again.written is None, f"not all at once:\n{shown(thing)}"
        assert again.answer.warnings == answer.warnings
        online = self.server.ask(written, identity)
        assert not isinstance(online, Refusal), f"{online.message}\n{shown(written)}"
        assert_alike(written, online, again.answer)


def assert_alike(thing: JSON, online: Answer, offline: Answer) -> None:
    """Raise AssertionError if the answers differ."""
    generated = thing["metadata"].get("generateName", "")
    assert_equal(_said(online, generated), _said(offline, generated), thing)
    assert (online.object is None) == (offline.object is None), shown(thing)
    if online.object is not None and offline.object is not None:
        made_up = {"metadata/name": "made up"} if generated else {}
        assert_same(online.object, offline.object, {**EVERY, **OF_KIND.get(thing["kind"], {}), **made_up})


def assert_same_pod(made: JSON, expected: JSON) -> None:
    """Raise AssertionError if a controller's Pod differs from the Pod of its template."""
    assert_same(made, expected, {**EVERY, **OF_KIND["Pod"], **OF_MADE_PODS})


def assert_same(online: JSON, offline: JSON, ignored: dict[str, str]) -> None:
    """Raise AssertionError if the API server's object differs from that of `check`."""
    real, shown_one = (_essence(thing, ignored) for thing in (online, offline))
    assert_equal(real, _kept(shown_one, real), offline)


def assert_equal(online: JSON, offline: JSON, thing: JSON) -> None:
    """Raise AssertionError with the object and a readable diff, if they differ."""
    if online != offline:
        lines = shown(online).splitlines(), shown(offline).splitlines()
        difference = difflib.unified_diff(*lines, "API server", "check", n=6, lineterm="")
        raise AssertionError("\n".join((shown(thing), *difference)))


def _said(answer: Answer, generated: str) -> JSON:
    """Return the denial and the warnings, without generated names and line breaks, which differ between the sides."""
    if not generated:
        return {"denial": answer.denial, "warnings": list(answer.warnings)}
    base = generated.removesuffix("-")
    made_up = re.compile(rf"{re.escape(base)}-([a-z0-9]{{5}}\b)?")
    texts = {"denial": answer.denial, "warnings": " ".join(answer.warnings)}
    return {key: made_up.sub(base, " ".join(text.split())) for key, text in texts.items()}


def _essence(thing: JSON, ignored: dict[str, str]) -> JSON:
    """Return the object without the ignored fields."""
    essence: JSON = _without(thing, tuple(ignored), "")
    if thing["kind"] == "Pod":
        essence["spec"].get("tolerations", []).sort(key=_order)
    return essence


def _order(toleration: JSON) -> list[tuple[str, Any]]:
    return sorted((key, member) for key, member in toleration.items() if member)


def _without(value: Any, ignored: tuple[str, ...], path: str) -> Any:
    if isinstance(value, list):
        return [_without(item, ignored, f"{path}/*") for item in value if not _is_token(item)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, member in value.items():
        inner = f"{path}/{key}".removeprefix("/")
        rest = _without(member, ignored, inner)
        if (rest or rest == member) and not any(fnmatchcase(inner, pattern) for pattern in ignored):
            kept[key] = rest
    return kept


def _is_token(value: Any) -> bool:
    """Return whether the value is the volume from the ServiceAccount plugin, or a mount of it."""
    return isinstance(value, dict) and str(value.get("name", "")).startswith("kube-api-access-")


def _kept(value: Any, online: Any) -> Any:
    """Return the written value without the zero or empty members that the API server drops."""
    if isinstance(value, list) and isinstance(online, list) and len(value) == len(online):
        return [_kept(item, there) for item, there in zip(value, online, strict=True)]
    if not isinstance(value, dict) or not isinstance(online, dict):
        return value
    return {
        key: member if key in TEXTS else _kept(member, online.get(key))
        for key, member in value.items()
        if key in online or not _is_nothing(member)
    }


def _is_nothing(value: Any) -> bool:
    """Return whether the value is zero or empty, or has only such members."""
    return all(map(_is_nothing, value.values())) if isinstance(value, dict) else not value


def shown(value: JSON) -> str:
    """Return the value in a readable form."""
    return yaml.safe_dump(value, allow_unicode=True)
