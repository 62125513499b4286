"""Creates Jobs at their times, and waits until all of them have ended."""

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

# Concurrent requests: enough to keep an API server busy, too few to delay other clients.
_IN_FLIGHT = 16
# Attempts while the server is busy or restarts, with doubling pauses: half a minute in total.
_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.25
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A Job to create `at_seconds` (real seconds) after the start."""

    at_seconds: float
    manifest: Manifest

    @property
    def key(self) -> WorkloadKey:
        """Return namespace and name of the Job."""
        metadata = self.manifest["metadata"]
        return WorkloadKey(metadata["namespace"], metadata["name"])


@dataclass(slots=True)
class Submitter:
    """Creates Jobs. `submitted` counts those the server stored, `refused` maps the others to its message."""

    client: KubeClient
    submissions: Sequence[Submission]
    submitted: int = 0
    refused: dict[WorkloadKey, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Return whether the creation of every Job was attempted."""
        return self.submitted + len(self.refused) == len(self.submissions)

    async def run(self, started_at: float) -> None:
        """Create each Job at its time after `started_at` (monotonic). Return when all were attempted."""
        free = asyncio.Semaphore(_IN_FLIGHT)
        async with asyncio.TaskGroup() as tasks:
            for submission in sorted(self.submissions, key=lambda each: each.at_seconds):
                # Compute each time from the start, so that delays do not add up over thousands of Jobs.
                await asyncio.sleep(started_at + submission.at_seconds - time.monotonic())
                await free.acquire()
                task = tasks.create_task(self._submit(submission), name=f"submit {submission.key}")
                # Release the slot also after a failure; otherwise a server that refuses would stop the run.
                task.add_done_callback(lambda _: free.release())

    async def _submit(self, submission: Submission) -> None:
        try:
            await _create_patiently(self.client, submission.manifest)
        # Record the error instead of raising it: one refused Job must not end the whole run.
        except KubeError as error:
            self.refused[submission.key] = error.message
        else:
            self.submitted += 1


async def wait_all_ended(
    recorder: Recorder, keys: Collection[WorkloadKey], *, has_stalled: Callable[[], bool]
) -> bool:
    """Wait until every Job of `keys` has ended or is gone; return False if `has_stalled` is true first."""
    remaining = set(keys)
    while remaining:
        if has_stalled():
            return False
        await asyncio.sleep(_POLL_SECONDS)
        # Read the recorded state, which causes no requests to the API server.
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
            # After the first attempt, the object is our own: only the answer to an earlier attempt was lost.
            if attempt == 0:
                raise
        except (Unreachable, TooManyRequests, ServerError) as error:
            if attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))
            pause *= 2
            continue
        return
