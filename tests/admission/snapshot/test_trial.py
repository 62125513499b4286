"""The trial: what it changes, what it undoes, and what it shows while it is suspended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.snapshot.usage_overlay import UsageOverlay
from queues.quota.quota_tree import QuotaNode
from tests.admission.snapshot.small_cluster import GPU, PRESENT, SmallCluster, make_cluster


def overlay_of(node: QuotaNode, used: int, on_n2: int) -> UsageOverlay:
    return UsageOverlay(usage=((node, {GPU: used}),), spots={("", ("n2",)): {"gpu": on_n2}})


def add(cluster: SmallCluster) -> None:
    held = cluster.held("v1")
    cluster.snapshot.trial.add(cluster.queues["b"], held.usage, held.places)


def remove(cluster: SmallCluster) -> None:
    held = cluster.held("v1")
    cluster.snapshot.trial.remove(cluster.queues["a"], held.usage, held.places)


def add_quota(cluster: SmallCluster) -> None:
    cluster.snapshot.trial.add(cluster.queues["b"], {GPU: 3})


def remove_quota(cluster: SmallCluster) -> None:
    cluster.snapshot.trial.remove(cluster.queues["b"], {GPU: 3})


def lay(cluster: SmallCluster) -> None:
    cluster.snapshot.trial.lay(overlay_of(cluster.queues["a"].node, 2, -1))


def reserve(cluster: SmallCluster) -> None:
    held = cluster.held("v1")
    cluster.snapshot.trial.reserve(cluster.queues["b"], held.usage, held.places)


def release(cluster: SmallCluster) -> None:
    held = cluster.held("v1")
    cluster.snapshot.trial.release(cluster.queues["a"], held.usage, held.places)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(add, ([8, 8], [2, 4, 2]), id="usage that is added counts in its queue and on its nodes"),
        pytest.param(remove, ([4, 4], [6, 4, 6]), id="usage that is removed is free in both"),
        pytest.param(add_quota, ([8, 7], [4, 4, 4]), id="usage without places counts in its queue alone"),
        pytest.param(remove_quota, ([8, 1], [4, 4, 4]), id="so does usage without places that is removed"),
        pytest.param(lay, ([10, 4], [4, 5, 4]), id="an overlay counts in both"),
        pytest.param(reserve, ([8, 8], [2, 4, 2]), id="usage is reserved"),
        pytest.param(release, ([4, 4], [6, 4, 6]), id="usage is released"),
    ],
)
def test_a_change_shows_until_it_is_undone_and_not_while_it_is_suspended(
    change: Callable[[SmallCluster], None], want: object
) -> None:
    cluster = make_cluster()
    trial = cluster.snapshot.trial

    change(cluster)
    shown = [cluster.usage()]
    trial.suspend()
    trial.suspend()
    hidden = cluster.usage()
    trial.resume()
    trial.resume()
    shown.append(cluster.usage())
    trial.rollback()

    assert shown == [want, want]
    assert hidden == PRESENT
    assert cluster.usage() == PRESENT


@pytest.mark.parametrize("is_suspended", [False, True])
def test_undoing_from_a_mark_leaves_what_came_before(is_suspended: bool) -> None:
    cluster = make_cluster()
    trial = cluster.snapshot.trial
    add_quota(cluster)
    mark = trial.mark()
    remove(cluster)
    lay(cluster)
    if is_suspended:
        trial.suspend()

    trial.rollback(mark)

    assert (mark, trial.mark()) == (1, 1)
    assert cluster.usage() == ([8, 7], [4, 4, 4])


def test_only_what_is_not_decided_is_open_and_the_decisions_are_counted() -> None:
    cluster = make_cluster()
    trial = cluster.snapshot.trial
    seen = [(trial.is_open, trial.decided)]

    for change in (add_quota, reserve, release, remove_quota):
        change(cluster)
        seen.append((trial.is_open, trial.decided))
    trial.rollback(trial.mark() - 1)
    seen.append((trial.is_open, trial.decided))
    trial.rollback()
    seen.append((trial.is_open, trial.decided))

    assert seen == [(False, 0), (True, 0), (False, 1), (False, 2), (True, 2), (False, 2), (False, 0)]


def test_a_next_cycle_begins_without_decisions() -> None:
    cluster = make_cluster()
    reserve(cluster)
    cluster.snapshot.trial.rollback()

    add_quota(cluster)

    assert cluster.snapshot.trial.is_open
    assert cluster.snapshot.trial.decided == 0


@pytest.mark.parametrize("is_raising", [False, True])
def test_usage_counts_as_free_only_within_the_block(is_raising: bool) -> None:
    cluster = make_cluster()
    trial = cluster.snapshot.trial
    queue, held = cluster.taken("v1")
    other_queue, other = cluster.taken("v2")
    blocks = [
        trial.without([(queue, held), (other_queue, other)]),
        trial.without_usage([(queue, held.usage, held.places), (other_queue, other.usage, other.places)]),
    ]
    add_quota(cluster)

    for block in blocks:
        try:
            with block:
                within = cluster.usage()
                if is_raising:
                    raise InterruptedError
        except InterruptedError:
            pass
        assert within == ([4, 3], [8, 6, 6])
        assert cluster.usage() == ([8, 7], [4, 4, 4])
