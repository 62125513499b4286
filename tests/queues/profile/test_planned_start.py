"""Ranks of promises: ties within one second, and which Workloads may break a promise."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from api.workload import Admission, WorkloadKey
from queues.profile.planned_start import PlannedStart, Rank, tie_behind

UIDS = st.text("0123456789abcdef-", min_size=1, max_size=6)


@given(st.lists(UIDS, min_size=1, max_size=30))
def test_a_later_promise_of_a_second_ranks_behind_however_the_uids_fall(uids: list[str]) -> None:
    last = ""
    for uid in uids:
        behind = tie_behind(last, uid)

        assert last < behind
        # However many came before: it is kept with every promise.
        assert len(behind) <= len(uid) + len("~000000000~")
        last = behind


@given(st.lists(UIDS, unique=True, max_size=30))
def test_uids_in_order_are_their_own_ranks(uids: list[str]) -> None:
    last = ""
    for uid in sorted(uids):
        last = tie_behind(last, uid)

        assert last == uid


@pytest.mark.parametrize("last", ["~", "~x", "~x~a"])
def test_a_foreign_rank_is_passed_all_the_same(last: str) -> None:
    assert tie_behind(last, "a").startswith("~00000000")


@pytest.mark.parametrize(
    ("cluster_queue", "rank", "want_outranked"),
    [
        pytest.param("own", Rank(1, 0, 0, 1.0, "a"), False, id="an older Workload of the queue"),
        pytest.param("other", Rank(1, 0, 0, 1.0, "a"), False, id="an older Workload of another queue"),
        pytest.param("own", Rank(0, 0, 0, 9.0, "a"), False, id="one of the queue that borrows less"),
        pytest.param("other", Rank(0, 0, 0, 9.0, "a"), True, id="one of another queue that borrows less"),
        pytest.param("own", Rank(1, -10, 0, 9.0, "a"), True, id="a higher priority in the queue"),
        pytest.param("other", Rank(1, -10, 0, 9.0, "a"), True, id="a higher priority in another queue"),
        pytest.param("own", Rank(1, 0, -1, 9.0, "a"), True, id="a lower level in the queue"),
        pytest.param("own", Rank(2, -10, 0, 9.0, "a"), False, id="a higher priority that borrows more"),
    ],
)
def test_only_these_workloads_may_break_a_promise(
    cluster_queue: str, rank: Rank, want_outranked: bool
) -> None:
    promise = PlannedStart(
        key=WorkloadKey("team", "promised"),
        uid="p",
        cluster_queue="own",
        rank=Rank(1, 0, 0, 5.0, "p"),
        start_at=100.0,
        seconds=50.0,
        admission=Admission(cluster_queue="own", pod_sets=()),
        made_at=0.0,
        first_start_at=100.0,
    )

    assert promise.is_outranked_by(rank, cluster_queue) is want_outranked
