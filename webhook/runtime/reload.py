"""Reload changed policies and state files while serving.

A new bundle is built and tested before it replaces the active one. If it is invalid, the old bundle stays active.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.engine.engine import decide
from webhook.engine.lint import warnings
from webhook.engine.response import respond
from webhook.inputs.state import StateErrors
from webhook.model.review import decode_review
from webhook.policy.document import files_below
from webhook.policy.errors import PolicyErrors, Problem
from webhook.rules.context import Context, Phase, utc_now
from webhook.runtime.log import log, log_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from webhook.engine.bundle import Bundle
    from webhook.runtime.snapshot import Snapshot

_SAMPLE: Final = decode_review(
    b"""{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "self-test",
    "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default",
    "resource": {"group": "", "version": "v1", "resource": "pods"}, "name": "self-test",
    "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "self-test", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "example.com/image"}]}}}}"""
)


class Reload(msgspec.Struct, frozen=True):
    """The result of the last attempt to load changed files, and the Unix time of the last success (default: now)."""

    success: bool = True
    last_success: float = msgspec.field(default_factory=time.time)

    def updated(self, *, success: bool) -> Reload:
        """Return the result after another attempt that has just ended."""
        return Reload(success, time.time() if success else self.last_success)


class Reloader:
    """A snapshot that is rebuilt when files below ``paths`` change.

    Args:
        build: reads all files, in a thread. Raises PolicyErrors or StateErrors if they are invalid.
        paths: folders and files that ``build`` reads.

    Attributes:
        snapshot: the newest valid snapshot.
        last_reload: the result of the last attempt.
        removed: the number of policies that reloads have removed.
    """

    def __init__(self, build: Callable[[], Snapshot], paths: Iterable[Path]) -> None:
        self._build = build
        self._paths = tuple(paths)
        # Compute this before reading the files, so that the next check detects changes in the meantime.
        self._seen = _fingerprint(self._paths)
        self.snapshot = build()
        if failures := _failures(self.snapshot):  # the other policies still decide
            log.error("policies fail", problems=failures)
        self.last_reload = Reload()
        self.removed = 0

    async def watch(self, use: Callable[[Snapshot], None], seconds: float) -> None:
        """Pass each new valid snapshot to ``use``, until cancelled.

        Files of one change are written one after another, so changed files are loaded after two equal checks.

        Args:
            use: activates a snapshot.
            seconds: the interval between checks.
        """
        current = self._seen
        while True:
            await asyncio.sleep(seconds)
            before, current = current, await asyncio.to_thread(_fingerprint, self._paths)
            if current == before != self._seen:
                self._seen = current
                if await self._renew():
                    use(self.snapshot)

    async def _renew(self) -> bool:
        try:
            snapshot = await asyncio.to_thread(self._tested)
        except (PolicyErrors, StateErrors) as errors:
            log.error("policies not loaded", problems=str(errors).splitlines())
        except Exception as error:  # noqa: BLE001 - whatever the error, the active policies stay
            log_failure("policies not loaded", error)
        else:
            self._note_removed(snapshot.bundle)
            self.snapshot = snapshot
            self.last_reload = self.last_reload.updated(success=True)
            log.info("policies loaded", bundle=snapshot.bundle.hash)
            return True
        self.last_reload = self.last_reload.updated(success=False)
        return False

    def _tested(self) -> Snapshot:
        """Build a snapshot. Raise PolicyErrors if a policy would fail for every Pod."""
        snapshot = self._build()
        if failures := _failures(snapshot):
            raise PolicyErrors(Problem("self-test", 0, 0, "", failure) for failure in failures)
        return snapshot

    def _note_removed(self, new: Bundle) -> None:
        """Log the policies that a reload removes. The new bundle takes effect, but the removal may be a mistake."""
        kept = {(policy.kind.name, policy.name) for policy in new.policies}
        before = self.snapshot.bundle.policies
        lost = [f"{policy.kind.name} {policy.name}" for policy in before if (policy.kind.name, policy.name) not in kept]
        if lost:
            self.removed += len(lost)
            log.warning("policies removed", policies=lost)


def _failures(snapshot: Snapshot) -> list[str]:
    """Return the failures of policies on a sample Pod in both phases. Log warnings about the policies."""
    failures: list[str] = []
    for phase in Phase:
        decision = decide(_SAMPLE, snapshot.bundle.index, Context(phase=phase, now=utc_now()))
        respond(_SAMPLE.uid, decision, phase)
        failures += map(str, decision.failures)
    if problems := warnings(snapshot.bundle, utc_now().date()):
        log.warning("policies without effect, or with exemptions that end", problems=list(map(str, problems)))
    return failures


def _fingerprint(paths: Iterable[Path]) -> frozenset[tuple[str, int, int, int]]:
    """Return a value that changes if a file or a link in its path changes (ConfigMap volumes, git-sync)."""
    fingerprints = set()
    for path in paths:
        for file in files_below(path) if path.is_dir() else (path,):
            seen = (0, 0, 0)  # a broken link
            with suppress(OSError):
                status = file.stat()
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            fingerprints.add((str(file), *seen))
    return frozenset(fingerprints)
