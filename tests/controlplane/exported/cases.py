"""Requests that the policies in policies.yaml allow, warn about, or deny."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.builders import deployment, job, pod
from tests.controlplane.parity.answers import Identity

JSON = dict[str, Any]

ALLOW, WARN, DENY = "allow", "warn", "deny"
NAMESPACES = {
    "export-a": {"tier": "test"},
    "export-b": {"tier": "test"},
    "export-sandbox": {"tier": "test"},
    "export-quiet": {},
}
EVERYTHING = "exported-policies"
"""A group with all permissions in RBAC."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and its verdict."""

    name: str
    verdict: str
    object: JSON
    old: JSON | None = None
    operation: str = "CREATE"
    user: str = "alice"
    groups: tuple[str, ...] = ()
    subresource: str = ""

    @property
    def identity(self) -> Identity:
        return Identity(self.user, (EVERYTHING, *self.groups))

    @property
    def key(self) -> str:
        return self.name.replace(" ", "-").replace(",", "").lower()[:50].rstrip("-")


IMAGE = "registry.example.com/app:1"


def labelled(thing: JSON, labels: JSON, annotations: JSON | None = None, *, where: str = "export-a") -> JSON:
    """Return the object in a test namespace, with these labels and annotations."""
    copy: JSON = json.loads(json.dumps(thing))
    copy["metadata"] |= {"namespace": where, "labels": labels, "annotations": annotations or {}}
    return copy


def templated(thing: JSON, labels: JSON, *, where: str = "export-a") -> JSON:
    """Return the workload with these labels on its Pods."""
    copy = labelled(thing, {}, where=where)
    template = copy["spec"]["template"]
    template["metadata"] = {"labels": template.get("metadata", {}).get("labels", {}) | labels}
    return copy


def waiting(name: str = "web", **spec: Any) -> JSON:
    """Return a Pod that no scheduler places."""
    return pod(name, schedulerName="nobody", **spec)


def idle(name: str = "web", **spec: Any) -> JSON:
    """Return a Deployment without Pods."""
    return deployment(name, 0, **spec)


RESERVED = {"foo.acme.example/bar": "x"}
BREAK_GLASS = {"spotgate.dev/break-glass": "INC-4711"}
OWNED = [
    Case("a label in no reserved domain", ALLOW, labelled(waiting(), {"example.com/team": "x", "plain": "y"})),
    Case("a label in a reserved domain", DENY, labelled(waiting(), RESERVED)),
    Case("in the domain itself", DENY, labelled(waiting(), {"acme.test/a": "x"})),
    Case("a domain with the same ending", ALLOW, labelled(waiting(), {"notacme.example/a": "x", "acme.example": "x"})),
    Case("an allowed label", ALLOW, labelled(waiting(), {"acme.example/team": "x", "ok.acme.example/a": "y"})),
    Case("an allowed and a reserved one", DENY, labelled(waiting(), {"acme.example/team": "x", "acme.example/b": "y"})),
    Case("a misspelt label", DENY, labelled(waiting(), {"acme.example/taem": "x"})),
    Case("a namespace that is not included", ALLOW, labelled(waiting(), RESERVED, where="default")),
    Case("a namespace that is excluded", ALLOW, labelled(waiting(), RESERVED, where="export-sandbox")),
    Case("an exempt user", ALLOW, labelled(waiting(), RESERVED), user="ci-main"),
    Case("an exempt user by name", ALLOW, labelled(waiting(), RESERVED), user="root"),
    Case("a user who is not exempt", DENY, labelled(waiting(), RESERVED), user="ci"),
    Case("an exempt group and name", ALLOW, labelled(waiting("legacy-b"), RESERVED), groups=("sre",)),
    Case("an exempt group with another name", DENY, labelled(waiting("legacy-c"), RESERVED), groups=("sre",)),
    Case("an exempt name without the group", DENY, labelled(waiting("legacy-b"), RESERVED)),
    Case("an exempt account", ALLOW, labelled(waiting(), RESERVED), user="system:serviceaccount:ops:bot"),
    Case(
        "an exempt account elsewhere",
        DENY,
        labelled(waiting(), RESERVED, where="export-quiet"),
        user="system:serviceaccount:ops:bot",
    ),
    Case("an account of another namespace", DENY, labelled(waiting(), RESERVED), user="system:serviceaccount:dev:bot"),
    Case("exempt by its labels", ALLOW, labelled(waiting(), RESERVED | {"legacy": "yes"}), groups=("old-hands",)),
    Case("exempt labels from another user", DENY, labelled(waiting(), RESERVED | {"legacy": "yes"})),
    Case("an expired exemption", DENY, labelled(waiting(), RESERVED), user="former"),
    Case("an exemption before its end", ALLOW, labelled(waiting(), RESERVED), user="passing"),
    Case("break-glass", ALLOW, labelled(waiting(), RESERVED, BREAK_GLASS), groups=("firefighters",)),
    Case("break-glass by another user", DENY, labelled(waiting(), RESERVED, BREAK_GLASS)),
    Case(
        "break-glass without a reason",
        DENY,
        labelled(waiting(), RESERVED, {"spotgate.dev/break-glass": " "}),
        groups=("firefighters",),
    ),
    Case(
        "a controller",
        ALLOW,
        labelled(waiting(), RESERVED),
        user="system:serviceaccount:kube-system:replicaset-controller",
    ),
    Case("a workload's own label", DENY, labelled(idle(), RESERVED)),
    Case("a template", DENY, templated(idle(), RESERVED)),
    Case("a template with an allowed label", ALLOW, templated(idle(), {"acme.example/team": "x"})),
    Case("a template by an exempt user", ALLOW, templated(idle(), RESERVED), user="ci-main"),
    Case("a template exempt by its labels", ALLOW, templated(idle(), RESERVED | {"legacy": "yes"}), groups=("old-x",)),
    Case("a Job", DENY, templated(job("batch"), RESERVED)),
    Case("added by an update", DENY, labelled(waiting("u1"), RESERVED), labelled(waiting("u1"), {}), "UPDATE"),
    Case(
        "present before an update",
        ALLOW,
        labelled(waiting("u2"), RESERVED | {"a": "b"}),
        labelled(waiting("u2"), RESERVED),
        "UPDATE",
    ),
    Case(
        "changed by an update",
        DENY,
        labelled(waiting("u3"), {"foo.acme.example/bar": "y"}),
        labelled(waiting("u3"), RESERVED),
        "UPDATE",
    ),
    Case("removed by an update", ALLOW, labelled(waiting("u4"), {}), labelled(waiting("u4"), RESERVED), "UPDATE"),
    Case("deleted", ALLOW, labelled(waiting("u5"), RESERVED), labelled(waiting("u5"), RESERVED), "DELETE"),
    Case("added to a template", DENY, templated(idle("u6"), RESERVED), templated(idle("u6"), {}), "UPDATE"),
    Case(
        "present in a template before an update",
        ALLOW,
        templated(idle("u7"), RESERVED | {"a": "b"}),
        templated(idle("u7"), RESERVED),
        "UPDATE",
    ),
]


