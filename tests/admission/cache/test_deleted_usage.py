"""What deleted Workloads used: sums by day that are bounded, and replaced by those of the store."""

from __future__ import annotations

from admission.cache.deleted_usage import MOST_DAYS, MOST_ROWS, DeletedUsage
from queues.reservations.usage_rows import UsageKey, UsageRow


def key(day: int, user: str = "ada") -> UsageKey:
    return UsageKey(day, "queue", "team", user)


def used(seconds: float) -> UsageRow:
    return UsageRow(workloads=1, used=seconds)


def summed(*rows: tuple[UsageKey, UsageRow], today: int) -> DeletedUsage:
    """Return the sums after these Workloads were deleted one by one."""
    usage = DeletedUsage()
    for one, row in rows:
        usage.add({one: row}, today=today)
    return usage


def test_workloads_of_the_same_day_and_user_share_a_row() -> None:
    usage = summed((key(7), used(10)), (key(7), used(5)), (key(7, "bob"), used(1)), today=7)

    assert usage.rows == {key(7): UsageRow(workloads=2, used=15), key(7, "bob"): used(1)}


def test_days_that_are_too_old_are_forgotten_as_time_goes_on() -> None:
    usage = summed((key(7), used(1)), (key(8), used(1)), today=8)

    usage.add({key(8 + MOST_DAYS): used(1)}, today=8 + MOST_DAYS)

    assert sorted(one.day for one in usage.rows) == [8, 8 + MOST_DAYS]


def test_the_oldest_day_goes_where_there_are_too_many_rows() -> None:
    usage = summed((key(6), used(1)), today=7)

    usage.add({key(7, f"user-{number}"): used(1) for number in range(MOST_ROWS)}, today=7)

    assert {one.day for one in usage.rows} == {7}


def test_of_one_day_with_too_many_rows_what_used_most_stays() -> None:
    usage = summed((key(7, "most"), used(9)), today=7)

    usage.add({key(7, f"user-{number}"): used(1) for number in range(MOST_ROWS)}, today=7)

    assert usage.rows[key(7, "most")] == used(9)
    assert 0 < len(usage.rows) < MOST_ROWS


def test_stored_sums_replace_those_of_a_replica_that_begins_to_lead() -> None:
    """Its own Workloads may be in both, and nothing is counted twice."""
    usage = summed((key(7), used(1)), (key(8), used(2)), today=8)

    usage.adopt({key(7): used(10)}, is_whole=True)

    assert usage.rows == {key(7): used(10), key(8): used(2)}


def test_a_leader_that_reads_the_store_again_keeps_its_own_sums() -> None:
    usage = summed((key(7), used(1)), today=8)

    usage.adopt({key(7): used(10), key(6): used(3)}, is_whole=False)

    assert usage.rows == {key(7): used(1), key(6): used(3)}
