"""Write what fails in a cluster into it: a PolicyReport for each namespace with failures, and nothing else.

Each is applied with its own field manager, so that an unchanged one costs no write; those that no longer apply
are deleted. Reports of others, and fields that others have written, are never touched.

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
from webhook.cluster.source import pages
from webhook.commands.audit.run import PAGE_SECONDS
from webhook.formats.policyreport import SUMMARY, result_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from webhook.cluster.discovery import ServedResource
    from webhook.offline.report import Report

JSON = dict[str, Any]

NAME: Final = "spotgate-audit"
"""The name of each report, and of the field manager."""

AT_MOST: Final = 200
"""Results in one report. With their texts cut to `RESULT_TEXT_AT_MOST` they are 600 KB at most, of the 1.5 MiB that
etcd takes; usually 100 KB. The summary counts all, and a property of the last one says how many are left out."""

RESULT_TEXT_AT_MOST: Final = 600
"""Characters of one text of a result."""

_KINDS: Final = {
    "wgpolicyk8s.io": ("policyreports", "clusterpolicyreports"),
    "openreports.io": ("reports", "clusterreports"),
}
_APPLY: Final = "application/apply-patch+yaml"


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of what we apply with this name, such as spotgate-audit."""
    return {"app.kubernetes.io/managed-by": "spotgate", "app.kubernetes.io/component": name.removeprefix("spotgate-")}


class ReportKinds(msgspec.Struct, frozen=True):
    """The two resources of reports: of namespaces, and of objects in none."""

    namespaced: ServedResource
    cluster: ServedResource


def find_report_kinds(served: Iterable[ServedResource]) -> ReportKinds | None:
    """Return the resources of reports, wgpolicyk8s.io first, or None if the cluster has none."""
    resources = {(kind.resource.group, kind.resource.plural): kind for kind in served}
    for group, plurals in _KINDS.items():
        namespaced, cluster = (resources.get((group, plural)) for plural in plurals)
        if namespaced is not None and cluster is not None:
            return ReportKinds(namespaced, cluster)
    return None


def report_kinds(served: Iterable[ServedResource]) -> ReportKinds:
    """Return the resources of reports. Raise CannotJudgeError if the cluster has none."""
    if (kinds := find_report_kinds(served)) is not None:
        return kinds
    raise CannotJudgeError(
        "error: --write-reports: the cluster serves neither PolicyReports of wgpolicyk8s.io/v1alpha2 nor Reports of "
        "openreports.io/v1alpha1; install the CRDs of one of them first, as docs/cli/audit.md says"
    )


def reports_of(report: Report) -> Iterator[tuple[str, JSON]]:
    """Yield each namespace where something fails, empty for what is in none, and the fields of its report."""
    failing: dict[str, list[JSON]] = {}
    for result in report.results:
        if report.fails(result):
            shown = result_of(result, report.kinds.get(result.policy, ""))
            del shown["properties"]["file"]
            failing.setdefault(result.namespace, []).append(shown)
    for namespace, results in failing.items():
        yield namespace, report_fields(results)


def report_fields(results: Sequence[JSON]) -> JSON:
    """Return the fields of a report with these results: at most `AT_MOST` of them, and their texts cut."""
    counts = [result["result"] for result in results]
    kept = [_cut(result) for result in results[:AT_MOST]]
    if len(results) > AT_MOST:
        kept[-1]["properties"]["leftOut"] = str(len(results) - AT_MOST)
    return {"summary": {name: counts.count(name) for name in SUMMARY}, "results": kept}


def _cut(result: JSON) -> JSON:
    """Return the result with each text cut to `RESULT_TEXT_AT_MOST`."""
    result["message"] = result["message"][:RESULT_TEXT_AT_MOST]
    result["properties"] = {key: text[:RESULT_TEXT_AT_MOST] for key, text in result["properties"].items()}
    return result


async def write_reports(api: Api, kinds: ReportKinds, report: Report, namespaces: Iterable[str]) -> tuple[int, int]:
    """Apply the reports, and delete our own that no longer apply. Return how many were applied and deleted.

    Without ``namespaces``, all were judged, and what is in none. Raise CannotJudgeError if reports can't be written.
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
    """Apply an object of this name with these fields. The field manager has the same name. Raise ApiError."""
    body = {
        "apiVersion": served.api_version,
        "kind": served.resource.kind,
        "metadata": {"name": name, "labels": labels_of(name)},
        **fields,
    }
    query = urlencode({"fieldManager": name, "force": "false"})
    await api.write("PATCH", f"{served.path_in(namespace)}/{name}?{query}", body, PAGE_SECONDS, _APPLY)


async def _own_reports(api: Api, served: ServedResource, namespace: str) -> AsyncIterator[JSON]:
    """Yield the metadata of reports that an audit has applied, not of others with the same name."""
    selector = ",".join(f"{key}={value}" for key, value in labels_of(NAME).items())
    listing = pages(lambda path: api.read(path, PAGE_SECONDS), served.path_in(namespace), {"labelSelector": selector})
    async for page in listing:
        for raw in page.items:
            metadata: JSON = msgspec.json.decode(raw)["metadata"]
            writers = ((entry["manager"], entry["operation"]) for entry in metadata.get("managedFields", ()))
            if metadata["name"] == NAME and (NAME, "Apply") in writers:
                yield metadata


async def _delete(api: Api, served: ServedResource, metadata: JSON) -> None:
    """Delete a report, unless another one has taken its place, or it is gone already."""
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
