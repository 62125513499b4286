"""Starts of an earlier term that may still be stored: their Jobs are moved to another version.

A start carries the resourceVersion of the Job that its sender saw. While the Job is at that version, a
request that was given up may still be stored, and a read shows nothing of it. If the Workload is evicted
before, the Job looks stopped and its quota is given back; then the start is stored, and the Job runs without
quota. So a Job whose start may be on its way is written before anything is decided: what was sent earlier
meets 409. The answer also shows whether the Job runs already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.executor import Executor
from admission.controller.writer.write_order import (
    Moot,
    ObjectTarget,
    Refused,
    Result,
    WriteOrder,
    Written,
)
from admission.decisions.api_writes import Purpose, Verb, Write
from api import keys

# The pause after a refusal, which another program's webhook may have given.
PAUSE_SECONDS = 1.0

log = Log("berth.takeover")


class StrayStarts:
    """Fences off the starts of earlier terms, one Job at a time.

    `executor` is that of the new term. `sleep` pauses between two attempts.
    """

    def __init__(
        self, executor: Executor, clock: Clock, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._sleep = sleep

    async def fence_off(self, job: ObjectTarget, value: str, *, until: float) -> bytes:
        """Write the annotation `berth.dev/fence`, and return the Job's bytes; b"" if it is gone or unread.

        `value` must be another than the Job has: an API server stores no new version for a write that changes
        nothing. A refusal is tried again `until` no earlier start can be stored any more (monotonic seconds).
        """
        while True:
            result = await self._send(job, value)
            if isinstance(result, Written | Moot):
                return result.raw
            if not isinstance(result, Refused):
                return b""
            log.warning("start-not-fenced-off", job=f"{job.namespace}/{job.name}", error=result.error)
            if self._clock.monotonic() + PAUSE_SECONDS >= until:
                return b""
            await self._sleep(PAUSE_SECONDS)

    async def _send(self, job: ObjectTarget, value: str) -> Result:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        body = {"metadata": {"annotations": {keys.FENCE: value}}}
        write = Write(
            verb=Verb.MERGE_PATCH,
            kind=job.kind,
            namespace=job.namespace,
            name=job.name,
            body=msgspec.json.encode(body),
            purpose=Purpose.FENCE,
        )

        def on_result(result: Result) -> None:
            # The caller is cancelled if the term ends first.
            if not answered.done():
                answered.set_result(result)

        self._executor.submit(WriteOrder(write=write, on_result=on_result))
        return await answered
