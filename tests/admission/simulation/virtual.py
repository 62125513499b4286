"""Short traces for the virtual clock, and what they must keep whatever the policy."""

from __future__ import annotations

import random
from itertools import accumulate

from admission.simulation.course import JobCourse
from admission.simulation.policies import POLICIES
from admission.simulation.settings import Setting
from admission.simulation.traces import TraceJob, first_submitted
from admission.simulation.virtual_run import PolicyRun, simulate


def make_job(
    number: int, *, gpus: int = 1, at: float = 0.0, runs: float = 60.0, tenant: str = "a"
) -> TraceJob:
    """Return a Job named by its number."""
    return TraceJob(id=str(number), tenant=tenant, gpus=gpus, submitted_at=at, duration_seconds=runs)


def busy_trace(jobs: int, *, seed: int) -> tuple[TraceJob, ...]:
    """Return Jobs of three tenants that come rather faster than four nodes of eight GPUs can serve them."""
    chance = random.Random(seed)
    return first_submitted(
        [
            make_job(
                number,
                gpus=chance.choice((0, 1, 1, 1, 1, 2, 4, 8, 12, 16)),
                at=float(chance.randrange(jobs * 40)),
                runs=float(chance.choice((60, 300, 900, 4_000))),
                tenant=chance.choice("abc"),
            )
            for number in range(jobs)
        ],
        None,
    )


def run_policy(name: str, jobs: tuple[TraceJob, ...], setting: Setting) -> PolicyRun:
    """Return the run of a policy."""
    return simulate(jobs, setting, POLICIES[name])


def waits_of(run: PolicyRun) -> dict[str, float]:
    """Return the waits by Job, in seconds."""
    return {
        one.job.id: one.finished_at - one.job.submitted_at - one.job.duration_seconds
        for one in run.courses
        if one.finished_at is not None
    }


def most_gpus_held(courses: tuple[JobCourse, ...], setting: Setting) -> int:
    """Return the most GPUs that were held at any instant; a Job that ends makes room for one that starts."""
    steps = []
    for course in courses:
        gpus = setting.gpus_held(course.job.gpus)
        for begin, end in course.held:
            if end > begin:
                steps += [(begin, gpus), (end, -gpus)]
    return max(accumulate(change for _, change in sorted(steps)), default=0)
