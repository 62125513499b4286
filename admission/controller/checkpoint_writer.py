"""Writing reports of checkpoints onto their Jobs: any replica may, so nothing of it needs the lease.

Reports of one Job that come while one of it is being written are one write together. Each answers its sender
only when it is stored. The write carries the version that it was worked out from: two replicas that hear of
the same Job at once, or a user who annotates it meanwhile, cannot take a newer checkpoint back, since the one
that comes second meets a conflict and reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from admission.actions import guarded_patch
from admission.checkpoints import progress
from admission.controller.clock import Clock
from admission.controller.knowledge import Knowledge
from admission.controller.logs import Log
from admission.controller.mirror import Seen
from admission.controller.sender import FIELD_MANAGER
from admission.preemption.loss import started_at
from api.checkpoint_report import Report
from api.job import Job
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Conflict, KubeError, NotFound
from api.objects import Meta, NamedObject

log = Log("berth.checkpoints")

MOST_CONFLICTS = 5
# Writes under way, and reports that may wait for one: more than any cluster needs, and an end for a flood.
MOST_IN_FLIGHT = 8
MOST_WAITING = 512
WRITE_SECONDS = 1.5


class OutdatedError(Exception):
    """A newer checkpoint of the Job is known; the message tells which."""


class BusyError(Exception):
    """More reports are waiting than will be stored in time."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Reports of one Job that are written together; `stored` is told the Job's annotations afterwards."""

    job: Seen[Job]
    stored: asyncio.Future[Mapping[str, str]]
    reports: list[Report] = field(default_factory=list)


class CheckpointWriter:
    """Stores reports while `run()` runs."""

    def __init__(self, client: KubeClient, clock: Clock, knowledge: Knowledge) -> None:
        self._client = client
        self._clock = clock
        self._knowledge = knowledge
        self._gathering: dict[str, _Batch] = {}
        self._writing: dict[str, _Batch] = {}
        self._queue: asyncio.Queue[_Batch] = asyncio.Queue()
        self._waiting = 0

    async def store(self, job: Seen[Job], report: Report) -> Mapping[str, str]:
        """Return the Job's annotations once the report is in them.

        Raises OutdatedError, BusyError, and KubeError: NotFound where the Job has gone.
        """
        if self._waiting >= MOST_WAITING:
            raise BusyError("too many reports at once")
        batch = self._gathering.get(job.metadata.uid)
        if batch is None:
            batch = _Batch(job, asyncio.get_running_loop().create_future())
            self._gathering[job.metadata.uid] = batch
            if job.metadata.uid not in self._writing:
                self._queue.put_nowait(batch)
        batch.reports.append(report)
        self._waiting += 1
        try:
            # The sender may leave; its report is stored all the same, others may share the write.
            return await asyncio.shield(batch.stored)
        finally:
            self._waiting -= 1

    async def run(self) -> None:
        """Write what comes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(MOST_IN_FLIGHT):
                group.create_task(self._work(), name=f"checkpoint-writer-{number}")

    async def _work(self) -> None:
        while True:
            batch = await self._queue.get()
            uid = batch.job.metadata.uid
            # From here on, what comes is gathered for the next write, which waits for this one.
            del self._gathering[uid]
            self._writing[uid] = batch
            try:
                annotations = await self._write(batch)
            except (OutdatedError, KubeError) as error:
                _answer(batch, error)
            except asyncio.CancelledError:
                _answer(batch, KubeError("this replica is stopping"))
                raise
            # A fault of ours with one report must not end the storing of all others.
            except Exception:
                log.exception("checkpoint-not-stored", job=batch.job.value)
                _answer(batch, KubeError("an internal error; the log says which"))
            else:
                _answer(batch, annotations)
            finally:
                del self._writing[uid]
                if (later := self._gathering.get(uid)) is not None:
                    self._queue.put_nowait(later)

    async def _write(self, batch: _Batch) -> Mapping[str, str]:
        metadata, start = batch.job.metadata, self._started_at(batch.job)
        if (seen := self._knowledge.jobs.by_uid(metadata.uid)) is not None:
            metadata = seen.metadata
        for _ in range(MOST_CONFLICTS):
            present = metadata.annotations or {}
            found = progress(present, batch.reports, started_at=start, now=self._clock.now())
            if found.is_outdated:
                raise OutdatedError("a newer checkpoint of the Job is known")
            if not found.annotations:
                return present
            try:
                return await self._send(metadata, found.annotations)
            except Conflict:
                metadata = await self._read(metadata)
        raise Conflict(f"Job {metadata.namespace}/{metadata.name} changes faster than it can be read")

    async def _send(self, metadata: Meta, annotations: Mapping[str, str]) -> Mapping[str, str]:
        body = guarded_patch(
            {"metadata": {"annotations": annotations}},
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        await self._client.merge_patch(
            resources.JOBS,
            metadata.name,
            body,
            metadata.namespace,
            params=FIELD_MANAGER,
            timeout_seconds=WRITE_SECONDS,
        )
        return {**(metadata.annotations or {}), **annotations}

    async def _read(self, known: Meta) -> Meta:
        raw = await self._client.request(
            "GET", resources.JOBS.path(known.namespace, known.name), timeout_seconds=WRITE_SECONDS
        )
        try:
            fresh = msgspec.json.decode(raw, type=NamedObject).metadata
        except msgspec.DecodeError as error:
            raise KubeError(f"Job {known.namespace}/{known.name} cannot be read: {error}") from error
        if fresh.uid != known.uid:
            raise NotFound(f"Job {known.namespace}/{known.name} is another one by now", status=404)
        return fresh

    def _started_at(self, job: Seen[Job]) -> float | None:
        starts = (started_at(workload) for workload, _ in self._knowledge.workloads_of(job))
        return max((at for at in starts if at is not None), default=None)


def _answer(batch: _Batch, outcome: Mapping[str, str] | Exception) -> None:
    if batch.stored.done():
        return
    if isinstance(outcome, Exception):
        batch.stored.set_exception(outcome)
        # All senders may have left; then nobody else would fetch it.
        batch.stored.exception()
    else:
        batch.stored.set_result(outcome)
