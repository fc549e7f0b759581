"""Documentation tables of the metrics and alerts, and the alerts for the Prometheus operator."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import yaml
from msgspec.structs import replace

from tests.controller.test_notice import NOTICE
from tests.server.harness import LOOPBACK, PAIR, Known, bundle_of, review
from tests.specs import spec_of
from webhook.controller.leader import Leader
from webhook.controller.ledger import Ledger
from webhook.controller.notice.informer import Informer
from webhook.controller.notice.objects import NotifiedNode
from webhook.engine.bundle import Bundle
from webhook.engine.index import Index
from webhook.model.decision import Decision, Finding, Outcome
from webhook.model.review import decode_review
from webhook.policy.common import ExemptSpec
from webhook.policy.match import Exemption
from webhook.rules.context import NOTHING_KNOWN, Phase
from webhook.runtime.limits import LIMITS
from webhook.runtime.reload import Reload, Reloader
from webhook.runtime.snapshot import Snapshot
from webhook.server.lifecycle import Replica
from webhook.server.ops.port import OpsPort
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from webhook.cluster.api import Api
    from webhook.server.follow import LiveCluster
    from webhook.server.tls.self_managed import SelfManaged

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "manifests" / "monitoring" / "rules.yaml"
OPERATE: Final = ROOT / "docs" / "operate.md"
TESTED_RULES: Final = Path(__file__).parent / "rules.yaml"
OPERATOR_RULES: Final = ROOT / "manifests" / "components" / "monitoring" / "prometheusrule.yaml"
REHEARSAL: Final = Path(__file__).with_name("rehearsal.json")

_YEAR: Final = datetime(2100, 1, 1, tzinfo=UTC)
_UNITS: Final = {"_timestamp_seconds": "Unix time", "_seconds": "seconds", "_info": "1", "_total": "count"}


def full_registry() -> CollectorRegistry:
    """Return the metrics of a replica on a live cluster after every event, so that each has a value."""
    return asyncio.run(_full_registry())


async def _full_registry() -> CollectorRegistry:
    (policy,) = bundle_of().policies
    exemption = Exemption(
        spec_of(ExemptSpec, {"users": ["anna"], "reason": "until then", "expires": "2100-01-01"}),
        "exempt[0]",
        "p.yaml:1",
    )
    index = Index([replace(policy, exemptions=(exemption,))], (), {}, "spotgate-system")
    snapshot = Snapshot(Bundle(index=index, documents=()), Known())
    certificate = ServingCertificate(PAIR)
    certificate.trusted, certificate.trust_expiry = True, _YEAR
    outdated = SimpleNamespace(outdated=0)
    cluster = SimpleNamespace(waits_for="", silence=30.0, registered=outdated, floor=None)
    managed = SimpleNamespace(waits_for="", last_look=Reload(), authority_expiry=_YEAR)
    with LOOPBACK.bind() as listener:
        replica = Replica(
            listener,
            certificate,
            Reloader(lambda: snapshot, ()),
            LIMITS,
            cast("LiveCluster", cluster),
            managed=cast("SelfManaged", managed),
        )
    finding = Finding(policy="p", id="test/x", outcome=Outcome.AUDIT, reason="", would_deny=True)
    decision = Decision(findings=(finding,), unknown=1)
    replica.metrics.decided(decode_review(review()), Phase.VALIDATE, decision, authenticated=True)
    replica.metrics.answered(decode_review(review()), Phase.VALIDATE, 0.001)
    for counter in ("rejected", "shed", "unrecorded", "connections_cut"):
        replica.metrics.count(counter, "a reason")
    OpsPort(replica, REHEARSAL)
    registry, api = replica.metrics.registry, cast("Api", None)
    Leader(api, index, lambda: NOTHING_KNOWN, Ledger(bool), registry, bool)
    Informer(api, (), registry, bool).take_node(None, NotifiedNode("a", "1", NOTICE))
    return replica.metrics.registry


def metric_table() -> str:
    """Return the table of all metrics."""
    rows = ["| metric | type | labels | meaning | unit |", "|---|---|---|---|---|"]
    for family in sorted(full_registry().collect(), key=lambda family: family.name):
        assert family.samples, f"{family.name} has no value in `full_registry`, so its labels are not known"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels if label != "le")
        is_flag = family.documentation.startswith("1 ")
        unit = next(
            (unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "0 or 1" if is_flag else "count"
        )
        rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} | {unit} |")
    return "\n".join(rows)


def alerts() -> list[dict[str, Any]]:
    """Return the alerts."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return [*group["rules"]]


def alert_table() -> str:
    """Return the table of all alerts for the page with the runbooks."""
    rows = ["| alert | severity | fires when | after | go to |", "|---|---|---|---|---|"]
    headings = re.findall(r"^## (.*)$", OPERATE.read_text(), re.MULTILINE)
    names = {heading.lower().replace(" ", "-"): heading.lower() for heading in headings}
    for alert in alerts():
        anchor = alert["annotations"]["runbook_url"].partition("#")[2]
        cells = (alert["alert"], alert["labels"]["severity"], alert["annotations"]["summary"])
        rows.append(f"| `{cells[0]}` | {cells[1]} | {cells[2]} | {alert['for']} | [{names[anchor]}](#{anchor}) |")
    return "\n".join(rows)


def rules_without_annotations() -> str:
    """Return the alerts without annotations, which each case of `promtool test rules` would repeat."""
    groups = yaml.safe_load(RULES.read_text())
    for rule in groups["groups"][0]["rules"]:
        del rule["annotations"]
    return f"# Generated by `make golden` from manifests/monitoring/rules.yaml.\n{yaml.safe_dump(groups, width=200)}"


def operator_rules() -> str:
    """Return the alerts as a PrometheusRule."""
    rules = RULES.read_text()
    groups = rules[rules.index("groups:") :]
    return f"""\
# Generated by `make golden` from manifests/monitoring/rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: spotgate
  namespace: spotgate-system
  labels: {{app.kubernetes.io/name: spotgate}}
spec:
{"".join(f"  {line}".rstrip() + chr(10) for line in groups.splitlines())}"""
