"""Submits Jobs at their times, and waits until all of them have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from admission.cli.common.job_manifests import Manifest
from admission.cli.trial.embedded_cluster import create
from admission.cli.trial.recorder import Recorder
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, KubeError, ServerError, TooManyRequests, Unreachable
from api.kube.resources import JOBS
from api.workload import WorkloadKey

# Requests under way at a time: enough to keep an API server busy, too few to make others wait.
_IN_FLIGHT = 16
# A busy or restarting server gets so many attempts, with doubling pauses in between: half a minute in all.
_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.25
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A Job to create `at_seconds` (real ones) after the start."""

    at_seconds: float
    manifest: Manifest

    @property
    def key(self) -> WorkloadKey:
        """Namespace and name of the Job."""
        metadata = self.manifest["metadata"]
        return WorkloadKey(metadata["namespace"], metadata["name"])


@dataclass(slots=True)
class Submitter:
    """Creates Jobs. `submitted` counts those that the server has taken, `refused` says why it took not."""

    client: KubeClient
    submissions: Sequence[Submission]
    submitted: int = 0
    refused: dict[WorkloadKey, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether every Job was tried."""
        return self.submitted + len(self.refused) == len(self.submissions)

    async def run(self, started_at: float) -> None:
        """Create each Job at its time after `started_at` (monotonic). Ends when all are created."""
        free = asyncio.Semaphore(_IN_FLIGHT)
        async with asyncio.TaskGroup() as tasks:
            for submission in sorted(self.submissions, key=lambda each: each.at_seconds):
                # From the start each time, not from the last one: delays do not add up over
                # a trace of thousands.
                await asyncio.sleep(started_at + submission.at_seconds - time.monotonic())
                await free.acquire()
                task = tasks.create_task(self._submit(submission), name=f"submit {submission.key}")
                # Also where it failed, or a server that refuses would stop the whole trace.
                task.add_done_callback(lambda _: free.release())

    async def _submit(self, submission: Submission) -> None:
        try:
            await _create_patiently(self.client, submission.manifest)
        # Noted instead of raised: one Job that the server will not take must not end the run of all others.
        except KubeError as error:
            self.refused[submission.key] = error.message
        else:
            self.submitted += 1


async def wait_all_ended(
    recorder: Recorder, keys: Collection[WorkloadKey], *, has_stalled: Callable[[], bool]
) -> bool:
    """Wait until every Job of `keys` has ended or is gone; return False where `has_stalled` says so first."""
    remaining = set(keys)
    while remaining:
        if has_stalled():
            return False
        await asyncio.sleep(_POLL_SECONDS)
        # Asked of what is recorded already: the API server hears nothing of it.
        remaining = {key for key in remaining if not _has_ended(recorder, key)}
    return True


def _has_ended(recorder: Recorder, key: WorkloadKey) -> bool:
    times = recorder.jobs.get(key)
    return times is not None and (times.finished_at is not None or times.is_gone)


async def _create_patiently(client: KubeClient, manifest: Manifest) -> None:
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(_ATTEMPTS):
        try:
            await create(client, JOBS, manifest)
        except AlreadyExists:
            # The answer to an earlier attempt was lost; before the first one nothing had this name.
            if attempt == 0:
                raise
        except (Unreachable, TooManyRequests, ServerError) as error:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))
            pause *= 2
            continue
        return
