"""Reports of the objects that ``check`` has judged."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from webhook.bundle import policy_kinds
from webhook.cli.judging.additions import addition_of
from webhook.cli.report.model import ObjectReport, Patch, PolicyTitle, Result
from webhook.documents import parse_field_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.bundle import Bundle
    from webhook.cli.explain.timeline import ReclaimTimeline
    from webhook.cli.judging.judge import Judgement
    from webhook.cli.judging.session import Judgements
    from webhook.manifests.objects import Manifest

Entry = tuple[ObjectReport, Patch | None]
"""The report of an object, and its patch if the webhook would change it."""

TEAM: Final = "team"
PART_OF: Final = "app.kubernetes.io/part-of"
NOBODY: Final = "(none)"


def object_reports(judged: Judgements) -> list[Entry]:
    """Return the report of each object."""
    return [
        (_judged(manifest, judgement, judged), _patch(manifest, judgement)) for manifest, judgement in judged.objects
    ]


def policy_titles(bundle: Bundle) -> Iterator[PolicyTitle]:
    """Yield the titles of the bundle's policies, without documents that state facts."""
    for policy in bundle.documents:
        if policy.is_policy:
            about = inspect.cleandoc(policy_kinds()[policy.kind].spec.__doc__ or "")
            yield PolicyTitle(name=policy.name, kind=policy.kind, about=about)


def team_of(labels: Mapping[str, str], namespace_labels: Mapping[str, str], namespace: str) -> str:
    """Return the team that an object belongs to.

    The label ``team``, in a domain (``example.com/team``) or in none, of the object or else of its namespace; without
    it ``app.kubernetes.io/part-of`` of the object; without that the namespace.
    """
    for found in (labels, namespace_labels):
        for key in sorted(found):
            if key.rpartition("/")[2] == TEAM and found[key]:
                return found[key]
    return labels.get(PART_OF) or namespace or NOBODY


def _judged(manifest: Manifest, judgement: Judgement, judged: Judgements) -> ObjectReport:
    namespace = judgement.namespace
    return ObjectReport(
        file=manifest.file,
        line=manifest.line,
        kind=manifest.kind,
        namespace=namespace,
        name=manifest.shown_name,
        results=list(_results(manifest, judgement)),
        team=team_of(manifest.labels, judged.view.namespaces.get(namespace, {}), namespace),
        additions=tuple(addition_of(operation, len(manifest.path)) for operation in judgement.patch),
        cut_off=tuple(_cut_off(judgement, judged)),
    )


def _results(manifest: Manifest, judgement: Judgement) -> Iterator[Result]:
    for finding in judgement.findings:
        line, column = manifest.position_of(parse_field_path(finding.field))
        yield Result(
            file=manifest.file,
            line=line,
            column=column,
            api_version=manifest.api_version,
            kind=manifest.kind,
            namespace=judgement.namespace,
            name=manifest.shown_name,
            policy=finding.policy,
            id=finding.id,
            outcome=str(finding.outcome),
            reason=finding.reason,
            detail=finding.detail,
            field=finding.field,
            fix=finding.fix,
        )


def _cut_off(judgement: Judgement, judged: Judgements) -> Iterator[ReclaimTimeline]:
    if judgement.trace is None:
        return
    from webhook.cli.explain.reclaims import reclaims  # noqa: PLC0415 - only where they are drawn
    from webhook.cli.explain.timeline import ReclaimTimeline  # noqa: PLC0415

    for each in reclaims(judgement.trace, judged.bundle, judged.view):
        if isinstance(each, ReclaimTimeline) and not each.fits:
            yield each


def _patch(manifest: Manifest, judgement: Judgement) -> Patch | None:
    if not judgement.patch:
        return None
    return Patch(
        file=manifest.file,
        line=manifest.line,
        kind=manifest.kind,
        namespace=judgement.namespace,
        name=manifest.shown_name,
        patch=list(judgement.patch),
    )
