"""Short Jobs by the handful, and the check that each of them ran once and none beyond the quota."""

from __future__ import annotations

from tests.integration.scene import Scene
from tests.integration.witness import Witness

QUOTA = 3


def create_jobs(scene: Scene, prefix: str, count: int) -> list[str]:
    """Create `count` short Jobs and return their names."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        scene.create_job(name, seconds=0.3)
    return names


def check_each_ran_once(witness: Witness, scene: Scene, jobs: list[str]) -> None:
    """Check what happened: every Job started once, and never more of them than the quota allows."""
    witness.catch_up()
    assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.workload_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert witness.peak_reserved(scene.scoped("main")) <= QUOTA
    assert witness.peak_running() <= QUOTA
