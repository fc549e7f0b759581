"""Programmatic changes to the recorded answers, with the output of doctor; cases.yaml has the static ones."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from certs.authority import KeyPair, create_authority, issue_leaf
from tests.cli.doctor.recorded import HOST, Answer, certificates, recorded
from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


DEPLOYMENT, PODS, NODES = "/deployments/spotgate", "spotgate-system/pods?labelSelector", "/api/v1/nodes?"
PROXY, REPLICA, METRICS = "/proxy/", "/proxy/version", "/proxy/metrics"
CONFIGMAP, SECRET, POOLS = "/configmaps/spotgate-own-policies", "/secrets/", "GET /apis/compute.coreweave.com/"
MUTATING, VALIDATING = "/mutatingwebhookconfigurations/spotgate", "/validatingwebhookconfigurations/spotgate"
ALL_MUTATING = "/v1/mutatingwebhookconfigurations$"
SPOT_POD, LABELLED_POD, SUPERCHIP = '{"spotgate.dev/capacity', '{"spotgate-doctor.', '{"computeClass'
FORBIDDEN = Answer(403, '{"message": "nobody may"}')
UNREACHABLE = Answer(503, '{"message": "error trying to reach service"}')
GONE = Answer(404, "")
NOTHING = Answer(200, '{"items": [], "metadata": {}}')
SELF_MANAGED = {'"serve",': '"serve", "--tls-secret=$(POD_NAMESPACE)/spotgate-certificates",'}
NOW = datetime.now(UTC)
IN_AN_HOUR = format_datetime(NOW + timedelta(hours=1), usegmt=True)


def own(document: str) -> dict[str, Any]:
    """Return the changes for a Deployment that mounts this policy in addition to the shipped ones."""
    mounts = '"volumeMounts": [{"name": "own-policies", "mountPath": "/etc/spotgate/own"}]'
    deployment = {
        '"--policies=shipped"': '"--policies=shipped", "--policies=/etc/spotgate/own"',
        '"containers": \\[{': f'"containers": [{{{mounts}, ',
        '"volumes": \\[': '"volumes": [{"name": "own-policies", "configMap": {"name": "spotgate-own-policies"}}, ',
    }
    return {DEPLOYMENT: deployment, CONFIGMAP: Answer(200, json.dumps({"data": {"team.yaml": document}}))}


def leaf(name: str = HOST, *, days_ago: int = 0, authority: KeyPair | None = None) -> KeyPair:
    return issue_leaf(authority or certificates()[0], names=[name], ips=[], now=NOW - timedelta(days=days_ago))


def serving(pair: KeyPair) -> Mapping[str, str]:
    """Return the change for replicas that serve another certificate."""
    return {
        '"certificate": "[^"]*"': f'"certificate": {json.dumps(pair.certificate_pem.decode())}'.replace("\\", r"\\")
    }


def secret(pair: KeyPair) -> Answer:
    data = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
    held = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return Answer(200, json.dumps({"metadata": {"resourceVersion": "1"}, "data": held}))


def mutating(*names: str) -> Answer:
    """Return configurations of these names, each with a webhook for Pods."""
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    items = [{"metadata": {"name": name}, "webhooks": [{"name": "it", "rules": [rule]}]} for name in names]
    return Answer(200, json.dumps({"items": items}))


def assigned(*costs: str) -> Answer:
    """Return Pods on on-demand nodes with these deletion costs; an empty string sets none."""
    key = "controller.kubernetes.io/pod-deletion-cost"
    items = [{"metadata": {"annotations": {key: cost} if cost else {}}} for cost in costs]
    return Answer(200, json.dumps({"items": items}))


def counted(metric: str, **labels: str) -> Answer:
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return Answer(200, f"{metric}{{{pairs}}} 3\n")


def changed(path: str, change: Any) -> Answer:
    """Return a configuration after `change` modified its webhooks."""
    (body,) = (json.loads(answer.body) for key, answer in recorded().items() if key.endswith(path))
    change(body["webhooks"])
    return Answer(200, json.dumps(body))


def mutated(change: Any) -> Answer:
    return changed(MUTATING, change)


def narrow(webhooks: Any) -> None:
    """Remove the rules for nodepools and one condition from the webhook for node pools."""
    pools = next(webhook for webhook in webhooks if webhook["name"] == "node-pools.spotgate.dev")
    pools["rules"] = [rule for rule in pools["rules"] if "nodepools" not in rule["resources"]]
    pools["matchConditions"] = [item for item in pools["matchConditions"] if item["name"] != "scaled-down"]


def divide(webhooks: Any) -> None:
    """Write one rule for each resource, in another order."""
    for webhook in webhooks:
        divided = [rule | {"resources": [name]} for rule in webhook["rules"] for name in rule["resources"]]
        webhook["rules"] = divided[::-1]


SILENT = "unknown: its state can't be read: 503 Service Unavailable: error trying to reach service"
WHY = "; the replicas' certificates can't be read: 503"
CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    # Replicas
    "another version": (
        {REPLICA: {'"version": "[^"]*"': '"version": "0.0.1"'}},
        {"replica": f"warn: it has version 0.0.1, and this program {__version__}"},
    ),
    "not trusted by its own account": (
        {METRICS: Answer(200, "spotgate_certificate_trusted 0")},
        {"replica": "warn: the caBundles that it last read don't trust its certificate"},
    ),
    "another program's answer": (
        {REPLICA: Answer(200, '{"version": 1}'), SECRET: secret(leaf())},
        {"replica": "unknown: .*/version of another version of spotgate"},
    ),
    # Certificates
    "one that expires soon": ({REPLICA: serving(leaf(days_ago=25))}, {"certificate of": "warn: trusted until "}),
    "one that has expired": (
        {REPLICA: serving(leaf(days_ago=31))},
        {"certificate of": r"fail: caBundle of .* does not chain to the CA bundle \(.*(expired|not valid)"},
    ),
    "one of another CA": (
        {REPLICA: serving(leaf(authority=create_authority(NOW)))},
        {"certificate of": "fail: caBundle of .* does not chain to the CA bundle"},
    ),
    "one for another name": (
        {REPLICA: serving(leaf("other.example"))},
        {"certificate of": f"fail: caBundle of .* the certificate is not for {HOST}"},
    ),
    "the Secret's certificate expires soon": (
        {PROXY: UNREACHABLE, SECRET: secret(leaf(days_ago=25))},
        {"replica": SILENT, "certificate in the Secret": f"warn: trusted until .*{WHY}"},
    ),
    "the Secret's certificate is a stranger's": (
        {PROXY: UNREACHABLE, SECRET: secret(leaf(authority=create_authority(NOW)))},
        {"replica": SILENT, "certificate in the Secret": f"fail: caBundle of .*does not chain.*{WHY}"},
    ),
    # Policies and configurations
    "policies that can't be loaded": (
        own("kind: SpotSuitability"),
        {
            "policies": "fail: the policies are invalid: /etc/spotgate/own/team.yaml:1",
            "MutatingWebhookConfiguration": "unknown: it exists, but there are no policies",
            "ValidatingWebhookConfiguration": "unknown: it exists, but there are no policies",
            "probes": "unknown: ",
        },
    ),
    "no policies and no configurations": (
        {**own(""), CONFIGMAP: GONE, MUTATING: GONE, VALIDATING: GONE},
        {
            "policies": "fail: policies in /etc/spotgate/own: ConfigMap spotgate-system/spotgate-own-policies does not exist",
            "MutatingWebhookConfiguration": "fail: it doesn't exist, so nothing is enforced",
            "ValidatingWebhookConfiguration": "fail: it doesn't exist",
            "probes": "unknown: ",
        },
    ),
    "policies are forbidden to read": (
        {**own(""), CONFIGMAP: FORBIDDEN},
        {
            "policies": "unknown: policies in /etc/spotgate/own: ConfigMap .* can't be read: 403",
            "MutatingWebhookConfiguration": "unknown: ",
            "ValidatingWebhookConfiguration": "unknown: ",
            "probes": "unknown: ",
        },
    ),
    "a field that someone else changed": (
        {MUTATING: mutated(lambda webhooks: webhooks[0].update(timeoutSeconds=30))},
        {
            "MutatingWebhookConfiguration": r"fail: webhooks\[mutate.spotgate.dev\].timeoutSeconds is not as rendered; "
            r"last written by field manager kubectl \(20"
        },
    ),
    "system namespaces are matched": (
        {MUTATING: mutated(lambda webhooks: webhooks[0].update(namespaceSelector={}))},
        {"MutatingWebhookConfiguration": r"fail: webhooks\[mutate.spotgate.dev\].namespaceSelector is not as rendered"},
    ),
    "a webhook is missing": (
        {MUTATING: mutated(lambda webhooks: webhooks.pop())},
        {"MutatingWebhookConfiguration": "fail: webhook mutate-spot-namespaces.spotgate.dev is missing"},
    ),
    "a rule and a condition that are missing": (
        {VALIDATING: changed(VALIDATING, narrow)},
        {
            "ValidatingWebhookConfiguration": r"fail: webhooks\[node-pools.spotgate.dev\]\."
            r"(rules lacks .*nodepools.compute.coreweave.com, .*nodepools.karpenter.sh.*|matchConditions lacks scaled-down);"
        },
    ),
    "rules that are split differently": ({VALIDATING: changed(VALIDATING, divide)}, {}),
    "a webhook of another version": (
        {MUTATING: mutated(lambda webhooks: webhooks.append(webhooks[1] | {"name": "old.spotgate.dev"}))},
        {"MutatingWebhookConfiguration": "fail: webhook old.spotgate.dev belongs to none of these policies"},
    ),
    # Probes
    "a Pod for spot is let through unchanged": (
        {
            SPOT_POD: Answer(
                201,
                '{"spec": {"terminationGracePeriodSeconds": 30, "containers": [{}]}}',
                ('299 - "[spot-placement/not-placed]"',),
            )
        },
        {
            "probe SpotPlacement": "fail: a spot Pod is admitted unchanged",
            "probe GracefulTermination": "fail: a spot Pod keeps the default grace period",
            "probe SpotSuitability": "fail: the API server admitted the object without spot-suitability/bare-pod",
        },
    ),
    "another webhook denies the probe": (
        {LABELLED_POD: Answer(403, '{"message": "exceeded quota"}')},
        {
            "probe ReservedLabels": "unknown: the API server rejected the probe for another reason: 403 Forbidden: exceeded quota"
        },
    ),
    "a Pod that must be denied is stored": (
        {SUPERCHIP: Answer(201, "{}")},
        {"probe OnDemandFallback": "fail: the API server admitted the object without on-demand-fallback/superchip"},
    ),
    "a policy that only audits": (
        own(
            "{apiVersion: spotgate.dev/v1, kind: EvictionStrategy, metadata: {name: eviction-strategy}, "
            "spec: {enforcement: audit}}"
        ),
        {
            "policies": "warn: EvictionStrategy eviction-strategy in team.yaml replaces the shipped one",
            "probe EvictionStrategy": "unknown: enforcement is audit, so no response shows the effect",
            "replica": "warn: it uses bundle ",
        },
    ),
    # Other webhooks
    "a harmless later webhook": ({ALL_MUTATING: mutating("aa-first", "spotgate", "zz-last")}, {}),
    "a later webhook that reverts the patch": (
        {ALL_MUTATING: mutating("zz-last"), SPOT_POD: {'"nodeSelector"': '"n"'}},
        {
            "later webhooks": "fail: webhooks that change Pods after spotgate: zz-last/it; the probe did not keep",
            "probe SpotPlacement": "fail: a spot Pod is admitted unchanged",
        },
    ),
    "a later webhook, and no answer to the probe": (
        {ALL_MUTATING: mutating("zz-last"), SPOT_POD: FORBIDDEN},
        {
            "later webhooks": "unknown: webhooks that change Pods after spotgate: zz-last/it; no probe shows",
            "probe GracefulTermination": "unknown: the API server rejected the probe for another reason",
            "probe SpotPlacement": "unknown: the API server rejected the probe for another reason",
            "probe SpotSuitability": "unknown: the API server rejected the probe for another reason",
        },
    ),
    # The cluster
    "clocks apart": (
        {"GET /version": Answer(200, '{"gitVersion": "v1.36.3", "major": "1", "minor": "36"}', (), IN_AN_HOUR)},
        {"clocks": r"warn: differ from this machine: the API server by \+\d{4} s$"},
    ),
    "calls that failed open": (
        {"GET /metrics": counted("apiserver_admission_webhook_fail_open_count", name="workloads.spotgate.dev")},
        {"failed calls": "warn: since the start of the API server that answered: workloads.spotgate.dev failed open 3"},
    ),
    "calls that were rejected": (
        {
            "GET /metrics": counted(
                "apiserver_admission_webhook_rejection_count",
                name="node-pools.spotgate.dev",
                error_type="calling_webhook_error",
            )
        },
        {
            "failed calls": "warn: since the start of the API server that answered: node-pools.spotgate.dev failed closed 3"
        },
    ),
    "denials and other webhooks' calls are no failures": (
        {
            "GET /metrics": counted(
                "apiserver_admission_webhook_rejection_count", name="node-pools.spotgate.dev", error_type="no_error"
            )
        },
        {},
    ),
    "another writer of deletion costs": (
        {"/api/v1/pods": assigned("100", "7", "")},
        {"on-demand floor": "warn: 2 of 3 on-demand Pods have a controller.kubernetes.io/pod-deletion-cost of another"},
    ),
    "Pods that the controller has assigned": ({"/api/v1/pods": assigned("100")}, {}),
}
WHOLE = {"forbidden": FORBIDDEN, "unreachable": UNREACHABLE, "gone": GONE, "nothing": NOTHING}
WHOLE["a secret"] = secret(leaf())
for name, case in yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text()).items():
    answers = {key: WHOLE[change] if isinstance(change, str) else change for key, change in case["changed"].items()}
    CASES[name] = (answers, case["lines"])