ADVICE = {"a.advice.example/b": "x"}
ADVISED = [
    Case("advice", WARN, labelled(waiting(), ADVICE)),
    Case("advice for a template", WARN, templated(idle(), ADVICE)),
    Case("advice for a workload", WARN, labelled(idle(), ADVICE)),
    Case("advice on another operation", ALLOW, labelled(idle("a1"), ADVICE), labelled(idle("a1"), {}), "UPDATE"),
    Case("advice that is not selected", ALLOW, labelled(waiting(), ADVICE | {"quiet": "1"})),
    Case("advice with an excluded value", ALLOW, labelled(waiting(), ADVICE | {"tier": "free"})),
    Case("advice for a template that is not selected", ALLOW, templated(idle(), ADVICE | {"quiet": "1"})),
    Case(
        "advice on an object that was selected before",
        WARN,
        labelled(waiting("a2"), ADVICE | {"quiet": "1"}),
        labelled(waiting("a2"), {}),
        "UPDATE",
    ),
    Case("advice in another namespace", ALLOW, labelled(waiting(), ADVICE, where="export-quiet")),
    Case("advice with an excluded name", ALLOW, labelled(waiting("toolbox"), ADVICE)),
    Case("both", DENY, labelled(waiting(), ADVICE | RESERVED)),
]


def running(image: str, memory: str = "1Gi", count: int = 1, labels: JSON | None = None, name: str = "web") -> JSON:
    """Return a Pod with `count` containers of this image."""
    thing = labelled(waiting(name), labels or {})
    limits = {"limits": {"memory": memory}}
    thing["spec"]["containers"] = [{"name": f"c{n}", "image": image, "resources": limits} for n in range(count)]
    return thing


def running_in(thing: JSON, image: str, *, labels: JSON | None = None, **of: Any) -> JSON:
    """Return the workload with the Pods of `running`."""
    copy = templated(thing, labels or {})
    copy["spec"]["template"]["spec"]["containers"] = running(image, **of)["spec"]["containers"]
    return copy


def scheduled(image: str) -> JSON:
    """Return a CronJob whose Pod template has no metadata."""
    work = {"template": {"spec": {**running(image)["spec"], "restartPolicy": "Never"}}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": work}}
    return labelled({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "yearly"}, "spec": spec}, {})


