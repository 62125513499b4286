"""Usage overlays: sums that hold no zeros, their inverse, and single nodes of it."""

from __future__ import annotations

import pytest

from admission.snapshot.usage_overlay import UsageOverlay, UsageTotal
from queues.profile.capacity_profile import Spot
from tests.admission.snapshot.small_cluster import GPU, PRESENT, make_cluster

N1: Spot = ("", ("n1",))
N3: Spot = ("flavor", ("rack", "n3"))
CPU = GPU._replace(resource="cpu")


def test_usage_that_cancels_out_is_no_part_of_the_total() -> None:
    cluster = make_cluster()
    node, other = (cluster.queues[name].node for name in "ab")
    total = UsageTotal()

    total.add(node, {GPU: 3, CPU: 5}, {N1: {"gpu": 3}, N3: {"gpu": 1, "cpu": 2}}, sign=1)
    total.add(node, {GPU: 1, CPU: 5}, {N1: {"gpu": 3}, N3: {"gpu": 2, "cpu": 2}}, sign=-1)
    total.add(other, {GPU: 2}, {}, sign=1)
    total.add(other, {GPU: 2}, {}, sign=-1)

    assert total.overlay() == UsageOverlay(usage=((node, {GPU: 2}),), spots={N3: {"gpu": -1}})


def test_an_overlay_does_not_change_with_the_total() -> None:
    node = make_cluster().queues["a"].node
    total = UsageTotal()
    total.add(node, {GPU: 3}, {N1: {"gpu": 3}}, sign=1)
    overlay = total.overlay()

    total.add(node, {GPU: 1}, {N1: {"gpu": 1}}, sign=1)

    assert overlay == UsageOverlay(usage=((node, {GPU: 3}),), spots={N1: {"gpu": 3}})


@pytest.mark.parametrize(
    ("has_usage", "spots", "is_empty"),
    [
        pytest.param(False, {}, True, id="no usage and no spot"),
        pytest.param(True, {}, False, id="usage alone"),
        pytest.param(False, {N1: {"gpu": 1}}, False, id="a spot alone"),
    ],
)
def test_an_overlay_is_empty_with(has_usage: bool, spots: dict[Spot, dict[str, int]], is_empty: bool) -> None:
    usage = ((make_cluster().queues["a"].node, {GPU: 1}),) if has_usage else ()

    assert UsageOverlay(usage=usage, spots=spots).is_empty is is_empty


def test_the_inverse_gives_back_all_usage_and_of_the_leaves_those_of_the_hosts_named() -> None:
    node = make_cluster().queues["a"].node
    overlay = UsageOverlay(usage=((node, {GPU: 3, CPU: -1}),), spots={N1: {"gpu": 3}, N3: {"gpu": -2}})
    usage = ((node, {GPU: -3, CPU: 1}),)

    assert overlay.negated() == UsageOverlay(usage=usage, spots={N1: {"gpu": -3}, N3: {"gpu": 2}})
    assert overlay.negated(["n3"]) == UsageOverlay(usage=usage, spots={N3: {"gpu": 2}})
    assert overlay.negated([]) == UsageOverlay(usage=usage)


def test_an_overlay_and_its_inverse_leave_no_trace() -> None:
    cluster = make_cluster()
    overlay = UsageOverlay(usage=((cluster.queues["b"].node, {GPU: 3}),), spots={N1: {"gpu": -2}})

    overlay.put_on(cluster.snapshot.topology_cache)
    assert cluster.usage() == ([8, 7], [6, 4, 4])
    overlay.negated().put_on(cluster.snapshot.topology_cache)
    assert cluster.usage() == PRESENT
