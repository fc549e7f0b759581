"""The work queue of a leader."""

from __future__ import annotations

import asyncio

from webhook.controller.work_queue import WorkQueue


async def test_a_replica_that_does_not_lead_keeps_no_keys() -> None:
    queue, worked = WorkQueue(1), list[str]()

    async def work(key: str) -> None:
        worked.append(key)

    async def lead(*keys: str) -> asyncio.Task[None]:
        leading = asyncio.create_task(queue.run(keys, work))
        await asyncio.sleep(0)
        return leading

    queue.add("before")
    leading = await lead("known")
    queue.add("changed")
    async with asyncio.timeout(10):
        while len(worked) < 2:  # noqa: ASYNC110 - the queue has no event
            await asyncio.sleep(0)
    leading.cancel()
    await asyncio.wait([leading])
    queue.add("after")
    await asyncio.sleep(0)
    assert worked == ["known", "changed"]
    assert not queue._due
