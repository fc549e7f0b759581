"""Probe the policies: create objects with dryRun=All, and see what the API server answers. Nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.placement.target import CAPACITY_LABEL
from webhook.cluster.api import ApiError
from webhook.commands.doctor.installation import SECONDS, Diagnosis
from webhook.model.decision import Outcome
from webhook.model.review import PROBE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.commands.doctor.installation import JSON, Installed
    from webhook.engine.bundle import Bundle

_NAMESPACE: Final = "default"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_UNTUNED: Final = 30
"""Kubernetes' default of terminationGracePeriodSeconds."""

_POD_SPEC: Final[JSON] = {
    # As Pod Security `restricted` wants it, and with what a LimitRange or quota may ask for.
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "probe",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
_BOTH_STRATEGIES: Final = {
    "qos.coreweave.cloud/interruptable": "true",
    "qos.coreweave.com/graceful-interruptible": "true",
}
_NOT_PLACED: Final = "spot-placement/not-placed"
"""What the validating webhook finds in a Pod that the mutating one should have changed."""

_CKS: Final = "compute.coreweave.com"
_KARPENTER: Final = "karpenter.sh"

_FINDS: Final = {
    "EvictionStrategy": [("", "contradictory Pod", "eviction-strategy/contradiction")],
    "NodePoolRules": [
        (_CKS, "unknown pool", "node-pool-rules/unknown-instance-type"),
        (_KARPENTER, "narrow pool", "node-pool-rules/"),
    ],
    "OnDemandFallback": [(_CKS, "superchip pool", "on-demand-fallback/superchip")],
    "ReservedLabels": [("", "labelled Pod", "reserved-labels/reserved")],
    "SpotPlacement": [("", "spot Pod", "spot-placement/")],
    "SpotSuitability": [("", "spot Pod", "spot-suitability/bare-pod")],
}
"""By kind of policy: which probe finds what, and the API group that the cluster must serve for it."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Hold the API server's answer: the object as it would be stored, if it would, and the messages about it."""

    stored: JSON | None
    said: str

    def __contains__(self, finding: str) -> bool:
        return f"[{finding}" in self.said


async def check_policies(installed: Installed) -> tuple[list[Diagnosis], bool | None]:
    """Probe each kind of policy in the bundle. Return also whether a probe for spot was placed, None if unknown."""
    if installed.bundle is None:
        return [Diagnosis("probes", "unknown", installed.bundle_problem, "mend the policies")], None
    answers = {name: await _try(installed, probe) for name, probe in _probes(installed.bundle).items()}
    found = []
    for kind in sorted({each.kind.name for each in installed.bundle.policies}):
        strictest = max(each.enforcement for each in installed.bundle.policies if each.kind.name == kind)
        name = f"probe {kind}"
        if strictest is Outcome.AUDIT:
            found.append(Diagnosis(name, "unknown", "enforcement is audit, which no answer shows"))
        else:
            found.append(_judged(name, kind, answers, installed))
    spot = answers["spot Pod"].stored
    return found, None if spot is None or not _has_spot(installed) else _is_placed(spot)


async def _try(installed: Installed, probe: tuple[str, str, JSON]) -> ProbeAnswer:
    """Send an object that is not to be stored."""
    group, path, thing = probe
    if group not in installed.groups:
        return ProbeAnswer(None, "")
    try:
        async with installed.api.send("POST", f"{path}?dryRun=All", thing, SECONDS) as response:
            said = " ".join(response.headers.getall("Warning", ()))
            return ProbeAnswer(msgspec.json.decode(await response.read()), said)
    except ApiError as error:
        return ProbeAnswer(None, str(error))


def _probes(bundle: Bundle) -> dict[str, tuple[str, str, JSON]]:
    """Return the objects to try, each with its API group and path."""
    reserved = [each.spec for each in bundle.documents if each.kind == "ReservedLabels" and each.spec is not None]
    domain = next((each.domains[0] for each in reserved if each.match.resource_rules is None), "spotgate.dev")
    return {
        "labelled Pod": ("", _PODS, _pod({f"spotgate-doctor.{domain}/probe": "x"})),
        "spot Pod": ("", _PODS, _pod({CAPACITY_LABEL: "spot"})),
        "contradictory Pod": ("", _PODS, _pod(_BOTH_STRATEGIES)),
        "superchip pool": _pool(_CKS, "v1alpha1", computeClass="spot", instanceType="gb200-4x", targetNodes=1),
        "unknown pool": _pool(_CKS, "v1alpha1", instanceType="spotgate-doctor", targetNodes=0),
        "narrow pool": _pool(
            *(_KARPENTER, "v1"),
            template={
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "spotgate-doctor"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
                    ],
                }
            },
        ),
    }


