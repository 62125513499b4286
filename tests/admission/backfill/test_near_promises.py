"""A preemptor awaits its promised start where evictions before it would cost more than they gain.

cohort ─┬─ owner      nominal 8, reclaims what others borrow
        └─ borrower   nominal 0, runs `victim` on all 8 GPUs for 1000 s; spared for its first 600 s
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.keys import CHECKPOINT_TIME, WORKLOAD_TYPE
from api.parsing.times import to_rfc3339
from api.policy import PreemptionRules
from api.queueing import LocalQueue, Preemption, PreemptionPolicy
from tests.admission.timed import STOP_SECONDS, TimedWorld, make_policy
from tests.builders import NAMESPACE, make_cluster_queue

T = 1000.0
_SPARED_SECONDS = 600


def make_world(
    *, victim_runs: float, victim_says: float | None = None, saved_at: float | None = None, **owner: Any
) -> TimedWorld:
    """Return the world above, in which `owner` arrives ten seconds after the victim has started."""
    world = TimedWorld(now=T)
    reclaim = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world.put(
        replace(make_policy(), preemption=PreemptionRules(minimum_runtime_seconds=_SPARED_SECONDS)),
        make_cluster_queue("owner", quota=8, cohort="cohort", preemption=reclaim),
        make_cluster_queue("borrower", quota=0, cohort="cohort"),
        LocalQueue(namespace=NAMESPACE, name="owner", cluster_queue="owner"),
        LocalQueue(namespace=NAMESPACE, name="borrower", cluster_queue="borrower"),
    )
    reports = {} if saved_at is None else {CHECKPOINT_TIME: to_rfc3339(saved_at)}
    world.submit("victim", 8, runs=victim_runs, says=victim_says, queue="borrower", annotations=reports)
    world.submit("owner", 8, runs=50, at=T + 10, queue="owner", **owner)
    return world


def test_a_victim_is_not_evicted_shortly_before_its_end_if_its_preemptor_is_promised_that_end() -> None:
    world = make_world(victim_runs=646)

    world.run()

    assert world.evicted == {}
    assert world.promised("owner") == [T + 646]
    assert world.started["owner"] == T + 646
    assert any("before that would lose more than it gains" in said for said in world.said["owner"])


@pytest.mark.parametrize(
    ("fields", "owner"),
    [
        pytest.param({"victim_runs": 3000}, {}, id="the promise is later than work is spared for"),
        pytest.param(
            {"victim_runs": 1100, "saved_at": T + 590},
            {},
            id="the victim has just saved, so it loses less than the preemptor gains",
        ),
        pytest.param(
            {"victim_runs": 1000},
            {"annotations": {WORKLOAD_TYPE: "inference"}},
            id="inference does not wait for the end of others",
        ),
    ],
)
def test_what_is_evicted_as_soon_as_it_is_no_longer_spared(
    fields: dict[str, Any], owner: dict[str, Any]
) -> None:
    world = make_world(**fields, **owner)

    world.run()

    assert world.evicted["victim"] == [T + _SPARED_SECONDS]


def test_a_victim_that_outruns_its_promised_end_is_evicted_then() -> None:
    world = make_world(victim_runs=3000, victim_says=646)

    world.run()

    assert world.evicted["victim"] == [T + 646]
    assert world.started["owner"] == T + 646 + STOP_SECONDS
