"""Report the findings of ``check`` and ``audit``: the model, its construction, and helpers for the formats."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.base.field_paths import parse_field_path
from webhook.engine.bundle import Bundle, policy_kinds
from webhook.engine.lint import warnings
from webhook.inputs.files import STDIN
from webhook.model.decision import Outcome
from webhook.policy.errors import Problem  # noqa: TC001 - msgspec reads the annotations
from webhook.report.additions import Addition, addition_of
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from webhook.inputs.objects import Manifest
    from webhook.judging.judge import Judgement
    from webhook.judging.session import Judgements
    from webhook.reclaim.timeline import ReclaimTimeline

T = TypeVar("T")
Key = TypeVar("Key")

TEAM: Final = "team"
PART_OF: Final = "app.kubernetes.io/part-of"
NO_NAME: Final = "(none)"
_CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""The variables in which GitHub and GitLab store the repository folder."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finding with its object, and the file, line, and column of its field.

    Attributes:
        namespace: the namespace of the object; empty for cluster-scoped objects.
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
        """Format the field, detail, and fix as text, for formats that show the reason separately."""
        where = f"At {self.field}." if self.field else ""
        return "\n".join(part for part in (where, self.detail, self.fix and f"Fix: {self.fix}") if part)


class ObjectReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report on one object.

    Attributes:
        patch: the webhook's JSONPatch (RFC 6902) for the document as written.
        additions: the fields that the patch adds.
        cut_off: the reclaims that cut the Pods' grace period short; only for formats that draw them.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    results: list[Result]
    team: str = ""
    patch: tuple[dict[str, Any], ...] = ()
    additions: tuple[Addition, ...] = ()
    cut_off: tuple[ReclaimTimeline, ...] = ()


class RiskReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a workload would not survive a reclaim, with the id, reason, and fix of a finding."""

    id: str
    reason: str
    fix: str