def _pod(labels: Mapping[str, str]) -> JSON:
    metadata = {"generateName": PROBE_NAME, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _POD_SPEC}


def _pool(group: str, version: str, **spec: Any) -> tuple[str, str, JSON]:  # noqa: ANN401 - JSON
    metadata = {"generateName": PROBE_NAME}
    thing = {"apiVersion": f"{group}/{version}", "kind": "NodePool", "metadata": metadata, "spec": spec}
    return group, f"/apis/{group}/{version}/nodepools", thing


def _judged(name: str, kind: str, answers: Mapping[str, ProbeAnswer], installed: Installed) -> Diagnosis:
    spot = answers["spot Pod"]
    if kind == "SpotPlacement" and spot.stored is not None and _is_placed(spot.stored):
        return Diagnosis(name, "ok", "a Pod for spot is given what places it there")
    if kind == "SpotPlacement" and _NOT_PLACED in spot:
        return _lost(name, spot, "a Pod for spot is let through unchanged")
    if kind == "GracefulTermination":
        if _has_spot(installed):
            return _tuned(name, spot)
        return Diagnosis(name, "unknown", "not probed: no spot pool is known that a Pod could land on")
    for group, probe, finding in _FINDS.get(kind, ()):
        if group in installed.groups:
            return _found(name, answers[probe], finding)
    why = "the cluster has no kind of node pool with a probe for it" if kind in _FINDS else "it is a team's own rule"
    return Diagnosis(name, "unknown", f"not probed: {why}")


def _found(name: str, answer: ProbeAnswer, finding: str) -> Diagnosis:
    if finding in answer:
        return Diagnosis(name, "ok", f"{finding} is {'denied' if answer.stored is None else 'warned of'}")
    return _lost(name, answer, f"{finding} is not found: the object was let through")


def _tuned(name: str, answer: ProbeAnswer) -> Diagnosis:
    stored = answer.stored
    if stored is not None:
        spec = stored["spec"]
        if spec["terminationGracePeriodSeconds"] != _UNTUNED or "lifecycle" in spec["containers"][0]:
            seconds = spec["terminationGracePeriodSeconds"]
            return Diagnosis(name, "ok", f"a Pod for spot is given {seconds} s to end")
    return _lost(name, answer, "a Pod for spot keeps the default grace period")


def _lost(name: str, answer: ProbeAnswer, what: str) -> Diagnosis:
    """Return the result of a probe that did not show what it should."""
    if answer.stored is None:
        fix = "what refused it comes before spotgate: allow the probe, or take it for unknown"
        return Diagnosis(name, "unknown", f"the probe was refused otherwise: {answer.said}", fix)
    fix = f"mend what failed above; if nothing did, an exemption holds for you or for namespace {_NAMESPACE}"
    return Diagnosis(name, "fail", what, fix)


def _is_placed(pod: JSON) -> bool:
    return bool(pod["spec"].get("nodeSelector") or pod["spec"].get("affinity", {}).get("nodeAffinity"))


def _has_spot(installed: Installed) -> bool:
    view = installed.view
    return any(pool.capacity == "spot" and not pool.elsewhere for pool in (*(view.pools or ()), *view.node_groups))
