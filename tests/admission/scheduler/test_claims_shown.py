"""Claims that some heads ignore: what the snapshot shows with each set of them, and after any other set."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from admission.scheduler.hold_exceptions import HoldExceptions
from admission.snapshot.capacity_holds import HoldClaim
from tests.admission.nomination.test_entry_ordering import entry
from tests.admission.snapshot.small_cluster import GPU, PRESENT, SmallCluster, key_of, make_cluster


def make_claims(cluster: SmallCluster) -> tuple[HoldClaim, HoldClaim]:
    """Return a claim of queue a with victims in both queues, and one of queue b with the second of them."""
    a, b = cluster.queues["a"], cluster.queues["b"]
    v1, v2 = cluster.taken("v1"), cluster.taken("v2")
    return (
        HoldClaim(queue=a, usage={GPU: 6}, places=cluster.held("v1").places, victims=(v1, v2)),
        HoldClaim(queue=b, usage={GPU: 3}, places=(), victims=(v2,)),
    )


# Which claims are applied, what each queue uses, what each node has free, and which Workloads are gone.
SHOWN: dict[str, tuple[tuple[int, ...], object, set[str]]] = {
    "no claim": ((), PRESENT, set()),
    "the first claim": ((0,), ([10, 0], [6, 6, 4]), {"v1", "v2"}),
    "the second claim": ((1,), ([8, 3], [6, 6, 4]), {"v2"}),
    "both claims": ((0, 1), ([10, 3], [6, 6, 4]), {"v1", "v2"}),
}


@pytest.mark.parametrize(
    ("before", "now"), [pytest.param(*two, id=" and then ".join(two)) for two in product(SHOWN, repeat=2)]
)
def test_the_snapshot_shows_what_is_applied_now_whatever_was_before(before: str, now: str) -> None:
    cluster = make_cluster()
    claims = make_claims(cluster)
    exceptions = HoldExceptions(snapshot=cluster.snapshot, claims=claims)

    for shown in (before, now):
        exceptions.show(tuple(claims[index] for index in SHOWN[shown][0]))

    indices, usage, gone = SHOWN[now]
    assert cluster.usage() == usage
    assert cluster.snapshot.evictions.gone == set(map(key_of, gone))
    assert list(exceptions.expected()) == [
        (one.queue, one.usage, one.places) for one in (claims[index] for index in indices)
    ]


def test_a_victim_that_was_evicted_in_this_cycle_stays_gone_without_the_claim() -> None:
    cluster = make_cluster()
    cluster.snapshot.evictions.evict(*cluster.taken("v1"))
    exceptions = HoldExceptions(snapshot=cluster.snapshot, claims=make_claims(cluster))

    exceptions.show(exceptions.claims)
    exceptions.show(())

    assert cluster.snapshot.evictions.gone == {key_of("v1")}
    assert cluster.usage() == ([4, 4], [6, 4, 6])


@pytest.mark.parametrize(
    ("queue", "fields", "want"),
    [
        pytest.param("a", {}, [1], id="those of other queues"),
        pytest.param("b", {}, [0], id="those of other queues, whichever its own is"),
        pytest.param("a", {"is_preemptor": True}, [], id="none where others were evicted for it"),
    ],
)
def test_a_head_respects(queue: str, fields: dict[str, Any], want: list[int]) -> None:
    cluster = make_cluster()
    claims = make_claims(cluster)
    head = entry(cluster.snapshot, queue, **fields)

    exceptions = HoldExceptions(snapshot=cluster.snapshot, claims=claims)

    assert exceptions.claims_against(head) == tuple(claims[index] for index in want)
    assert HoldExceptions(snapshot=cluster.snapshot).claims_against(head) == ()
