"""Quota windows in decisions: what opens, what closes, which starts are held back, what is promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.policy import AdmissionPolicy, Backfill, BackfillMode, QuotaWindow
from api.queueing import Preemption, PreemptionPolicy, ResourceFlavor
from tests.admission.timed import TimedWorld, key
from tests.builders import GPU, make_cluster_queue, make_cohort, make_group, make_quota
from tests.examples import trying
from tests.queues.quota.test_quota_windows import make_window

T = 1000.0


def window(name: str, start: float, end: float, nominal: int, **fields: Any) -> QuotaWindow:
    """Return a window of ClusterQueue `queue`, by seconds after T."""
    queue = fields.pop("queue", "queue")
    made = make_window(name, span=(T + start, T + end), nominal=nominal, **fields)
    return replace(made, cluster_queue=queue)


def make_policy(*windows: QuotaWindow, backfill: bool = False) -> AdmissionPolicy:
    rules = Backfill(mode=BackfillMode.EASY, resolution_seconds=1, ending_seconds=0) if backfill else None
    return AdmissionPolicy(name="policy", quota_windows=windows, backfill=rules)


def make_world(*windows: QuotaWindow, quota: int = 4, backfill: bool = False) -> TimedWorld:
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=quota), make_policy(*windows, backfill=backfill))
    return world


def nominal_of(world: TimedWorld, queue: str = "queue") -> int:
    view = world.engine.queues.cluster_queue_view(queue)
    return view.quotas_in_force[GPU].amount if view is not None and GPU in view.quotas_in_force else -1


def test_what_waits_starts_when_a_window_opens_that_has_room_for_it() -> None:
    world = make_world(window("more", 100, 1000, 8))
    world.submit("large", 6, runs=50)

    world.run()

    assert world.started["large"] == T + 100


def test_what_came_in_while_it_was_open_runs_on_when_it_closes_and_nothing_more_starts() -> None:
    world = make_world(window("more", 0, 100, 8))
    world.submit("first", 8, runs=300)
    world.submit("second", 2, runs=10, at=T + 150)

    world.run()

    assert world.started == {"first": T, "second": T + 300}
    assert world.evicted == {}


def test_a_window_of_no_quota_admits_nothing_until_it_closes() -> None:
    world = make_world(window("maintenance", 50, 200, 0))
    world.submit("early", 1, runs=10, at=T + 40)
    world.submit("late", 1, runs=10, at=T + 60)

    world.run()

    assert world.started == {"early": T + 40, "late": T + 200}


def test_the_owner_reclaims_its_quota_from_a_queue_that_uses_more_than_its_window_left_it() -> None:
    """Over-use after a quota fell is borrowed: reclaimWithinCohort, as after an administrator's edit."""
    world = TimedWorld(now=T)
    reclaim = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world.put(
        make_cohort("all"),
        make_cluster_queue("night", quota=16, cohort="all"),
        make_cluster_queue("day", quota=8, cohort="all", preemption=reclaim),
        make_policy(window("office-hours", 100, 500, 8, queue="night")),
    )
    world.submit("batch", 8, runs=1000, queue="night")
    world.submit("more", 8, runs=1000, queue="night", at=T + 1)
    world.submit("own", 8, runs=10, queue="day", at=T + 150)

    world.run(until=T + 200)

    assert world.evicted == {"more": [T + 150]}
    assert world.started["own"] > T + 150
    assert world.ended.get("batch") is None


def test_borrowers_lose_what_a_lenders_window_takes_away() -> None:
    world = TimedWorld(now=T)
    world.put(
        make_cohort("all"),
        make_cluster_queue("lender", quota=8, cohort="all"),
        make_cluster_queue("borrower", quota=0, cohort="all"),
        make_policy(window("away", 100, 200, 2, queue="lender")),
    )
    world.submit("before", 6, runs=50, queue="borrower")
    world.submit("during", 6, runs=50, queue="borrower", at=T + 110)

    world.run()

    assert world.started == {"before": T, "during": T + 200}


def test_a_workload_that_would_still_run_when_the_quota_falls_waits_within_the_lead() -> None:
    world = make_world(window("less", 100, 300, 1, lead=60))
    world.submit("before-lead", 1, runs=500, at=T + 30)
    world.submit("short", 1, runs=20, at=T + 50)
    world.submit("long", 1, runs=500, at=T + 51)
    world.submit("silent", 1, runs=5, says=0, at=T + 52)

    world.run()

    assert world.started["before-lead"] == T + 30
    assert world.started["short"] == T + 50
    assert world.started["long"] == world.started["silent"] == T + 300
    assert world.said["long"][0] == (
        "fits now, but may still run when the quota of gpu in flavor default of ClusterQueue queue falls to "
        "1 at 1970-01-01T00:18:20Z (quota window: less)"
    )


