"""Report what ``check`` and ``audit`` found: the model, how it is built from judgements, and helpers of formats."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.documents import parse_field_path
from webhook.engine.bundle import policy_kinds
from webhook.engine.lint import warnings
from webhook.model.decision import Outcome
from webhook.offline.additions import Addition, addition_of
from webhook.offline.manifests.files import STDIN
from webhook.policy.errors import Problem  # noqa: TC001 - msgspec reads the annotations
from webhook.reclaim.timeline import ReclaimTimeline, reclaims
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from webhook.engine.bundle import Bundle
    from webhook.offline.judge import Judgement
    from webhook.offline.manifests.objects import Manifest
    from webhook.offline.session import Judgements

T = TypeVar("T")
Key = TypeVar("Key")

TEAM: Final = "team"
PART_OF: Final = "app.kubernetes.io/part-of"
NO_NAME: Final = "(none)"
_CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Variables in which GitHub and GitLab name the folder of the repository."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finding with its object, and the file, line and column of its field.

    Attributes:
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


class ObjectReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report on one object.

    Attributes:
        patch: JSONPatch (RFC 6902) that the webhook would make, for the document as it is in the file.
        additions: what that adds, as fields of the object.
        cut_off: the reclaims that do not leave its Pods their whole grace period; only where a format draws them.
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
    """A reason why a workload would not survive a reclaim: the id, reason and fix of a finding."""

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
        objects: all objects that were judged; of a live cluster those with findings.
        fine: the number of objects that were judged and are not among these.
        skipped: the number of documents that are no objects, Helm templates, and policy files.
        not_rendered: the number of kustomizations and charts that are deliberately not rendered.
        unreadable: files, and objects in them, that could not be judged. Standard error says the same.
        kinds: the kind of each policy, by its name.
        warnings: parts of policy files that have no effect, exemptions that end, and what is deliberately not rendered.
            Standard error says the same.
        fail_on: the lowest outcome that fails the run.
        verbose: the table shows every finding by itself.
        on_spot: the workloads that run on spot Nodes, where a live cluster was asked.
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
        """Return whether a finding makes the exit code 1."""
        return Outcome[result.outcome.upper()] >= Outcome[self.fail_on.upper()]

    @property
    def results(self) -> list[Result]:
        """Return all findings, in the order of the objects."""
        return [result for report in self.objects for result in report.results]

    @property
    def patched(self) -> list[ObjectReport]:
        """Return the objects that the webhook would change."""
        return [report for report in self.objects if report.patch]

    @property
    def summary(self) -> dict[str, int]:
        """Return the numbers of objects, of findings by outcome, and of objects that would be changed."""
        counts = Counter(result.outcome for result in self.results)
        return {
            "documents": len(self.objects) + self.fine,
            "skipped": self.skipped,
            **{outcome: counts[outcome] for outcome in ("deny", "warn", "audit", "indeterminate")},
            "patched": len(self.patched),
        }

    @property
    def paths(self) -> dict[str, str]:
        """Return the path in the repository of each file that the report names."""
        return repository_paths(item.file for items in (self.results, self.unreadable, self.warnings) for item in items)


def policy_kinds_of(bundle: Bundle) -> dict[str, str]:
    """Return the kind of each policy, by its name."""
    return {document.name: document.kind for document in bundle.documents if document.is_policy}


def policy_warnings(bundle: Bundle) -> list[Problem]:
    """Return the warnings about the policies."""
    return [
        msgspec.structs.replace(warning, text=warning.text.removeprefix("warning: "))
        for warning in warnings(bundle, utc_now().date())
    ]


def object_reports(judged: Judgements) -> list[ObjectReport]:
    """Return the report of each object that was judged."""
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
    timelines = () if judgement.trace is None else reclaims(judgement.trace, judged.bundle, judged.view)
    return (timeline for timeline in timelines if isinstance(timeline, ReclaimTimeline) and not timeline.fits)


def team_of(labels: Mapping[str, str], namespace_labels: Mapping[str, str], namespace: str) -> str:
    """Return the team that an object belongs to.

    The label ``team``, in a domain (``example.com/team``) or in none, of the object or else of its namespace; without
    it ``app.kubernetes.io/part-of`` of the object; without that the namespace.
    """
    for label_set in (labels, namespace_labels):
        for key in sorted(label_set):
            if key.rpartition("/")[2] == TEAM and label_set[key]:
                return label_set[key]
    return labels.get(PART_OF) or namespace or NO_NAME


def title_of(subject: Result | ObjectReport | ReclaimRisk) -> str:
    """Return kind, namespace and name of an object."""
    name = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
    return f"{subject.kind} {name}".rstrip()


def named(policy: str, id_: str) -> str:
    """Return the name of the policy and the id of the finding; only the id if that begins with the name."""
    return id_ if id_.startswith(f"{policy}/") else f"{policy}  {id_}"


@cache
def _entries() -> Mapping[str, str]:
    kinds = policy_kinds().values()
    return {f"{kind.slug}/{name}": title for kind in kinds for name, title in kind.entries.items()}


def entry_of(result: Result) -> str:
    """Return the title of the entry that the finding shares with others; empty if it shares none."""
    return _entries().get(result.id, "")


def problem_members(problem: Problem) -> dict[str, Any]:
    """Return the members that JSON shows of a problem."""
    return {"file": problem.file, "line": problem.line, "field": problem.field, "message": problem.text}


def without_empty(members: Mapping[str, T]) -> dict[str, T]:
    """Return the members that are not empty."""
    return {key: member for key, member in members.items() if member}


def alike(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Group things by a key, in their order."""
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def fingerprints(results: Sequence[Result]) -> Iterator[str]:
    """Yield a value for each finding by which platforms recognize it: unique, and independent of lines and wordings."""
    paths = repository_paths(result.file for result in results)
    seen: Counter[str] = Counter()
    for result in results:
        title = f"{result.api_version} {result.kind} {result.namespace}/{result.name}"
        identity = f"{result.policy}\n{result.id}\n{paths[result.file]}\n{title}\n{result.field}"
        seen[identity] += 1
        yield hashlib.sha256(f"{identity}\n{seen[identity]}".encode()).hexdigest()[:32]


def repository_paths(files: Iterable[str]) -> dict[str, str]:
    """Return for each file its path from the root of the repository, with ``/``.

    The root is what the platform names, if that is a repository; else the next folder above with a ``.git``; else what
    the platform names, or the working directory. A file that is not below it has its path from the working directory.
    """
    roots: dict[Path, Path] = {}
    paths = {STDIN: STDIN}
    for file in set(files) - {STDIN}:
        whole = Path(os.path.abspath(file))  # noqa: PTH100 - a link stays one
        root = roots.get(whole.parent) or roots.setdefault(whole.parent, _root(whole.parent))
        path = whole.relative_to(root) if whole.is_relative_to(root) else Path(os.path.relpath(whole))
        paths[file] = path.as_posix()
    return paths


def _root(folder: Path) -> Path:
    checkouts = [Path(os.environ[name]) for name in _CHECKOUTS if os.environ.get(name)]
    named_there = [checkout for checkout in checkouts if folder.is_relative_to(checkout)]
    repositories = [parent for parent in (*named_there, folder, *folder.parents) if (parent / ".git").exists()]
    return [*repositories, *named_there, Path.cwd()][0]
