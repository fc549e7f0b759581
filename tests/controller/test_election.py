"""Leader election: which replica may write the Lease, and which one acts as the leader."""

from __future__ import annotations

import asyncio
import io
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import pytest
from kubernetes.aio.client import V1Lease, V1LeaseSpec
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from webhook.controller import election
from webhook.controller.election import Lock
from webhook.runtime.log import configure_logging


@pytest.fixture(autouse=True)
def _log() -> None:
    """Log to an open file: earlier commands configured one that is closed."""
    configure_logging(io.BytesIO())


RECORD = "2026-11-26 00:00:00.100000"


class Leases:
    """An API server with one Lease."""

    def __init__(self) -> None:
        self.lease = V1Lease(spec=V1LeaseSpec())

    async def read_namespaced_lease(self, _name: str, _namespace: str) -> V1Lease:
        return deepcopy(self.lease)

    async def replace_namespaced_lease(self, name: str, namespace: str, body: V1Lease) -> None:
        del name, namespace
        self.lease = deepcopy(body)


class Candidate:
    """A candidate whose clock and readiness to renew the tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.may_renew = True
        self.lock = Lock("lease", "spotgate-system", nullcontext, lambda: self.may_renew)
        self.leases = self.lock.api_instance = Leases()

    def look(self) -> None:
        asyncio.run(self.lock.get(self.lock.name, "spotgate-system"))

    def renew(self) -> bool:
        self.look()
        record = LeaderElectionRecord(self.lock.identity, "10", RECORD, RECORD)
        return asyncio.run(self.lock.update(self.lock.name, "spotgate-system", record))

    @property
    def holder(self) -> str | None:
        holder: str | None = self.leases.lease.spec.holder_identity
        return holder


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch) -> Candidate:
    candidate = Candidate()
    monkeypatch.setattr(election, "monotonic", lambda: candidate.now)
    return candidate


@pytest.mark.parametrize("seconds", [2, 8, 9, 60])
def test_a_leader_that_cannot_see_never_renews(candidate: Candidate, seconds: float) -> None:
    assert candidate.renew()
    candidate.may_renew = False
    candidate.now += seconds
    assert not candidate.renew()


def test_a_leader_stops_when_it_sees_another_leader(candidate: Candidate) -> None:
    candidate.renew()
    candidate.look()
    assert candidate.lock.leads
    candidate.leases.lease.spec.holder_identity = "another"
    candidate.look()
    assert not candidate.lock.leads


def test_a_stopping_leader_releases_the_lease_after_its_work_has_ended(candidate: Candidate) -> None:
    held: list[Any] = []

    async def lead() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            held.append(candidate.holder)

    async def stop() -> None:
        candidate.lock.leading = asyncio.create_task(lead())
        await asyncio.sleep(0)
        await candidate.lock.release()

    candidate.renew()
    asyncio.run(stop())
    assert held == [candidate.lock.identity]
    assert candidate.holder is None
    assert not candidate.lock.leads


def test_a_candidate_does_not_release_another_leaders_lease(candidate: Candidate) -> None:
    candidate.renew()
    candidate.leases.lease.spec.holder_identity = "another"
    asyncio.run(candidate.lock.release())
    assert candidate.holder == "another"


def test_a_leader_whose_task_has_died_neither_acts_nor_renews(candidate: Candidate) -> None:
    async def lead() -> None:
        raise RuntimeError

    async def die() -> None:
        candidate.lock.leading = asyncio.create_task(lead())
        await asyncio.wait([candidate.lock.leading])
        await candidate.lock.get(candidate.lock.name, "spotgate-system")
        record = LeaderElectionRecord(candidate.lock.identity, "10", RECORD, RECORD)
        assert not await candidate.lock.update(candidate.lock.name, "spotgate-system", record)
        assert not candidate.lock.leads
        await candidate.lock.release()

    candidate.renew()
    asyncio.run(die())
    assert candidate.holder is None


def test_a_candidate_that_cannot_see_does_not_acquire_the_lease(candidate: Candidate) -> None:
    candidate.may_renew = False
    assert not candidate.renew()
    assert candidate.holder is None