def test_the_lead_holds_for_a_window_of_more_quota_that_closes() -> None:
    world = make_world(window("more", 0, 100, 8, lead=60))
    world.submit("fits-later-too", 4, runs=500, at=T + 50)
    world.submit("does-not", 4, runs=500, at=T + 51)

    world.run(until=T + 540)

    assert world.started == {"fits-later-too": T + 50}


def test_a_workload_that_fits_the_lowered_quota_starts_within_the_lead() -> None:
    world = make_world(window("less", 100, 300, 2, lead=100))
    world.submit("small", 2, runs=500)
    world.submit("too-much", 1, runs=500, at=T + 1)

    world.run(until=T + 250)

    assert world.started == {"small": T}


def test_within_the_lead_another_flavor_is_taken_that_keeps_its_quota() -> None:
    world = TimedWorld(now=T)
    world.put(ResourceFlavor(name="a"), ResourceFlavor(name="b"))
    world.put(make_cluster_queue(groups=(make_group(a=4, b=4),)))
    falling = replace(window("less", 100, 300, 0, lead=100), flavor="a")
    world.put(make_policy(falling))
    world.submit("long", 2, runs=500)
    world.submit("short", 2, runs=50)

    world.run(until=T + 10)

    flavors = {
        one.name: admission.pod_sets[0].flavors["gpu"]
        for one, admission in world.engine.workloads.admissions()
    }
    assert flavors == {"long": "b", "short": "a"}


def test_a_promise_is_made_for_when_a_window_opens() -> None:
    world = make_world(window("more", 100, 1000, 8), backfill=True)
    world.submit("large", 6, runs=50)

    world.run()

    assert world.promised("large") == [T + 100]
    assert world.started["large"] == T + 100


def test_a_promise_is_not_made_on_quota_that_a_window_takes_away() -> None:
    """At T+50 there would be room, but by then the quota is less, until T+200."""
    world = make_world(window("less", 40, 200, 2), backfill=True)
    world.submit("running", 4, runs=50)
    world.submit("head", 4, runs=50, at=T + 1)

    world.run()

    assert world.promised("head") == [T + 200]
    assert world.started["head"] == T + 200


def test_no_workload_is_backfilled_that_would_delay_a_promise_after_a_window() -> None:
    world = make_world(window("more", 100, 1000, 8), backfill=True)
    world.submit("head", 8, runs=50)
    world.submit("long", 1, runs=500, at=T + 1)
    world.submit("short", 1, runs=50, at=T + 2)

    world.run()

    assert world.started["short"] == T + 2
    assert world.started["head"] == T + 100
    assert world.started["long"] == T + 150


def test_a_window_takes_effect_when_its_policy_comes_and_ends_when_that_goes() -> None:
    world = make_world()
    world.submit("w", 6, runs=1000)
    world.run(until=T + 10)
    assert world.started == {}

    world.put(make_policy(window("more", 0, 1000, 8)))
    world.run(until=T + 20)
    assert world.started == {"w": T + 10}
    assert nominal_of(world) == 8

    world.remove(AdmissionPolicy, "policy")
    assert nominal_of(world) == -1


def test_a_controller_that_starts_within_a_window_knows_it() -> None:
    world = TimedWorld(now=T + 500)
    world.put(make_policy(window("more", 0, 1000, 8)), make_cluster_queue(quota=4))
    world.submit("w", 8, runs=10)

    world.run()

    assert world.started == {"w": T + 500}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        (
            {"cluster_queue": "gone"},
            'spec.quotaWindows[0].clusterQueue is "gone": there is no such ClusterQueue',
        ),
        (
            {"flavor": "gold"},
            'spec.quotaWindows[0].flavor is "gold": ClusterQueue queue has flavors default',
        ),
        (
            {"resource": "tpu"},
            'spec.quotaWindows[0].resource is "tpu": flavor default of ClusterQueue queue has quota for gpu',
        ),
        (
            {"cluster_queue": "other"},
            'spec.quotaWindows[0].clusterQueue is "other": this policy does not govern it, no policy does',
        ),
    ],
)
def test_a_window_without_quota_is_reported_and_the_others_stay_in_force(
    changes: dict[str, Any], want: str
) -> None:
    world = make_world(quota=4)
    world.put(make_cluster_queue("other", quota=1))
    bad, good = replace(window("bad", 0, 100, 9), **changes), window("good", 0, 100, 6)

    world.put(replace(make_policy(bad, good), queue_names=frozenset({"queue"})))

    view = world.engine.queues.policy_view("policy")
    assert view is not None
    assert view.calendar_problems == (want,)
    assert nominal_of(world) == 6


