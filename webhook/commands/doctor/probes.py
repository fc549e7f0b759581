"""Probe the policies: create objects with dryRun=All, and judge the API server's answers. Nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import yaml

from webhook.cluster.api import ApiError
from webhook.commands.doctor.installation import JSON, SECONDS, Diagnosis
from webhook.model.decision import Outcome
from webhook.model.review import PROBE_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from webhook.commands.doctor.installation import Installed

_TABLE: Final = Path(__file__).with_name("probes.yaml")
_NAMESPACE: Final = "default"
_SPOT_POD: Final = "spot Pod"
_NOT_PLACED: Final = "spot-placement/not-placed"
"""What the validating webhook finds in a Pod that the mutating one should have changed."""

_DEFAULT_GRACE: Final = 30
"""Kubernetes' default of terminationGracePeriodSeconds."""


class Probe(msgspec.Struct, frozen=True):
    """An object, by its name, and the finding that it must have."""

    object: str
    finding: str


class ProbeTable(msgspec.Struct, frozen=True):
    """The objects by name, and the probes by kind of policy."""

    objects: dict[str, JSON]
    probes: dict[str, list[Probe]]


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The API server's answer to an object: what it would store, None if it refused, and its messages."""

    stored: JSON | None
    messages: str

    def __contains__(self, finding: str) -> bool:
        return f"[{finding}" in self.messages

    @property
    def is_placed(self) -> bool:
        """Return whether the stored Pod must run on certain nodes."""
        spec = self.stored["spec"] if self.stored else {}
        return bool(spec.get("nodeSelector") or spec.get("affinity", {}).get("nodeAffinity"))

    @property
    def grace(self) -> str:
        """Return the seconds that the stored Pod is given to end; empty if it is not tuned."""
        spec = self.stored["spec"] if self.stored else {"containers": [{}]}
        seconds = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        return str(seconds) if seconds != _DEFAULT_GRACE or "lifecycle" in spec["containers"][0] else ""


@dataclass(frozen=True, slots=True)
class Probed:
    """The probes, and the answers to the objects whose API group is served."""

    probes: Mapping[str, list[Probe]]
    answers: Mapping[str, ProbeAnswer]
    has_spot: bool

    @property
    def placed(self) -> bool | None:
        """Return whether the Pod for spot was placed; None if that is unknown."""
        spot = self.answers.get(_SPOT_POD)
        return spot.is_placed if spot is not None and spot.stored is not None and self.has_spot else None


async def send_probes(installed: Installed) -> Probed:
    """Send the objects; none if there are no policies to probe."""
    documents = installed.bundle.documents if installed.bundle else ()
    reserved = [document.spec for document in documents if document.kind == "ReservedLabels" and document.spec]
    domain = next((spec.domains[0] for spec in reserved if spec.match.resource_rules is None), "spotgate.dev")
    table = _read_table(domain)
    answers = {
        name: await _send(installed, thing)
        for name, thing in (table.objects.items() if installed.bundle else ())
        if thing["apiVersion"].rpartition("/")[0] in installed.groups
    }
    pools = (*(installed.view.pools or ()), *installed.view.node_groups)
    has_spot = any(pool.capacity == "spot" and not pool.elsewhere for pool in pools)
    return Probed(table.probes, answers, has_spot)


def _read_table(domain: str) -> ProbeTable:
    text = _TABLE.read_text(encoding="utf-8").replace("DOMAIN", domain)
    return msgspec.convert(yaml.load(text, Loader=yaml.CSafeLoader), ProbeTable)


async def _send(installed: Installed, thing: JSON) -> ProbeAnswer:
    version = thing["apiVersion"]
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods" if version == "v1" else f"/apis/{version}/nodepools"
    body = {**thing, "metadata": {"generateName": PROBE_NAME, **thing.get("metadata", {})}}
    try:
        async with installed.api.send("POST", f"{path}?dryRun=All", body, SECONDS) as response:
            messages = " ".join(response.headers.getall("Warning", ()))
            return ProbeAnswer(msgspec.json.decode(await response.read()), messages)
    except ApiError as error:
        return ProbeAnswer(None, str(error))


async def check_policies(installed: Installed, probed: Probed) -> AsyncIterator[Diagnosis]:
    """Judge the answers for each kind of policy in the bundle."""
    if installed.bundle is None:
        yield Diagnosis("probes", "unknown", installed.loaded.what, "mend the policies")
        return
    policies = installed.bundle.policies
    for kind in sorted({policy.kind.name for policy in policies}):
        if max(policy.enforcement for policy in policies if policy.kind.name == kind) is Outcome.AUDIT:
            yield Diagnosis(f"probe {kind}", "unknown", "enforcement is audit, which no answer shows")
        else:
            yield _judge(kind, probed)


def _judge(kind: str, probed: Probed) -> Diagnosis:
    name, answer = f"probe {kind}", probed.answers[_SPOT_POD]
    probes = probed.probes.get(kind, ())
    probe = next((probe for probe in probes if probe.object in probed.answers), None)
    fine = ""
    if kind == "GracefulTermination":
        if not probed.has_spot:
            return Diagnosis(name, "unknown", "not probed: no spot pool is known that a Pod could land on")
        fine = answer.grace and f"a Pod for spot is given {answer.grace} s to end"
        missing = "a Pod for spot keeps the default grace period"
    elif kind == "SpotPlacement" and (answer.is_placed or _NOT_PLACED in answer):
        fine = "a Pod for spot is given what places it there" if answer.is_placed else ""
        missing = "a Pod for spot is let through unchanged"
    elif probe is None:
        why = "the cluster has no kind of node pool with a probe for it" if probes else "it is a team's own rule"
        return Diagnosis(name, "unknown", f"not probed: {why}")
    else:
        answer = probed.answers[probe.object]
        if probe.finding in answer:
            fine = f"{probe.finding} is {'denied' if answer.stored is None else 'warned of'}"
        missing = f"{probe.finding} is not found: the object was let through"
    if not fine and answer.stored is None:
        fix = "what refused it comes before spotgate: allow the probe, or take it for unknown"
        return Diagnosis(name, "unknown", f"the probe was refused otherwise: {answer.messages}", fix)
    fix = f"mend what failed above; if nothing did, an exemption holds for you or for namespace {_NAMESPACE}"
    return Diagnosis.of(name, "" if fine else missing, fix, fine)
