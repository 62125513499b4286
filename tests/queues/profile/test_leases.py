"""Leases: how long they take to end, kept as they come and go."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from api.workload import WorkloadKey
from queues.profile.leases import Leases
from queues.profile.planned_start import BackfillLease, Rank


def make_lease(number: int, seconds: float) -> BackfillLease:
    return BackfillLease(
        key=WorkloadKey("ns", f"w{number}"),
        uid=f"uid-{number}",
        cluster_queue="queue",
        rank=Rank(0, 0, 0, 0.0, ""),
        started_at=0.0,
        eviction_seconds=seconds,
    )


STEPS = st.tuples(
    st.sampled_from(["lend", "end", "delete", "clear", "adopt"]),
    st.integers(0, 3),
    st.sampled_from([5.0, 35.0, 125.0]),
)


@given(st.lists(STEPS))
def test_the_times_come_from_the_leases_that_run(steps: list[tuple[str, int, float]]) -> None:
    leases = Leases()
    for what, number, seconds in steps:
        lease = make_lease(number, seconds)
        match what:
            case "lend":
                leases[lease.key] = lease
            case "end":
                leases.pop(lease.key, None)
            case "delete" if lease.key in leases:
                del leases[lease.key]
            case "clear":
                leases.clear()
            case "adopt":
                leases.update({lease.key: lease})
        leases.validate()

        assert set(leases.eviction_times()) == {one.eviction_seconds for one in leases.values()}


def test_the_longest_eviction_is_that_of_the_leases_in_force() -> None:
    leases = Leases()
    assert leases.longest_eviction() is None

    for number, seconds in enumerate([5.0, 125.0, 35.0]):
        leases.put(make_lease(number, seconds))
    assert leases.longest_eviction() == 125.0

    leases.pop(make_lease(1, 0.0).key)
    assert leases.longest_eviction() == 35.0


def test_a_lease_that_is_not_there_is_removed_as_the_default() -> None:
    leases, other = Leases(), make_lease(1, 5.0)
    leases.put(make_lease(0, 5.0))

    assert leases.pop(other.key) is None
    assert leases.pop(other.key, other) is other
    assert leases.pop(make_lease(0, 5.0).key) == make_lease(0, 5.0)
