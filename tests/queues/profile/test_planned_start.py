"""Ranks of promises: who comes behind whom of those that were created in one second."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from queues.profile.planned_start import tie_behind

UIDS = st.text("0123456789abcdef-", min_size=1, max_size=6)


@given(st.lists(UIDS, min_size=1, max_size=30))
def test_who_comes_later_in_a_second_ranks_behind_however_the_uids_fall(uids: list[str]) -> None:
    last = ""
    for uid in uids:
        behind = tie_behind(last, uid)

        assert last < behind
        # However many came before: it is kept with every promise.
        assert len(behind) <= len(uid) + len("~000000000~")
        last = behind


@given(st.lists(UIDS, unique=True, max_size=30))
def test_uids_in_order_stand_for_themselves(uids: list[str]) -> None:
    last = ""
    for uid in sorted(uids):
        last = tie_behind(last, uid)

        assert last == uid


@pytest.mark.parametrize("last", ["~", "~x", "~x~a"])
def test_a_rank_that_nobody_here_wrote_is_passed_all_the_same(last: str) -> None:
    assert tie_behind(last, "a").startswith("~00000000")
