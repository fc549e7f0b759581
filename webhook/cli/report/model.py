"""The report of ``check``: the fields of its JSON output, and what other formats show besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from webhook.cli.explain.timeline import ReclaimTimeline  # noqa: TC001 - msgspec reads the annotations
from webhook.cli.judging.additions import Addition  # noqa: TC001 - as above
from webhook.decision import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.policy.errors import Problem


def named(policy: str, id_: str) -> str:
    """Return the name of the policy and the id of the finding; only the id if that begins with the name."""
    return id_ if id_.startswith(f"{policy}/") else f"{policy}  {id_}"


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Describe a finding with its object and place.

    Attributes:
        file, line, column: place of the field.
        namespace: where the object would be created; empty for cluster-scoped objects.
    """

    file: str
    line: int
    column: int
    api_version: str
    kind: str
    namespace: str
    name: str
    policy: str
    id: str
    outcome: str
    reason: str
    detail: str
    field: str
    fix: str

    def explanation(self) -> str:
        """Return field, detail and fix as text, for formats that show the reason elsewhere."""
        where = f"At {self.field}." if self.field else ""
        return "\n".join(part for part in (where, self.detail, self.fix and f"Fix: {self.fix}") if part)


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the patch that the webhook would make of one object.

    Attributes:
        patch: JSONPatch (RFC 6902) for the document as it is in the file.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    patch: list[dict[str, Any]]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Hold numbers of objects and findings.

    Attributes:
        documents: number of objects, each in a List too.
        skipped: number of documents that are no objects, Helm templates, and policy files.
        patched: number of objects that the webhook would change.
    """

    documents: int
    skipped: int
    deny: int
    warn: int
    audit: int
    indeterminate: int
    patched: int


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a file, or an object in it, that could not be judged. Standard error says the same.

    Attributes:
        line, column: 0 where there is none: the file can't be opened.
    """

    file: str
    line: int
    column: int
    field: str
    message: str


class PolicyWarning(Unreadable, frozen=True, kw_only=True):
    """Describe a part of a policy file that has no effect, or an exemption that ends. Standard error says the same."""


class ObjectReport(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the report of one object.

    Attributes:
        additions: what the webhook would inject, as fields of the object.
        cut_off: the reclaims that do not leave its Pods their whole grace period; only where a format draws them.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    results: list[Result]
    team: str = ""
    additions: tuple[Addition, ...] = ()
    cut_off: tuple[ReclaimTimeline, ...] = ()


class RiskReason(msgspec.Struct, frozen=True, kw_only=True):
    """Say why a workload would not survive a reclaim: the id, reason and fix of a finding."""

    id: str
    reason: str
    fix: str


class ReclaimRisk(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Describe a workload with Pods on spot Nodes.

    Attributes:
        reasons: why it would not survive a reclaim; empty if nothing is known against it.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    pods: int
    pools: list[str]
    reasons: list[RiskReason]


class PolicyTitle(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the name, kind and purpose of a policy.

    Attributes:
        about: what its kind is for.
    """

    name: str
    kind: str
    about: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the report of one run.

    Attributes:
        objects: all objects that were judged; of a live cluster those with findings.
        fail_on: the lowest outcome that fails the run.
        verbose: the table shows every finding by itself.
        on_spot: the workloads that run on spot Nodes, where a live cluster was asked.
    """

    objects: list[ObjectReport]
    patches: list[Patch]
    summary: Summary
    unreadable: list[Unreadable]
    policies: list[PolicyTitle]
    warnings: list[PolicyWarning] = []
    fail_on: str = "deny"
    verbose: bool = False
    on_spot: list[ReclaimRisk] | None = None

    def fails(self, result: Result) -> bool:
        """Return whether a finding makes the exit code 1."""
        return Outcome[result.outcome.upper()] >= Outcome[self.fail_on.upper()]

    @property
    def files(self) -> set[str]:
        """Return the files that are named in the report."""
        return {each.file for said in (self.results, self.unreadable, self.warnings) for each in said}

    @property
    def results(self) -> list[Result]:
        """Return all findings, in the order of the objects."""
        return [result for each in self.objects for result in each.results]

    @classmethod
    def of(
        cls,
        objects: list[ObjectReport],
        patches: list[Patch],
        problems: Iterable[Problem] = (),
        *,
        skipped: int,
        policies: Iterable[PolicyTitle] = (),
        warnings: Iterable[Problem] = (),
        fail_on: str = "deny",
        verbose: bool = False,
    ) -> Report:
        """Build a report, and count its findings."""
        outcomes = [result.outcome for each in objects for result in each.results]
        summary = Summary(
            documents=len(objects),
            skipped=skipped,
            **{str(outcome): outcomes.count(str(outcome)) for outcome in Outcome},
            patched=len(patches),
        )
        unreadable = [
            Unreadable(file=each.file, line=each.line, column=each.column, field=each.field, message=each.text)
            for each in sorted(problems)
        ]
        about_policies = [
            PolicyWarning(
                file=each.file,
                line=each.line,
                column=each.column,
                field=each.field,
                message=each.text.removeprefix("warning: "),
            )
            for each in warnings
        ]
        return cls(
            objects=objects,
            patches=patches,
            summary=summary,
            unreadable=unreadable,
            policies=list(policies),
            warnings=about_policies,
            fail_on=fail_on,
            verbose=verbose,
        )