def test_windows_that_never_open_or_overlap_are_reported() -> None:
    never = make_window("never", cron="0 0 31 2 *", nominal=1)
    first = make_window("first", cron="0 20 * * *", hours=12, nominal=1)
    second = make_window("second", cron="0 6 * * mon", hours=1, nominal=2)
    world = make_world(never, first, second)

    view = world.engine.queues.policy_view("policy")

    assert view is not None
    assert view.calendar_problems == (
        'spec.quotaWindows[0].schedule is "0 0 31 2 *": there is no such day, it never opens',
        'spec.quotaWindows[2].name is "second": overlaps quota window first; where both are open second '
        "counts, as the later in the list",
    )


@trying(60)
@given(
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 8)), max_size=4),
    jobs=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6), st.integers(1, 30)), max_size=8),
    backfill=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_nothing_starts_beyond_the_quota_in_force_and_the_order_of_input_does_not_matter(
    spans: list[tuple[int, int, int]], jobs: list[tuple[int, int, int]], backfill: bool, order: Any
) -> None:
    windows = [
        window(f"w{n}", start, start + length, amount) for n, (start, length, amount) in enumerate(spans)
    ]
    courses = []
    for is_shuffled in (False, True):
        world = TimedWorld(now=T)
        values = [make_cluster_queue(quota=make_quota(4)), make_policy(*windows, backfill=backfill)]
        arriving = list(enumerate(jobs))
        if is_shuffled:
            order.shuffle(values)
            order.shuffle(arriving)
        world.put(*values)
        for number, (at, gpus, runs) in arriving:
            world.submit(f"job-{number}", gpus, runs=runs, at=T + at)
        world.run(until=T + 500)
        courses.append((world.started, world.ended))
    assert courses[0] == courses[1]
    started, ended = courses[0]
    for name, since in started.items():
        running = [one for one in started if started[one] <= since < ended.get(one, T + 1000)]
        used = sum(jobs[int(one.removeprefix("job-"))][1] for one in running)
        assert used <= quota_at(windows, since), f"{name} started at {since} beside {running}"


def quota_at(windows: list[QuotaWindow], at: float) -> int:
    """Return the quota by the rule as docs say it: the last open window of the list, else 4."""
    amounts = [one.nominal for one in windows if (one.start_at or 0) <= at < (one.end_at or 0)]
    return amounts[-1] if amounts else 4


def test_expected_starts_see_a_window_that_opens() -> None:
    world = make_world(window("more", 100, 1000, 8), backfill=True)
    world.submit("head", 8, runs=50)
    world.submit("behind", 8, runs=50, at=T + 1)
    world.run(until=T + 5)

    forecast = world.engine.forecasts.begin(now=world.now)
    assert forecast is not None
    while forecast.step():
        pass

    assert forecast.starts == {key("behind"): T + 150}


def test_a_workload_that_asks_for_more_than_there_is_now_learns_when_a_window_brings_it() -> None:
    world = make_world(window("some", 100, 200, 6), window("night", 300, 400, 16), quota=4)
    world.submit("large", 12, runs=10)
    world.submit("huge", 20, runs=10)

    world.run(until=T + 50)
    assert world.said["large"][-1].endswith(
        "> maximum capacity (4); waits for 1970-01-01T00:21:40Z, when quota window night makes the nominal "
        "quota 16"
    )
    assert world.said["huge"][-1].endswith("> maximum capacity (4)")

    world.run()
    assert world.started == {"large": T + 300}


def test_a_workload_that_asks_for_more_than_a_window_leaves_learns_when_it_closes() -> None:
    world = make_world(window("maintenance", 0, 100, 0), quota=4)
    world.submit("w", 4, runs=10)

    world.run(until=T + 50)

    assert world.said["w"][-1].endswith("waits for 1970-01-01T00:18:20Z, when the nominal quota is 4 again")
