"""Have Pods made again: those that no controller here makes, and those that a quota has refused until now."""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from webhook.cluster.api import ApiError
from webhook.rehearse.inputs.resources import BY_NAME, JOB, POD, owner_identity, workload_identity
from webhook.rehearse.runs.stand_ins import AT_ONCE, OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.cluster.api import Api
    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.result import WorkloadKey
    from webhook.rehearse.runs.watching import Watches
    from webhook.rehearse.runs.workloads import Workloads

_ANSWER: Final = 60.0
_POLL: Final = 0.05
_BATCH: Final = 1.0
"""Seconds for which the Job controller gathers changes: SyncJobBatchPeriod in pkg/controller/job/job_controller.go."""


class Remaker:
    """Have Pods made again.

    Attributes:
        refused: why the API server has refused Pods that no controller here makes, by their workload.
    """

    def __init__(self, api: Api, watches: Watches, workloads: Workloads) -> None:
        self.refused: dict[tuple[str, str, str], str] = {}
        self._api = api
        self._watches = watches
        self._workloads = workloads
        self._left: list[JSON] = []

    async def recreate(self, objects: Sequence[JSON]) -> None:
        """Make Jobs and Pods anew, and wait until the watches tell of the Jobs: before, nothing seems to be missing."""
        before = {key: job.metadata.uid for key, job in self._watches.jobs.items()}
        made = [each for each in objects if await self._recreate_one(each)]
        jobs = {workload_identity(each)[1:] for each in made if each["kind"] == JOB.kind}
        async with asyncio.timeout(_ANSWER):
            while any(  # noqa: ASYNC110 - what the watches have is looked at everywhere else
                (job := self._watches.jobs.get(key)) is None or job.metadata.uid == before.get(key) for key in jobs
            ):
                await asyncio.sleep(_POLL)

    async def _recreate_one(self, value: JSON) -> bool:
        """Delete what is left of an object, and create it. Return whether that was allowed. Raise ApiError."""
        kind = JOB if value["kind"] == JOB.kind else POD
        collection = kind.collection(value["apiVersion"], value["metadata"]["namespace"])
        try:
            await self._api.write("DELETE", f"{collection}/{value['metadata']['name']}", AT_ONCE, _ANSWER)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        if kind is JOB:  # no garbage collector is here
            pods = POD.collection("v1", value["metadata"]["namespace"])
            selector = f"labelSelector=batch.kubernetes.io/job-name={value['metadata']['name']}"
            await self._api.write("DELETE", f"{pods}?{selector}", AT_ONCE, _ANSWER)
        try:
            await self._api.write("POST", collection, value, _ANSWER)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            self._left.append(value)
            self.refused[owner_identity(value)] = str(error)
            return False
        return True

    async def ask_again(self) -> None:
        """Ask for Pods that were refused: controllers wait longer each time."""
        makers, left = [maker for _, maker, _ in self._workloads.refused()], self._left
        if makers or left:
            self._left = []
            await asyncio.gather(*map(self._touch, makers))
            await asyncio.sleep(_BATCH)
            await self.recreate(left)

    async def _touch(self, maker: WorkloadKey) -> None:
        """Change an object, so that its controller looks at it."""
        kind = BY_NAME[maker.api_version.rpartition("/")[0], maker.kind]
        path = f"{kind.collection(maker.api_version, maker.namespace)}/{maker.name}"
        body = {"metadata": {"annotations": {f"{OURS}asked": str(time.monotonic())}}}
        with contextlib.suppress(ApiError):  # it has gone
            await self._api.write("PATCH", path, body, _ANSWER, "application/merge-patch+json")
