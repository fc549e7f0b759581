"""Probe the policies: create objects with dryRun=All, which stores nothing, and check the API server's responses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.cluster.api import ApiError
from webhook.commands.doctor.installation import JSON, SECONDS, Diagnosis, Installed
from webhook.model.decision import Outcome
from webhook.model.review import PROBE_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


_TABLE: Final = Path(__file__).with_name("probes.yaml")
_NAMESPACE: Final = "default"


class Probe(msgspec.Struct, frozen=True):
    """The name of an object to create, and the pattern in the response that proves that the policy works."""

    object: str
    sign: str
    done: str = ""
    missing: str = ""
    needs_spot: bool = False


class ProbeTable(msgspec.Struct, frozen=True):
    """The objects by name, and the probes by policy kind."""

    objects: dict[str, JSON]
    probes: dict[str, list[Probe]]


class ProbeAnswer(NamedTuple):
    """The API server's response to an object: the resulting object and the warnings, or the error."""

    text: str
    refused: bool = False


async def send_probes(installed: Installed) -> dict[str, Diagnosis]:
    """Send the probe objects whose API group the cluster serves. Return the result by policy kind.

    Without loaded policies, send none.
    """
    documents = installed.bundle.documents if installed.bundle else ()
    reserved = [document.spec for document in documents if document.kind == "ReservedLabels" and document.spec]
    domain = next((spec.domains[0] for spec in reserved if spec.match.resource_rules is None), "spotgate.dev")
    text = _TABLE.read_text(encoding="utf-8").replace("DOMAIN", domain)
    table = msgspec.yaml.decode(text, type=ProbeTable)
    answers = {
        name: await _send(installed, value)
        for name, value in (table.objects.items() if installed.bundle else ())
        if value["apiVersion"].rpartition("/")[0] in installed.groups
    }
    view = installed.view
    has_spot = any(pool.spot and not pool.elsewhere for pool in (*(view.pools or ()), *view.node_groups))
    return {kind: _judge(f"probe {kind}", probes, answers, has_spot=has_spot) for kind, probes in table.probes.items()}


async def _send(installed: Installed, value: JSON) -> ProbeAnswer:
    version = value["apiVersion"]
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods" if version == "v1" else f"/apis/{version}/nodepools"
    body = {**value, "metadata": {"generateName": PROBE_NAME, **value.get("metadata", {})}}
    try:
        async with installed.api.send("POST", f"{path}?dryRun=All", body, SECONDS) as response:
            return ProbeAnswer(" ".join([*response.headers.getall("Warning", ()), await response.text()]))
    except ApiError as error:
        return ProbeAnswer(str(error), refused=True)


async def check_policies(installed: Installed, probed: Mapping[str, Diagnosis]) -> AsyncIterator[Diagnosis]:
    """Yield the result of each policy kind in the bundle."""
    if installed.bundle is None:
        yield Diagnosis("probes", "unknown", installed.loaded.what, "correct the policies")
        return
    policies = installed.bundle.policies
    for kind in sorted({policy.kind.name for policy in policies}):
        name = f"probe {kind}"
        if max(policy.enforcement for policy in policies if policy.kind.name == kind) is Outcome.AUDIT:
            yield Diagnosis(name, "unknown", "enforcement is audit, so no response shows the effect")
        else:
            yield probed.get(kind) or Diagnosis(name, "unknown", "not probed: it is a team's own rule")


def _judge(name: str, probes: Sequence[Probe], answers: Mapping[str, ProbeAnswer], *, has_spot: bool) -> Diagnosis:
    probe = next((probe for probe in probes if probe.object in answers), None)
    if probe is None:
        return Diagnosis(name, "unknown", "not probed: the cluster has no kind of node pool with a probe for it")
    if probe.needs_spot and not has_spot:
        return Diagnosis(name, "unknown", "not probed: no known spot pool could run a Pod")
    answer = answers[probe.object]
    if re.search(probe.sign, answer.text):
        return Diagnosis(name, "ok", probe.done or f"{probe.sign} is {'denied' if answer.refused else 'warned of'}")
    if answer.refused:
        fix = "another check rejected it before spotgate: allow the probe, or accept the state `unknown`"
        return Diagnosis(name, "unknown", f"the API server rejected the probe for another reason: {answer.text}", fix)
    fix = f"fix what failed above; if nothing did, you or namespace {_NAMESPACE} may be exempt"
    return Diagnosis(name, "fail", probe.missing or f"the API server admitted the object without {probe.sign}", fix)
