"""The order in which nominated heads are served, without and with fair sharing."""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.assignment import Assignment, Mode
from admission.nomination.entry_ordering import classical_order, fair_order
from admission.nomination.nominate import Entry
from admission.snapshot.snapshot import Snapshot
from queues.pending.entries import FlavorScan, Pending
from queues.quota.resources import FlavorResource
from tests.builders import World, make_cluster_queue, make_cohort, make_workload

GPU = FlavorResource("default", "gpu")
SCAN = FlavorScan(tried=(), generation=0, cycle=0, shape=b"")


def make_snapshot() -> Snapshot:
    """Return a tree of a cohort with the queues a and b and of the queue c, and the queue `alone`."""
    world = World().put(
        make_cohort("root", quota=12),
        make_cohort("below", parent="root"),
        make_cluster_queue("a", quota=4, cohort="below"),
        make_cluster_queue("b", quota=4, cohort="below"),
        make_cluster_queue("c", quota=4, cohort="root"),
        make_cluster_queue("alone", quota=4),
    )
    return world.engine._cache.snapshot()


def entry(
    snapshot: Snapshot,
    queue: str,
    *,
    amount: int = 1,
    borrowing: int = 0,
    is_preemptor: bool = False,
    at: float = 5.0,
    name: str = "",
    **fields: Any,
) -> Entry:
    workload = make_workload(name or queue, queue=queue, **fields)
    state = snapshot.queues[queue]
    if is_preemptor:
        state.pending.precedence.prefer_holder(workload)
    return Entry(
        queue=state,
        pending=Pending(workload=workload, requests=(), shape=b"", queued_at=at),
        assignment=Assignment(
            pod_sets=(), usage={GPU: amount}, borrowing=borrowing, mode=Mode.FIT, scan=SCAN
        ),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"is_preemptor": True, "borrowing": 2}, {"borrowing": 0}, id="a preemptor"),
        pytest.param({"borrowing": 0}, {"borrowing": 1, "priority": 9}, id="one that borrows less"),
        pytest.param({"priority": 9, "at": 9.0}, {"at": 1.0}, id="one of higher priority"),
        pytest.param({"at": 1.0, "name": "z"}, {"at": 2.0, "name": "y"}, id="the older"),
        pytest.param({"name": "y"}, {"name": "z"}, id="the one of the lower uid"),
    ],
)
def test_without_fair_sharing_the_first_is(first: dict[str, Any], second: dict[str, Any]) -> None:
    snapshot = make_snapshot()
    ahead, behind = entry(snapshot, "b", **first), entry(snapshot, "a", **second)

    assert list(classical_order([behind, ahead])) == [ahead, behind]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"is_preemptor": True, "amount": 8}, {"amount": 1}, id="a preemptor"),
        pytest.param({"amount": 4}, {"amount": 5, "priority": 9}, id="one within its nominal quota"),
        pytest.param({"amount": 6}, {"amount": 7, "priority": 9}, id="one of the smaller share"),
        pytest.param({"amount": 6, "priority": 9, "at": 9.0}, {"amount": 6, "at": 1.0}, id="higher priority"),
        pytest.param({"at": 1.0, "name": "z"}, {"at": 2.0, "name": "y"}, id="the older"),
        pytest.param({"name": "y"}, {"name": "z"}, id="the one of the lower uid"),
    ],
)
def test_with_fair_sharing_the_first_of_one_cohort_is(first: dict[str, Any], second: dict[str, Any]) -> None:
    snapshot = make_snapshot()
    ahead, behind = entry(snapshot, "b", **first), entry(snapshot, "a", **second)

    assert list(fair_order(snapshot, [behind, ahead])) == [ahead, behind]
    assert snapshot.queues["a"].node.cell(GPU).usage == 0


def test_after_a_head_was_served_the_others_of_its_cohort_are_judged_again() -> None:
    snapshot = make_snapshot()
    small, large, other = (
        entry(snapshot, queue, amount=amount) for queue, amount in (("a", 5), ("b", 6), ("c", 6))
    )
    served = []

    for one in fair_order(snapshot, [other, large, small]):
        served.append(one)
        snapshot.trial.reserve(one.queue, one.assignment.usage)

    # At first the cohort of a and b borrows nothing with either of them. Once a uses 5 of its 8, it would
    # borrow 3 with b, and c borrows 2.
    assert served == [small, other, large]


def test_trees_come_in_the_order_of_their_names_with_cohorts_first() -> None:
    snapshot = make_snapshot()
    entries = [entry(snapshot, name) for name in ("alone", "c", "a")]

    assert [one.queue.name for one in fair_order(snapshot, entries)] == ["a", "c", "alone"]