def bare_template(image: str) -> JSON:
    """Return a PodTemplate whose template has no metadata."""
    template = {"spec": running(image)["spec"]}
    return labelled({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": template}, {})


OURS, THEIRS = "registry.example.com/app:1", "docker.io/app:1"
IMAGES = [
    Case("our image", ALLOW, running(OURS)),
    Case("another image", DENY, running(THEIRS)),
    Case("too much memory", DENY, running(OURS, "65Gi")),
    Case("a validation that reads pools isn't exported", ALLOW, running(OURS, count=2)),
    Case("a matchCondition that is false", ALLOW, running(THEIRS, labels={"role": "system"})),
    Case("exempt by a label", ALLOW, running(THEIRS, labels={"checked": ""})),
    Case("another image in a template", DENY, running_in(idle(), THEIRS)),
    Case("our image in a template", ALLOW, running_in(idle(), OURS)),
    Case("our image in a Job whose template has no metadata", ALLOW, labelled(job("batch"), {})),
    Case("our image in a CronJob", ALLOW, scheduled(OURS)),
    Case("another image in a CronJob", DENY, scheduled(THEIRS)),
    Case("our image in a PodTemplate", ALLOW, bare_template(OURS)),
    Case("another image in a PodTemplate", DENY, bare_template(THEIRS)),
    Case("another image in a Job", DENY, running_in(job("batch"), THEIRS)),
    Case(
        "a template with a matchCondition that is false", ALLOW, running_in(idle(), THEIRS, labels={"role": "system"})
    ),
    Case("a template that is exempt by a label", ALLOW, running_in(idle(), THEIRS, labels={"checked": ""})),
    Case(
        "an unchanged template",
        ALLOW,
        running_in(idle("i1"), THEIRS) | {"metadata": {"name": "i1", "namespace": "export-a", "labels": {"a": "b"}}},
        running_in(idle("i1"), THEIRS),
        "UPDATE",
    ),
    Case("a template that changes", DENY, running_in(idle("i2"), THEIRS), running_in(idle("i2"), OURS), "UPDATE"),
    Case("an Exemption", ALLOW, labelled(running(THEIRS), {}, where="export-b")),
    Case("a Pod that is changed", DENY, running(THEIRS, name="i3"), running(OURS, name="i3"), "UPDATE"),
]


def of_size(replicas: int, name: str = "web", annotations: JSON | None = None) -> JSON:
    """Return a Deployment whose Pods are never scheduled."""
    return labelled(deployment(name, replicas, schedulerName="nobody"), {}, annotations)


def scale(name: str, replicas: int) -> JSON:
    """Return the Scale that `kubectl scale` sends."""
    metadata = {"name": name, "namespace": "export-a"}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


SIZED = [
    Case("as many as allowed", ALLOW, of_size(5)),
    Case("too many", DENY, of_size(6)),
    Case("too many with an excluded name", ALLOW, of_size(6, "large")),
    Case("more than before", DENY, of_size(7, "s1"), of_size(0, "s1"), "UPDATE"),
    Case("too many by break-glass", ALLOW, of_size(6, "web", BREAK_GLASS), groups=("firefighters",)),
    Case("scaled up", DENY, scale("s2", 9), of_size(0, "s2"), "UPDATE", subresource="scale"),
    Case("scaled within bounds", ALLOW, scale("s3", 3), of_size(0, "s3"), "UPDATE", subresource="scale"),
]


def config(name: str, labels: JSON, data: JSON, annotations: JSON | None = None) -> JSON:
    """Return a ConfigMap."""
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return labelled(thing, labels, annotations)


def deleted(name: str, verdict: str, thing: JSON, **asked: Any) -> Case:
    """Return a DELETE request for the object."""
    return Case(name, verdict, thing, thing, "DELETE", **asked)


KEPT = [
    deleted("not kept", ALLOW, config("d1", {}, {"never": "x"})),
    deleted("kept", DENY, config("d2", {"keep": ""}, {"never": "x"})),
    deleted("deleted by a denied user", DENY, config("d3", {}, {"never": "x"}), user="mallory"),
    deleted("an expression that fails", DENY, config("d4", {}, {"other": "x"})),
    deleted("deleted under an exempt name", ALLOW, config("free-1", {"keep": ""}, {})),
    deleted("deleted by break-glass", ALLOW, config("d5", {"keep": ""}, {}, BREAK_GLASS), groups=("firefighters",)),
    deleted(
        "deleted by the garbage collector",
        ALLOW,
        config("d6", {"keep": ""}, {}),
        user="system:serviceaccount:kube-system:generic-garbage-collector",
    ),
]

TWO = {"a": "x", "b": "y"}
LAST = Case("a condition on the namespace", DENY, config("t1", {}, TWO))
"""A request that the last exported policy denies."""

TIERED = [
    LAST,
    Case("a validation after a condition on the namespace", ALLOW, config("t1", {}, {"a": "x"})),
    Case("another condition that is false", ALLOW, config("t1", {}, {})),
    Case(
        "a condition that fails",
        DENY,
        config("t1", {}, {"a": "x"}) | {"metadata": {"name": "t1", "namespace": "export-quiet"}},
    ),
]


def scaler(version: str, most: int) -> JSON:
    """Return a HorizontalPodAutoscaler."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": most}
    thing = {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    return labelled(thing | {"spec": spec}, {"spot": "y"})


SCALERS = [
    Case("a version that the policy names", DENY, scaler("v1", 3)),
    Case("a version that another policy matches", ALLOW, scaler("v2", 3)),
    Case("a version denied by the other policy", DENY, scaler("v2", 10)),
]


CASES = [*OWNED, *ADVISED, *IMAGES, *SIZED, *KEPT, *TIERED, *SCALERS]
