"""The least-attained-service index: which members a level may preempt, and when each is examined next."""

from __future__ import annotations

import pytest

from admission.snapshot.attained_service import AttainedService
from tests.admission.snapshot.small_cluster import key_of


def make_index() -> AttainedService[str]:
    index: AttainedService[str] = AttainedService()
    for name, level, loss in [("w1", 1, 5.0), ("w2", 3, 9.0), ("w3", 3, 2.0), ("w4", 2, 7.0)]:
        index.enter(key_of(name), name, level=level, rank=(loss, 0.0, name))
    return index


@pytest.mark.parametrize(
    ("level", "want"),
    [
        pytest.param(0, ["w3", "w2", "w4", "w1"], id="the highest level first, within it the least loss"),
        pytest.param(1, ["w3", "w2", "w4"], id="none of its own level"),
        pytest.param(3, [], id="none of the highest level"),
    ],
)
def test_the_members_that_a_level_may_preempt(level: int, want: list[str]) -> None:
    index = make_index()

    assert list(index.above(level)) == want
    assert list(index.above(level)) == want


def test_a_member_that_reaches_another_level_is_only_there_with_its_loss() -> None:
    index = make_index()
    list(index.above(0))

    index.enter(key_of("w3"), "w3 again", level=2, rank=(8.0, 0.0, "w3"))

    assert list(index.above(0)) == ["w2", "w4", "w3 again", "w1"]
    assert index.level_and_loss(key_of("w3")) == (2, 8.0)


def test_a_member_that_is_removed_may_not_be_preempted_and_has_no_level() -> None:
    index = make_index()
    list(index.above(0))

    index.remove(key_of("w3"))
    index.remove(key_of("w3"))

    assert list(index.above(0)) == ["w2", "w4", "w1"]
    with pytest.raises(KeyError):
        index.level_and_loss(key_of("w3"))


def test_a_member_is_due_at_its_instant_and_once() -> None:
    index = make_index()
    assert index.next_at is None
    for name, at, since in [("w2", 40.0, 4.0), ("w1", 5.0, 1.0), ("w3", 41.0, 3.0)]:
        index.set_due(key_of(name), at, since=since)

    assert index.next_at == 5.0
    assert list(index.due(now=4.9)) == []
    assert list(index.due(now=40.0)) == [(key_of("w1"), 1.0), (key_of("w2"), 4.0)]
    assert list(index.due(now=40.0)) == []
    assert index.next_at == 41.0
