"""The election: who may write the Lease, and who acts as the leader."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from kubernetes.aio.client import V1Lease, V1LeaseSpec
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from webhook.controller import election
from webhook.controller.election import Lock

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
    """A candidate, whose clock and whose wish to lead tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.may_renew = True
        self.lock = Lock("spotgate-system", lambda: None, lambda: self.may_renew)
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
def test_a_leader_with_a_pod_that_waits_never_renews(candidate: Candidate, seconds: float) -> None:
    assert candidate.renew()
    candidate.may_renew = False
    candidate.now += seconds
    assert not candidate.renew()


def test_a_leader_that_sees_another_one_acts_no_more(candidate: Candidate) -> None:
    candidate.renew()
    candidate.look()
    assert candidate.lock.leads
    candidate.leases.lease.spec.holder_identity = "another"
    candidate.look()
    assert not candidate.lock.leads


def test_a_leader_that_stops_gives_the_lease_back_once_its_work_has_ended(candidate: Candidate) -> None:
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


def test_the_lease_of_another_leader_is_left_alone(candidate: Candidate) -> None:
    candidate.renew()
    candidate.leases.lease.spec.holder_identity = "another"
    asyncio.run(candidate.lock.release())
    assert candidate.holder == "another"
