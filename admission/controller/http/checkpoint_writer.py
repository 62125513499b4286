"""Writing of checkpoint reports onto their subjects. Any replica may do this, so no lease is needed.

Reports for one subject (a Job, a pod, or the Workload of a group) that arrive while one of them is
being written are combined into one write. Each is answered only when it is stored. The write carries
the version that it was computed from. So if two replicas get reports on the same work at the same time,
or a user annotates the subject meanwhile, no newer checkpoint is overwritten: the second write meets a
conflict and reads again.

What the reports say of costs goes onto the Workload in a second write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from admission.controller.http.checkpoint_subjects import Subject, Subjects
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.requests import FIELD_MANAGER
from admission.decisions.api_writes import guarded_patch
from admission.reconcile.checkpoints import Annotations, measured_costs, progress
from api.kube.client import MERGE_PATCH, Body, KubeClient
from api.kube.errors import Conflict, KubeError, NotFound
from api.objects.common import NamedObject
from api.wire.checkpoint_report import Report

log = Log("berth.checkpoints")

MOST_CONFLICTS = 5
# Writes in flight, and reports that may wait for one: more than any cluster needs, and a limit for floods.
MOST_IN_FLIGHT = 8
MOST_WAITING = 512
WRITE_SECONDS = 1.5


class OutdatedError(Exception):
    """A newer checkpoint is known. The message names the subject."""


class BusyError(Exception):
    """More reports are waiting than can be stored in time."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Reports for one subject that are written together. `stored` then holds its annotations."""

    subject: Subject
    stored: asyncio.Future[Mapping[str, str]]
    reports: list[Report] = field(default_factory=list)


class CheckpointWriter:
    """Stores reports while `run()` runs."""

    def __init__(self, client: KubeClient, clock: Clock, subjects: Subjects) -> None:
        self._client = client
        self._clock = clock
        self._subjects = subjects
        self._gathering: dict[str, _Batch] = {}
        self._writing: dict[str, _Batch] = {}
        self._queue: asyncio.Queue[_Batch] = asyncio.Queue()
        self._waiting = 0

    async def store(self, subject: Subject, report: Report) -> Mapping[str, str]:
        """Store a report. Return the subject's annotations once the report is in them.

        Raises OutdatedError, BusyError, and KubeError (NotFound if the subject is gone).
        """
        if self._waiting >= MOST_WAITING:
            raise BusyError("too many reports at once")
        uid = subject.metadata.uid
        batch = self._gathering.get(uid)
        if batch is None:
            batch = _Batch(subject, asyncio.get_running_loop().create_future())
            self._gathering[uid] = batch
            if uid not in self._writing:
                self._queue.put_nowait(batch)
        batch.reports.append(report)
        self._waiting += 1
        try:
            # The sender may disconnect. The report is stored all the same, since others may share the write.
            return await asyncio.shield(batch.stored)
        finally:
            self._waiting -= 1

    async def run(self) -> None:
        """Write reports until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(MOST_IN_FLIGHT):
                group.create_task(self._work(), name=f"checkpoint-writer-{number}")

    async def _work(self) -> None:
        while True:
            batch = await self._queue.get()
            uid = batch.subject.metadata.uid
            # Reports that arrive from here on are collected for the next write, which waits for this one.
            del self._gathering[uid]
            self._writing[uid] = batch
            try:
                annotations = await self._write(batch)
            except (OutdatedError, KubeError) as error:
                _answer(batch, error)
            except asyncio.CancelledError:
                _answer(batch, KubeError("this replica is stopping"))
                raise
            # A bug met with one report must not end the task that stores all others.
            except Exception:
                log.exception("checkpoint-not-stored", subject=batch.subject)
                _answer(batch, KubeError("an internal error; the log says which"))
            else:
                _answer(batch, annotations)
            finally:
                del self._writing[uid]
                if (later := self._gathering.get(uid)) is not None:
                    self._queue.put_nowait(later)

    async def _write(self, batch: _Batch) -> Mapping[str, str]:
        subject, start = self._subjects.fresh(batch.subject), self._subjects.started_at(batch.subject)
        keeper = self._subjects.keeper(subject)
        # The Workload of a group keeps both, in one write.
        is_one = keeper is not None and keeper.metadata.uid == subject.metadata.uid
        saved: tuple[Report, ...] = ()

        def newer(present: Annotations) -> Mapping[str, str]:
            nonlocal saved
            found = progress(present, batch.reports, now=self._clock.now())
            if found.is_outdated:
                raise OutdatedError(f"a newer checkpoint of {subject} is known")
            saved = found.saved
            return {**found.annotations, **(costs(present) if is_one else {})}

        def costs(present: Annotations) -> Mapping[str, str]:
            return measured_costs(present, batch.reports, saved, started_at=start)

        stored = await self._update(subject, newer)
        if keeper is not None and not is_one:
            # A Workload that is gone by now needs no costs.
            with suppress(NotFound):
                await self._update(keeper, costs)
        return stored

    async def _update(
        self, subject: Subject, change: Callable[[Annotations], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """Make the change of an object's annotations, again after each conflict; return all of them."""
        for _ in range(MOST_CONFLICTS):
            present = subject.metadata.annotations or {}
            changed = change(present)
            if not changed:
                return present
            try:
                return await self._send(subject, changed)
            except Conflict:
                subject = await self._read(subject)
        raise Conflict(f"{subject} changes faster than it can be read")

    async def _send(self, subject: Subject, annotations: Mapping[str, str]) -> Mapping[str, str]:
        metadata = subject.metadata
        body = guarded_patch(
            {"metadata": {"annotations": annotations}},
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        await self._client.request(
            "PATCH",
            subject.resource.path(metadata.namespace, metadata.name),
            params=FIELD_MANAGER,
            body=Body(body, MERGE_PATCH),
            timeout_seconds=WRITE_SECONDS,
        )
        return {**(metadata.annotations or {}), **annotations}

    async def _read(self, known: Subject) -> Subject:
        path = known.resource.path(known.metadata.namespace, known.metadata.name)
        raw = await self._client.request("GET", path, timeout_seconds=WRITE_SECONDS)
        try:
            fresh = msgspec.json.decode(raw, type=NamedObject).metadata
        except msgspec.DecodeError as error:
            raise KubeError(f"{known} cannot be read: {error}") from error
        if fresh.uid != known.metadata.uid:
            raise NotFound(f"{known} was replaced by another of its name", status=404)
        return Subject(resource=known.resource, metadata=fresh)


def _answer(batch: _Batch, outcome: Mapping[str, str] | Exception) -> None:
    if batch.stored.done():
        return
    if isinstance(outcome, Exception):
        batch.stored.set_exception(outcome)
        # All senders may have disconnected. The exception is retrieved here to avoid a warning by asyncio.
        batch.stored.exception()
    else:
        batch.stored.set_result(outcome)
