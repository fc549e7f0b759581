"""Run policy tests on the engine of ``check``."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from webhook.commands.test.case import (
    CannotRunError,
    PolicyTestCase,
    differences,
    golden_difference,
    silent_policies,
)
from webhook.commands.test.coverage import Reached, Watch
from webhook.documents import DocumentError
from webhook.engine.bundle import Bundle, document_kinds
from webhook.inputs.objects import Manifest, Manifests, read_manifests
from webhook.inputs.state import view_of
from webhook.judging.judge import Judge
from webhook.judging.kinds import ResourceKinds
from webhook.model.decision import Finding, Verdict
from webhook.model.patch import apply_json, pointer
from webhook.model.review import UserInfo
from webhook.policy.document import PolicyDocument, policy_files
from webhook.policy.errors import Problem, did_you_mean
from webhook.policy.loader import validate_document
from webhook.policy.policy_test import KIND, PolicyTestSpec
from webhook.policy.terms import API_VERSION
from webhook.rules.context import ASSUMED_VERSION, Context, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a case, with its coverage of each policy.

    Attributes:
        problems: why the case can't run; then the other fields don't count.
        silent: for each policy that unexpectedly has no findings, a sentence with the reason.
        warnings: why a passing case proves nothing.
    """

    file: str
    line: int
    test: str
    case: str
    findings: tuple[Finding, ...] = ()
    mismatches: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    silent: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    seconds: float = 0
    reached: dict[str, Reached] = {}

    @property
    def passed(self) -> bool:
        """Return whether the case met its expectations."""
        return not self.mismatches and not self.problems


def read_tests(paths: Sequence[Path]) -> tuple[list[PolicyDocument], list[Problem], bool]:
    """Read the PolicyTests in these files and folders, which may also contain other documents.

    Return the tests, their problems, and whether the files and folders also contain policies.
    """
    read = read_manifests(paths)
    problems = list(read.problems)
    tests: list[PolicyDocument] = []
    brings_policies = False
    files = set(map(str, policy_files(paths)))
    kinds = document_kinds()
    for manifest in read.objects:
        if manifest.kind != KIND and manifest.group != API_VERSION.partition("/")[0]:
            continue
        if manifest.kind in kinds:
            brings_policies |= manifest.file in files
        elif manifest.path:
            problems.append(manifest.problem((), "write each PolicyTest as a separate document, not in a list"))
        elif manifest.kind == KIND:
            mistakes: list[Problem] = []
            test = validate_document(manifest.document, {KIND: PolicyTestSpec}, mistakes)
            problems += mistakes
            tests += [test] if test is not None and not mistakes else []
        else:
            text = f"unknown kind {manifest.kind!r}{did_you_mean(manifest.kind, (KIND, *kinds))}"
            problems.append(manifest.problem(("kind",), text))
    return tests, problems, brings_policies


