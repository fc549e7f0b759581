"""Write PolicyReports of the Kubernetes policy working group, which dashboards read: ``-o policyreport``.

Each namespace with objects gets a PolicyReport; cluster-scoped objects get a ClusterPolicyReport. Without findings, the
report has no results, so that applying it replaces older ones. A finding becomes a result:

    deny            fail, severity high
    warn            warn, severity medium
    audit           warn, severity low
    indeterminate   error, severity info: the policy can't be evaluated

An input that can't be evaluated is an error without a resource in the ClusterPolicyReport. Only ``fail`` is scored.

Source: https://github.com/kubernetes-sigs/wg-policy-prototypes, wgpolicyk8s.io/v1alpha2
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents.yaml_writer import dump_documents
from webhook.formats import Format
from webhook.report.report import Report, Result, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.policy.errors import Problem

JSON = dict[str, Any]

_API_VERSION: Final = "wgpolicyk8s.io/v1alpha2"
_SOURCE: Final = "spotgate"
_RESULTS: Final = {
    "deny": ("fail", "high"),
    "warn": ("warn", "medium"),
    "audit": ("warn", "low"),
    "indeterminate": ("error", "info"),
}
SUMMARY: Final = ("pass", "fail", "warn", "error", "skip")
_AT_MOST: Final = 500
"""The maximum number of results in a report: at 2 KB each, they stay below etcd's limit of 1.5 MiB."""


def render(report: Report) -> str:
    """Return the reports as YAML documents: the ClusterPolicyReport, then the PolicyReports by namespace."""
    results: dict[str, list[JSON]] = {judged.namespace: [] for judged in report.objects}
    if report.unreadable:
        results[""] = [_unread(problem) for problem in report.unreadable]
    for result in report.results:
        results[result.namespace].append(result_of(result, report.kinds.get(result.policy, "")))
    name = "spotgate-check" if report.on_spot is None else "spotgate-audit"
    reports = [document for namespace in sorted(results) for document in _reports(name, namespace, results[namespace])]
    return dump_documents(reports, width=120).rstrip("\n")


def _reports(name: str, namespace: str, results: list[JSON]) -> Iterator[JSON]:
    for number, begin in enumerate(range(0, max(len(results), 1), _AT_MOST), start=1):
        some = results[begin : begin + _AT_MOST]
        counts = Counter(result["result"] for result in some)
        yield {
            "apiVersion": _API_VERSION,
            "kind": "PolicyReport" if namespace else "ClusterPolicyReport",
            "metadata": {
                "name": name if number == 1 else f"{name}-{number}",
                **({"namespace": namespace} if namespace else {}),
                "labels": {"app.kubernetes.io/managed-by": _SOURCE},
            },
            "summary": {name: counts[name] for name in SUMMARY},
            "results": some,
        }


def result_of(result: Result, category: str) -> JSON:
    """Return a finding as a result of a report. ``category`` is its policy's kind."""
    written = msgspec.to_builtins(result)
    properties = {name: written[name] for name in ("outcome", "file", "line", "field", "detail", "fix")}
    resource = without_empty({name: written[name] for name in ("apiVersion", "kind", "namespace", "name")})
    about = {"policy": result.policy, "rule": result.id, "category": category}
    return report_result(about, *_RESULTS[result.outcome], result.reason, properties, [resource])


def _unread(problem: Problem) -> JSON:
    properties = {"file": problem.file, "line": problem.line, "field": problem.field}
    return report_result({"policy": _SOURCE}, *_RESULTS["indeterminate"], problem.text, properties)


def report_result(
    about: JSON, verdict: str, severity: str, message: str, properties: JSON, resources: Sequence[JSON] = ()
) -> JSON:
    """Return a result of a report without empty fields. A report has properties as text."""
    return {
        "source": _SOURCE,
        **without_empty(about),
        "result": verdict,
        "severity": severity,
        "scored": verdict == "fail",
        "message": message,
        **without_empty({"resources": resources}),
        "properties": {name: str(value) for name, value in properties.items() if value},
    }


FORMAT: Final = Format(about="PolicyReports for dashboards", render=render)
