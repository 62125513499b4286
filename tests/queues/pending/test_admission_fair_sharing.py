"""Past usage of LocalQueues: decay, entry penalties, and whose Workloads go first by it.

Rules are those of Kueue's KEP 4136. The half-life of most cases is one sampling interval, so that half of
everything is new after each step.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.jobs.resource_requests import PodSetRequests
from api.past_usage import PastUsage
from api.workload import WorkloadKey
from queues.pending.admission_fair_sharing import AdmissionFairSharing, UsageLedger
from queues.pending.pending_queue import Pending, PendingQueue, RequeueCause
from tests.builders import NAMESPACE, make_workload
from tests.queues.popping import pop_all

INTERVAL = 300
HALVING = AdmissionFairSharing(half_life_seconds=INTERVAL, sampling_seconds=INTERVAL)
QUEUE = (NAMESPACE, "lq")
WORKLOAD = WorkloadKey(NAMESPACE, "w")
NANOS = 10**9


def make_ledger(settings: AdmissionFairSharing = HALVING, **consumed: int) -> UsageLedger:
    """Return a ledger that has the consumption, in whole units, of instant 0."""
    ledger = UsageLedger(settings)
    ledger.adopt(
        QUEUE, PastUsage(consumed={name: units * NANOS for name, units in consumed.items()}, updated_at=0)
    )
    return ledger


def hold(ledger: UsageLedger, *, is_admitted: bool = True, now: float = 0.0, **amounts: int) -> None:
    ledger.hold(WORKLOAD, QUEUE, amounts, is_admitted=is_admitted, now=now)


def consumed(ledger: UsageLedger) -> dict[str, float]:
    past = ledger.past_usage(QUEUE)
    assert past is not None
    return {name: nanos / NANOS for name, nanos in past.consumed.items()}


# --- decay -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "admitted", "steps", "want"),
    [
        pytest.param({"gpu": 8}, {}, 1, {"gpu": 4.0}, id="an idle queue has used half after one half-life"),
        pytest.param({"gpu": 8}, {}, 3, {"gpu": 1.0}, id="and an eighth after three"),
        pytest.param({}, {"gpu": 8}, 1, {"gpu": 4.0}, id="what is held counts half after one half-life"),
        pytest.param({}, {"gpu": 8}, 3, {"gpu": 7.0}, id="and runs towards what is held"),
        pytest.param({"gpu": 8}, {"gpu": 8}, 5, {"gpu": 8.0}, id="constant use stays what it is"),
        pytest.param({"gpu": 4}, {"cpu": 3000}, 1, {"cpu": 1.5, "gpu": 2.0}, id="CPU is counted in cores"),
    ],
)
def test_consumption_is_an_average_that_halves_in_a_half_life(
    before: dict[str, int], admitted: dict[str, int], steps: int, want: dict[str, float]
) -> None:
    ledger = make_ledger(HALVING, **before)
    ledger.hold(WORKLOAD, QUEUE, admitted, is_admitted=True, now=0)

    for step in range(1, steps + 1):
        ledger.sample({QUEUE: ()}, now=step * INTERVAL)

    assert consumed(ledger) == want


def test_without_a_half_life_nothing_is_remembered() -> None:
    ledger = make_ledger(AdmissionFairSharing(), gpu=8)
    hold(ledger, gpu=8, is_admitted=False)

    assert ledger.usage(QUEUE, 1000) == 8.0
    ledger.sample({QUEUE: ()}, now=INTERVAL)

    assert (consumed(ledger), ledger.usage(QUEUE, 1000)) == ({}, 0.0)


def test_the_first_step_of_a_queue_that_is_not_known_has_no_length() -> None:
    ledger = UsageLedger(HALVING)
    hold(ledger, gpu=8)

    ledger.sample({QUEUE: ()}, now=1_000_000.7)

    assert ledger.past_usage(QUEUE) == PastUsage(consumed={"gpu": 0}, updated_at=1_000_000)


def test_a_new_queue_lists_what_its_cluster_queue_covers_with_nothing_used() -> None:
    ledger = UsageLedger(HALVING)

    assert ledger.open({QUEUE: ("cpu", "gpu")}, now=1000) == [QUEUE]

    assert ledger.past_usage(QUEUE) == PastUsage(consumed={"cpu": 0, "gpu": 0}, updated_at=1000)
    assert ledger.open({QUEUE: ("cpu", "gpu")}, now=2000) == []


def test_a_single_gpu_counts_in_a_half_life_of_a_week() -> None:
    """Regression: kept in thousandths, 0.0003 GPUs of one step were nothing, step after step."""
    ledger = make_ledger(AdmissionFairSharing(half_life_seconds=7 * 86_400, sampling_seconds=INTERVAL))
    hold(ledger, gpu=1)

    ledger.sample({QUEUE: ()}, now=INTERVAL)

    assert consumed(ledger)["gpu"] == pytest.approx(0.000343764, abs=1e-9)


def test_a_clock_that_lags_behind_adds_nothing_twice() -> None:
    ledger = make_ledger()
    hold(ledger, gpu=8)
    ledger.sample({QUEUE: ()}, now=INTERVAL)

    ledger.sample({QUEUE: ()}, now=INTERVAL - 100)
    ledger.sample({QUEUE: ()}, now=INTERVAL)

    assert ledger.past_usage(QUEUE) == PastUsage(consumed={"gpu": 4 * NANOS}, updated_at=INTERVAL)


@given(cut=st.integers(0, INTERVAL), held=st.integers(0, 1000), before=st.integers(0, 1000))
def test_two_steps_give_what_one_of_their_length_gives(cut: int, held: int, before: int) -> None:
    ledgers = [make_ledger(gpu=before), make_ledger(gpu=before)]
    for ledger in ledgers:
        hold(ledger, gpu=held)

    ledgers[0].sample({QUEUE: ()}, now=cut)
    for ledger in ledgers:
        ledger.sample({QUEUE: ()}, now=INTERVAL)

    in_two, in_one = (consumed(ledger).get("gpu", 0.0) for ledger in ledgers)
    assert in_two == pytest.approx(in_one, abs=1e-8)
    assert min(before, held) <= in_one <= max(before, held)


# --- entry penalty -----------------------------------------------------------------------------------------


def test_a_workload_weighs_from_the_decision_on_and_is_settled_when_admitted() -> None:
    ledger = make_ledger()

    hold(ledger, gpu=8, is_admitted=False)
    assert (ledger.usage(QUEUE, 1000), consumed(ledger)) == (4.0, {})

    hold(ledger, gpu=8, is_admitted=True)
    assert (ledger.usage(QUEUE, 1000), consumed(ledger)) == (4.0, {"gpu": 4.0})


def test_settling_averages_first_what_was_held_until_then() -> None:
    ledger = make_ledger(gpu=8)
    ledger.hold(WorkloadKey(NAMESPACE, "old"), QUEUE, {"gpu": 4}, is_admitted=True, now=0)
    hold(ledger, gpu=2, is_admitted=False)

    hold(ledger, gpu=2, is_admitted=True, now=INTERVAL)

    assert consumed(ledger) == {"gpu": 8 / 2 + 4 / 2 + 2 / 2}


def test_a_decision_that_is_taken_back_weighs_no_more() -> None:
    ledger = make_ledger(gpu=1)
    hold(ledger, gpu=8, is_admitted=False)

    ledger.release(WORKLOAD)

    assert ledger.usage(QUEUE, 1000) == 1.0


def test_one_that_was_admitted_when_first_seen_was_settled_before() -> None:
    ledger = make_ledger(gpu=1)

    hold(ledger, gpu=8)

    assert ledger.usage(QUEUE, 1000) == 1.0


def test_a_penalty_follows_its_workload_to_another_queue() -> None:
    ledger = make_ledger()
    hold(ledger, gpu=8, is_admitted=False)

    ledger.hold(WORKLOAD, (NAMESPACE, "other"), {"gpu": 8}, is_admitted=False, now=0)

    assert (ledger.usage(QUEUE, 1000), ledger.usage((NAMESPACE, "other"), 1000)) == (0.0, 4.0)


# --- the number --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight_milli", "weights", "want"),
    [
        pytest.param(1000, {}, 12.0, id="every resource counts one by default"),
        pytest.param(2000, {}, 6.0, id="a queue of twice the weight has used half"),
        pytest.param(1000, {"gpu": 10.0}, 84.0, id="a resource counts by its weight"),
        pytest.param(1000, {"cpu": 0.0}, 8.0, id="a resource of weight 0 does not count"),
        pytest.param(0, {}, inf, id="a queue of weight 0 has used infinitely much"),
    ],
)
def test_usage_is_the_weighted_sum(weight_milli: int, weights: dict[str, float], want: float) -> None:
    ledger = make_ledger(AdmissionFairSharing(resource_weights=weights), cpu=4, gpu=8)

    assert ledger.usage(QUEUE, weight_milli) == want


def test_an_unknown_queue_has_used_nothing_and_a_deleted_one_neither() -> None:
    ledger = make_ledger(gpu=8)

    ledger.forget(QUEUE)

    assert (ledger.usage(QUEUE, 1000), ledger.past_usage(QUEUE)) == (0.0, None)
    assert ledger.usage((NAMESPACE, "other"), 1000) == 0.0


def test_only_newer_usage_is_adopted() -> None:
    ledger = make_ledger(gpu=8)

    assert not ledger.adopt(QUEUE, PastUsage(consumed={}, updated_at=0))
    assert ledger.adopt(QUEUE, PastUsage(consumed={"gpu": 2 * NANOS}, updated_at=1))

    assert consumed(ledger) == {"gpu": 2.0}


# --- the order ---------------------------------------------------------------------------------------------


def make_pending(name: str, queue: str, *, priority: int = 0, at: float = 0.0, shape: str = "") -> Pending:
    return Pending(
        workload=make_workload(name, queue=queue, at=at, priority=priority),
        requests=(PodSetRequests(name="main", count=1, per_pod={"gpu": 1}),),
        shape=(shape or name).encode(),
        queued_at=at,
    )


def make_queue(usage: dict[str, float], *entries: Pending) -> PendingQueue:
    queue = PendingQueue("queue")
    queue.share_by(lambda local_queue: usage[local_queue[1]])
    for entry in entries:
        queue.push_or_update(entry, now=0)
        queue.validate()
    return queue


def test_the_queue_that_has_used_least_goes_first_whatever_the_priority() -> None:
    queue = make_queue(
        {"busy": 5.0, "idle": 0.0},
        make_pending("urgent", "busy", priority=9),
        make_pending("later", "idle", at=2),
        make_pending("early", "idle", at=1),
    )

    assert [one.key.name for one in queue.in_order()] == ["early", "later", "urgent"]
    assert pop_all(queue) == ["early", "later", "urgent"]


def test_equal_usage_leaves_the_order_as_it_is() -> None:
    entries = [make_pending("a", "x", at=3), make_pending("b", "y", at=1), make_pending("c", "x", priority=1)]

    assert pop_all(make_queue({"x": 1.0, "y": 1.0}, *entries)) == ["c", "b", "a"]


def test_the_order_follows_the_usage_as_it_changes() -> None:
    usage = {"x": 0.0, "y": 1.0}
    queue = make_queue(usage, make_pending("a", "x"), make_pending("b", "x"), make_pending("c", "y"))
    assert queue.head() == WorkloadKey(NAMESPACE, "a")

    usage["x"] = 2.0

    assert pop_all(queue) == ["c", "a", "b"]


def test_a_workload_that_waits_for_its_evictions_is_first_in_its_own_queue_alone() -> None:
    queue = make_queue({"x": 1.0, "y": 0.0}, make_pending("a", "x"), make_pending("b", "x", at=1))
    first = queue.pop()
    assert first is not None
    queue.discard(first.key)
    second = queue.pop()
    assert second is not None
    queue.requeue(second, RequeueCause.PENDING_PREEMPTION, now=0)
    queue.push_or_update(make_pending("a", "x"), now=0)
    assert queue.head() == second.key

    queue.push_or_update(make_pending("c", "y", at=9), now=0)

    assert pop_all(queue) == ["c", "b", "a"]


def test_what_does_not_fit_for_one_queue_is_parked_for_all_and_woken_for_all() -> None:
    usage = {"x": 0.0, "y": 1.0}
    queue = make_queue(usage, make_pending("a", "x", shape="big"), make_pending("b", "y", shape="big"))
    head = queue.pop()
    assert head is not None

    queue.requeue(head, RequeueCause.NO_FIT, now=0)
    queue.push_or_update(make_pending("c", "y", shape="big"), now=0)
    queue.validate()
    assert (queue.statistics().parked, queue.has_head()) == (3, False)

    queue.wake(now=0, may_enter=lambda _: True)
    assert pop_all(queue) == ["a", "b", "c"]


def test_switching_it_off_and_on_keeps_every_workload_in_place() -> None:
    entries = [make_pending("a", "busy", at=1), make_pending("b", "idle", at=2), make_pending("c", "busy")]
    queue = make_queue({"busy": 5.0, "idle": 0.0}, *entries)
    head = queue.pop()
    assert head is not None
    queue.requeue(head, RequeueCause.NO_FIT, now=0)

    queue.share_by(None)
    queue.validate()
    assert [one.key.name for one in queue.in_order()] == ["c", "a", "b"]
    assert (queue.statistics().parked, pop_all(queue)) == (1, ["c", "a"])


_entries = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 2), st.integers(0, 3), st.sampled_from("st")),
    max_size=12,
)
_usage = st.fixed_dictionaries({name: st.sampled_from([0.0, 0.5, inf]) for name in "xyz"})


@given(_entries, _usage, st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_arrival(
    drawn: list[tuple[str, int, int, str]], usage: dict[str, float], random: object
) -> None:
    entries = [
        (f"w{index}", queue, priority, at, shape) for index, (queue, priority, at, shape) in enumerate(drawn)
    ]
    want = [
        name
        for name, *_ in sorted(entries, key=lambda one: (usage[one[1]], -one[2], one[3], f"uid-{one[0]}"))
    ]
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    queue = make_queue(
        usage,
        *(
            make_pending(name, lq, priority=priority, at=at, shape=shape)
            for name, lq, priority, at, shape in shuffled
        ),
    )

    assert [one.key.name for one in queue.in_order()] == want
    assert pop_all(queue) == want