@dataclass(slots=True)
class Runner:
    """A run of cases, which reads shared files once.

    Attributes:
        tested: the policies for cases that name none.
        now: the time for cases that set no date.
        update: whether to write golden files.
    """

    bundle: Bundle
    tested: tuple[str, ...]
    now: datetime
    update: bool
    _watches: dict[tuple[str, ...], Watch] = field(default_factory=dict)
    _states: dict[Path, Manifests] = field(default_factory=dict)

    def run(self, test: PolicyDocument) -> list[CaseResult]:
        """Run every case of a document."""
        return [self._run(PolicyTestCase(test, number)) for number in range(len(test.spec.cases))]

    def _run(self, case: PolicyTestCase) -> CaseResult:
        begun = perf_counter()
        result = CaseResult(file=case.test.document.file, line=case.line, test=case.test.name, case=case.spec.name)
        try:
            result = self._judged(case, result)
        except CannotRunError as error:
            result = replace(result, problems=error.args)
        return replace(result, seconds=perf_counter() - begun)

    def _judged(self, case: PolicyTestCase, result: CaseResult) -> CaseResult:
        state = self._state(case)
        kinds = ResourceKinds(self.bundle, state)
        subject, before = case.subject(kinds), case.before(kinds)
        objects = [*state, *filter(None, (case.namespace(), before)), subject]
        view = view_of(objects, self.bundle.providers, complete=case.spec.state is not None)
        view = replace(view, why_unknown="The test gives no state.", remedy="give it `state`, if only `{}`")
        now = datetime.combine(case.spec.date, time(), UTC) if case.spec.date is not None else self.now
        context = Context(phase=Phase.VALIDATE, now=now, trace=True)
        context = context.seeing(view, case.spec.kubernetes_version or ASSUMED_VERSION)
        watch = self._watch(case)
        user = UserInfo(case.spec.user, case.spec.groups)
        existing = [before] if before is not None else []
        judge = Judge(watch.index, kinds, context, operation=case.operation, user=user, before=existing)
        judgement = judge.judge(subject)
        reached = watch.taken(judgement.trace)
        if judgement.problem is not None:
            raise CannotRunError(judgement.problem)
        prefix = pointer(subject.path)
        own = [{**operation, "path": operation["path"].removeprefix(prefix)} for operation in judgement.patch]
        after: dict[str, Any] = apply_json(own, deepcopy(subject.value))
        expected, findings = case.spec.expect, judgement.findings
        mismatches = [
            case.test.problem(case.at("expect", *path), text)
            for path, text in differences(expected, findings, subject.value, after)
        ]
        if expected.golden is not None and (text := self._golden_difference(case, expected.golden, after)):
            mismatches.append(case.test.problem(case.at("expect", "golden"), text))
        missed = set(expected.policies or ()).difference(finding.policy for finding in findings)
        names = missed or (case.spec.policies or () if mismatches else ())
        silent = tuple(silent_policies(subject, judgement, watch.index, names)) if missed or not findings else ()
        result = replace(result, findings=findings, mismatches=tuple(mismatches), reached=reached)
        if mismatches:
            return replace(result, silent=silent)
        if silent or judgement.patch or expected.outcome is not Verdict.ALLOWED:
            return result
        tested = ", ".join(policy.name for policy in watch.index.policies)
        text = f"warning: always allowed: no policy matches this kind of object; tested: {tested}"
        return replace(result, warnings=(case.test.problem(case.at("expect", "outcome"), text),))

    def _watch(self, case: PolicyTestCase) -> Watch:
        """Return the policies of the case, or those under test, with coverage recording."""
        names = case.spec.policies or self.tested
        known = [policy.name for policy in self.bundle.policies]
        for number, name in enumerate(names):
            if name not in known:
                text = f"there is no policy {name!r}, or it is off{did_you_mean(name, known)}"
                raise case.cannot_run(case.at("policies", number), text)
        if names not in self._watches:
            self._watches[names] = Watch(self.bundle, names)
        return self._watches[names]

    def _state(self, case: PolicyTestCase) -> list[Manifest]:
        """Return the objects that exist in the cluster."""
        files = case.spec.state.files if case.spec.state is not None else ()
        objects: list[Manifest] = []
        for number, name in enumerate(files):
            path = _path_of(case, name)
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise case.cannot_run(case.at("state", "files", number), "is neither a regular file nor a folder")
            if path not in self._states:
                self._states[path] = read_manifests([path])
            if self._states[path].problems:
                problem = case.test.problem(case.at("state", "files", number), "can't be read, see there")
                raise CannotRunError(*self._states[path].problems, problem)
            objects += self._states[path].objects
        return [*objects, *case.inline_state()]

    def _golden_difference(self, case: PolicyTestCase, name: str, after: dict[str, Any]) -> str:
        file = _path_of(case, name)
        folder = Path(case.test.document.file).parent
        if self.update and not file.resolve().is_relative_to(folder.resolve()):
            text = f"--update writes only in the folder of the test, {folder}, and below it"
            raise case.cannot_run(case.at("expect", "golden"), text)
        try:
            return golden_difference(file, after, update=self.update)
        except (OSError, ValueError, DocumentError) as error:
            raise case.cannot_run(case.at("expect", "golden"), f"can't be used: {error}") from None


def _path_of(case: PolicyTestCase, name: str) -> Path:
    """Return the path of a file, relative to the test's file."""
    return Path(case.test.document.file).parent / name
