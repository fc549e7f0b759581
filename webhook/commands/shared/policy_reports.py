"""Write the failing results of an audit to the cluster: one PolicyReport for each namespace with failures.

Server-side apply with a dedicated field manager writes only changed reports. Outdated reports are deleted. Other
reports, and fields of other writers, are never touched.

Source: https://github.com/kubernetes-sigs/wg-policy-prototypes, wgpolicyk8s.io/v1alpha2;
    https://github.com/openreports/reports-api, openreports.io/v1alpha1, which has the same fields.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from webhook.base.exits import CannotJudgeError
from webhook.cluster.api import Api, ApiError
from webhook.cluster.connection import as_rules
from webhook.cluster.source import PAGE_SECONDS, pages
from webhook.formats.policyreport import SUMMARY, result_of
from webhook.report.report import Report, alike

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from webhook.cluster.discovery import ServedResource

JSON = dict[str, Any]

NAME: Final = "spotgate-audit"
"""The name of each report and of its field manager."""

AT_MOST: Final = 200
"""The maximum number of results in a report. With texts cut to `RESULT_TEXT_AT_MOST`, a report is at most 600 KB
(etcd's limit is 1.5 MiB), and usually 100 KB. The summary counts all results; `leftOut` counts the omitted ones."""

RESULT_TEXT_AT_MOST: Final = 600
"""The maximum number of characters in a text of a result."""

_KINDS: Final = {
    "wgpolicyk8s.io": ("policyreports", "clusterpolicyreports"),
    "openreports.io": ("reports", "clusterreports"),
}
_APPLY: Final = "application/apply-patch+yaml"


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of an applied object with this name, such as spotgate-audit."""
    return {"app.kubernetes.io/managed-by": "spotgate", "app.kubernetes.io/component": name.removeprefix("spotgate-")}


class ReportKinds(msgspec.Struct, frozen=True):
    """The two resources of reports: namespaced and cluster-scoped."""

    namespaced: ServedResource
    cluster: ServedResource


def find_report_kinds(served: Iterable[ServedResource]) -> ReportKinds | None:
    """Return the report resources, wgpolicyk8s.io before openreports.io, or None if the cluster serves neither."""
    resources = {(kind.resource.group, kind.resource.plural): kind for kind in served}
    for group, plurals in _KINDS.items():
        namespaced, cluster = (resources.get((group, plural)) for plural in plurals)
        if namespaced is not None and cluster is not None:
            return ReportKinds(namespaced, cluster)
    return None


def report_kinds(served: Iterable[ServedResource]) -> ReportKinds:
    """Return the report resources. Raise CannotJudgeError if the cluster serves none."""
    if (kinds := find_report_kinds(served)) is not None:
        return kinds
    raise CannotJudgeError(
        "error: --write-reports: the cluster serves neither PolicyReports of wgpolicyk8s.io/v1alpha2 nor Reports of "
        "openreports.io/v1alpha1; install the CRDs of one of them first, as docs/cli/audit.md says"
    )


def reports_of(report: Report) -> Iterator[tuple[str, JSON]]:
    """Yield each namespace with failures and the fields of its report; an empty namespace means cluster-scoped."""
    failing = alike(filter(report.fails, report.results), lambda result: result.namespace)
    for namespace, results in failing.items():
        shown = [result_of(result, report.kinds.get(result.policy, "")) for result in results]
        for fields in shown:
            del fields["properties"]["file"]
        yield namespace, report_fields(shown)


def report_fields(results: Sequence[JSON]) -> JSON:
    """Return the fields of a report: at most `AT_MOST` of these results, with their texts cut."""
    counts = [result["result"] for result in results]
    kept = [_cut(result) for result in results[:AT_MOST]]
    if len(results) > AT_MOST:
        kept[-1]["properties"]["leftOut"] = str(len(results) - AT_MOST)
    return {"summary": {name: counts.count(name) for name in SUMMARY}, "results": kept}


def _cut(result: JSON) -> JSON:
    """Cut each text of the result to `RESULT_TEXT_AT_MOST`."""
    result["message"] = result["message"][:RESULT_TEXT_AT_MOST]
    result["properties"] = {key: text[:RESULT_TEXT_AT_MOST] for key, text in result["properties"].items()}
    return result


async def write_reports(api: Api, kinds: ReportKinds, report: Report, namespaces: Iterable[str]) -> tuple[int, int]:
    """Apply the reports, and delete outdated reports of an audit. Return the numbers of applied and deleted reports.

    Without ``namespaces``, the reports cover the whole cluster. Raise CannotJudgeError if a request fails.
    """
    wanted = dict(reports_of(report))
    selected = list(namespaces)
    deleted = 0
    try:
        for namespace, fields in wanted.items():
            await apply_as(NAME, api, kinds.namespaced if namespace else kinds.cluster, namespace, fields)
        for kind in (kinds.namespaced, *(() if selected else (kinds.cluster,))):
            for place in selected or ("",):
                async for metadata in _own_reports(api, kind, place):
                    if metadata.get("namespace", "") not in wanted:
                        await _delete(api, kind, metadata)
                        deleted += 1
    except ApiError as error:
        raise CannotJudgeError(f"error: --write-reports: {error}{_fix(error, kinds)}") from None
    return len(wanted), deleted


async def apply_as(name: str, api: Api, served: ServedResource, namespace: str, fields: Mapping[str, Any]) -> None:
    """Apply an object with this name and these fields, as the field manager of the same name. Raise ApiError."""
    body = {
        "apiVersion": served.api_version,
        "kind": served.resource.kind,
        "metadata": {"name": name, "labels": labels_of(name)},
        **fields,
    }
    query = urlencode({"fieldManager": name, "force": "false"})
    await api.write("PATCH", f"{served.path_in(namespace)}/{name}?{query}", body, PAGE_SECONDS, _APPLY)


async def _own_reports(api: Api, served: ServedResource, namespace: str) -> AsyncIterator[JSON]:
    """Yield the metadata of the reports that an audit applied; skip other reports with the same name."""
    selector = ",".join(f"{key}={value}" for key, value in labels_of(NAME).items())
    listing = pages(lambda path: api.read(path, PAGE_SECONDS), served.path_in(namespace), {"labelSelector": selector})
    async for page in listing:
        for raw in page.items or ():
            metadata: JSON = msgspec.json.decode(raw)["metadata"]
            writers = ((entry["manager"], entry["operation"]) for entry in metadata.get("managedFields", ()))
            if metadata["name"] == NAME and (NAME, "Apply") in writers:
                yield metadata


async def _delete(api: Api, served: ServedResource, metadata: JSON) -> None:
    """Delete a report, unless it was replaced or is already deleted."""
    path = f"{served.path_in(metadata.get('namespace', ''))}/{NAME}"
    try:
        await api.write("DELETE", path, {"preconditions": {"uid": metadata["uid"]}}, PAGE_SECONDS)
    except ApiError as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise


def _fix(error: ApiError, kinds: ReportKinds) -> str:
    if error.status == HTTPStatus.CONFLICT:
        return f"; another field manager has written the report {NAME}: remove the report, or leave it to the audit"
    if error.status == HTTPStatus.FORBIDDEN:
        rule = {
            "apiGroups": [kinds.namespaced.resource.group],
            "resources": [kinds.namespaced.resource.plural, kinds.cluster.resource.plural],
            "verbs": ["list", "create", "patch", "delete"],
        }
        return "\n".join(["", "add to a ClusterRole of this user:", *as_rules([rule])])
    return ""