class ReclaimRisk(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload with Pods on spot Nodes, and the known reasons why it would not survive a reclaim."""

    api_version: str
    kind: str
    namespace: str
    name: str
    pods: int
    pools: list[str]
    reasons: list[RiskReason]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report on one run.

    Attributes:
        objects: all evaluated objects; for a live cluster, those with findings.
        fine: the number of other evaluated objects.
        skipped: the number of documents that aren't objects, Helm templates, and policy files.
        not_rendered: the number of kustomizations and charts that stay unrendered on purpose.
        unreadable: files and objects that can't be evaluated. Standard error also lists them.
        kinds: the kind of each policy by name.
        warnings: ineffective parts of policy files, exemptions that expire soon, and unrendered folders. Standard error
            also lists them.
        fail_on: the lowest outcome that fails the run.
        verbose: whether the table lists every finding separately.
        on_spot: the workloads on spot Nodes, for a live cluster.
    """

    objects: list[ObjectReport]
    fine: int = 0
    skipped: int = 0
    not_rendered: int = 0
    unreadable: list[Problem] = []
    kinds: dict[str, str] = {}
    warnings: list[Problem] = []
    fail_on: str = "deny"
    verbose: bool = False
    on_spot: list[ReclaimRisk] | None = None

    def fails(self, result: Result) -> bool:
        """Return whether a finding fails the run."""
        return Outcome[result.outcome.upper()] >= Outcome[self.fail_on.upper()]

    @property
    def results(self) -> list[Result]:
        """Return all findings in the order of the objects."""
        return [result for report in self.objects for result in report.results]

    @property
    def patched(self) -> list[ObjectReport]:
        """Return the objects that the webhook would change."""
        return [report for report in self.objects if report.patch]

    @property
    def summary(self) -> dict[str, int]:
        """Return the numbers of objects, findings by outcome, and patched objects."""
        counts = Counter(result.outcome for result in self.results)
        return {
            "documents": len(self.objects) + self.fine,
            "skipped": self.skipped,
            **{outcome: counts[outcome] for outcome in ("deny", "warn", "audit", "indeterminate")},
            "patched": len(self.patched),
        }

    @property
    def paths(self) -> dict[str, str]:
        """Return the path in the repository of each file in the report."""
        return repository_paths(item.file for items in (self.results, self.unreadable, self.warnings) for item in items)


def policy_kinds_of(bundle: Bundle) -> dict[str, str]:
    """Return the kind of each policy by name."""
    return {document.name: document.kind for document in bundle.documents if document.is_policy}


def policy_warnings(bundle: Bundle) -> list[Problem]:
    """Return the warnings about the policies."""
    return warnings(bundle, utc_now().date())


def object_reports(judged: Judgements) -> list[ObjectReport]:
    """Return the report of each evaluated object."""
    return [_object_report(manifest, judgement, judged) for manifest, judgement in judged.objects]


def _object_report(manifest: Manifest, judgement: Judgement, judged: Judgements) -> ObjectReport:
    namespace = judgement.namespace
    return ObjectReport(
        file=manifest.file,
        line=manifest.line,
        kind=manifest.kind,
        namespace=namespace,
        name=manifest.shown_name,
        results=list(_results(manifest, judgement)),
        team=team_of(manifest.labels, judged.view.namespaces.get(namespace, {}), namespace),
        patch=judgement.patch,
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
            outcome=str(finding.outcome),
            **{field: getattr(finding, field) for field in ("policy", "id", "reason", "detail", "field", "fix")},
        )


def _cut_off(judgement: Judgement, judged: Judgements) -> Iterator[ReclaimTimeline]:
    if judgement.trace is None:
        return
    from webhook.reclaim.pods import reclaims
    from webhook.reclaim.timeline import ReclaimTimeline

    timelines = reclaims(judgement.trace, judged.bundle, judged.view)
    yield from (timeline for timeline in timelines if isinstance(timeline, ReclaimTimeline) and not timeline.fits)


def team_of(labels: Mapping[str, str], namespace_labels: Mapping[str, str], namespace: str) -> str:
    """Return the team of an object.

    Prefer the label ``team``, with or without a domain (``example.com/team``), of the object, then of its namespace.
    Otherwise use the object's ``app.kubernetes.io/part-of``, then its namespace.
    """
    for label_set in (labels, namespace_labels):
        for key in sorted(label_set):
            if key.rpartition("/")[2] == TEAM and label_set[key]:
                return label_set[key]
    return labels.get(PART_OF) or namespace or NO_NAME


def title_of(subject: Result | ObjectReport | ReclaimRisk) -> str:
    """Return the kind, namespace, and name of an object."""
    name = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
    return f"{subject.kind} {name}".rstrip()


def named(policy: str, id_: str) -> str:
    """Return the policy's name and the finding's id; only the id if the name is its prefix."""
    return id_ if id_.startswith(f"{policy}/") else f"{policy}  {id_}"


@cache
def _entries() -> Mapping[str, str]:
    kinds = policy_kinds().values()
    return {f"{kind.slug}/{name}": title for kind in kinds for name, title in kind.entries.items()}


def entry_of(result: Result) -> str:
    """Return the title of the entry that several findings share; empty if the finding has no shared entry."""
    return _entries().get(result.id, "")


def problem_members(problem: Problem) -> dict[str, Any]:
    """Return the JSON fields of a problem."""
    return {"file": problem.file, "line": problem.line, "field": problem.field, "message": problem.text}


def without_empty(members: Mapping[str, T]) -> dict[str, T]:
    """Return the non-empty fields."""
    return {key: member for key, member in members.items() if member}


def alike(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Group items by a key, in order."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def fingerprints(results: Sequence[Result]) -> Iterator[str]:
    """Yield a unique fingerprint for each finding, by which platforms recognize it. It ignores lines and wording."""
    import hashlib

    paths = repository_paths(result.file for result in results)
    seen: Counter[str] = Counter()
    for result in results:
        title = f"{result.api_version} {result.kind} {result.namespace}/{result.name}"
        identity = f"{result.policy}\n{result.id}\n{paths[result.file]}\n{title}\n{result.field}"
        seen[identity] += 1
        yield hashlib.sha256(f"{identity}\n{seen[identity]}".encode()).hexdigest()[:32]


def repository_paths(files: Iterable[str]) -> dict[str, str]:
    """Return the path of each file relative to the repository root, with ``/``.

    The root is the platform's folder, if it is a repository; otherwise the closest parent with a ``.git``; otherwise
    the platform's folder or the working directory. Other files have paths relative to the working directory.
    """
    roots: dict[Path, Path] = {}
    paths = {STDIN: STDIN}
    for file in set(files) - {STDIN}:
        whole = Path(os.path.abspath(file))  # noqa: PTH100 - keeps links
        root = roots.get(whole.parent) or roots.setdefault(whole.parent, _root(whole.parent))
        path = whole.relative_to(root) if whole.is_relative_to(root) else Path(os.path.relpath(whole))
        paths[file] = path.as_posix()
    return paths


def _root(folder: Path) -> Path:
    checkouts = [Path(os.environ[name]) for name in _CHECKOUTS if os.environ.get(name)]
    named_there = [checkout for checkout in checkouts if folder.is_relative_to(checkout)]
    repositories = [parent for parent in (*named_there, folder, *folder.parents) if (parent / ".git").exists()]
    return [*repositories, *named_there, Path.cwd()][0]
