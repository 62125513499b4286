"""The audit: which recorded histories exceed quota, and how much was used and borrowed."""

from __future__ import annotations

import pytest

from admission.simulation.audit import audit
from admission.simulation.records import ObjectRecord
from admission.simulation.waiting import quota_waits
from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource
from tests.admission.simulation.records import cohort, gone, holding, pending, queue

GPU = FlavorResource("a100", "gpu")

KEPT = [
    pytest.param(
        [queue("a", 8), holding("w", "a", 8, version=2)],
        id="the whole nominal quota may be used",
    ),
    pytest.param(
        [queue("a", 4, cohort="c"), queue("b", 4, cohort="c"), holding("w", "a", 8, version=2)],
        id="what a cohort does not use may be borrowed",
    ),
    pytest.param(
        [queue("a", 4, cohort="c"), cohort("c", 4), holding("w", "a", 8, version=2)],
        id="a cohort's own quota may be borrowed",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("w", "a", 8, version=2),
            holding("w", "a", 8, version=3, finished=True),
            holding("x", "a", 8, version=4),
        ],
        id="a finished Workload holds nothing",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("w", "a", 8, version=2),
            pending("w", version=3),
            holding("x", "a", 8, version=4),
        ],
        id="quota that was released may be given again",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("w", "a", 8, version=2),
            gone(holding("w", "a", 8, version=2), at=1),
            holding("x", "a", 8, version=3),
        ],
        id="a deleted Workload holds nothing",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("w", "a", 8, version=2, count=4, reclaimable=2),
            holding("x", "a", 4, version=3),
        ],
        id="pods given back are free",
    ),
    pytest.param(
        [holding("w", "a", 8, version=5), queue("a", 4, version=1), queue("a", 8, version=4)],
        id="the server's order counts, not that of two watches",
    ),
    pytest.param(
        [queue("a", 8), holding("w", "a", 8, version=2), holding("w", "a", 8, version=3)],
        id="a new version of the same Workload takes nothing more",
    ),
]

#      c (0)                   root
#     /     \                 /    \
#  a (4)   b (4)            left    right
EXCEEDED = [
    pytest.param(
        [queue("a", 8), holding("w", "a", 8, version=2), holding("x", "a", 1, version=3)],
        ["ClusterQueue a used 9 gpu of flavor a100, the limit is 8: Workload n/x got quota"],
        id="one more than the nominal quota",
    ),
    pytest.param(
        [
            queue("a", 4, cohort="c"),
            queue("b", 4, cohort="c"),
            holding("w", "a", 6, version=2),
            holding("x", "b", 4, version=3),
        ],
        ["Cohort c used 10 gpu of flavor a100, the limit is 8: Workload n/x got quota"],
        id="more than the whole cohort has",
    ),
    pytest.param(
        [
            queue("a", 4, cohort="c", borrowing=2),
            queue("b", 4, cohort="c"),
            holding("w", "a", 7, version=2),
        ],
        ["ClusterQueue a used 7 gpu of flavor a100, the limit is 6: Workload n/w got quota"],
        id="more than the borrowing limit",
    ),
    pytest.param(
        [
            queue("a", 4, cohort="c"),
            queue("b", 4, cohort="c", lending=1),
            holding("w", "a", 6, version=2),
        ],
        ["Cohort c used 6 gpu of flavor a100, the limit is 5: Workload n/w got quota"],
        id="more than the neighbour lends",
    ),
    pytest.param(
        [
            cohort("left", parent="root", borrowing=0),
            cohort("right", 8, parent="root"),
            queue("a", 4, cohort="left"),
            holding("w", "a", 5, version=2),
        ],
        ["Cohort left used 5 gpu of flavor a100, the limit is 4: Workload n/w got quota"],
        id="more than an inner cohort may borrow",
    ),
    pytest.param(
        [queue("a", 8), holding("w", "a", 1, version=2, flavor="h100")],
        ["ClusterQueue a used 1 gpu of flavor h100, the limit is 0: Workload n/w got quota"],
        id="a flavor that the queue does not have",
    ),
    pytest.param(
        [holding("w", "a", 1, version=2)],
        ["ClusterQueue a used 1 gpu of flavor a100, the limit is 0: Workload n/w got quota"],
        id="a queue that does not exist",
    ),
    pytest.param(
        [queue("a", "no number"), holding("w", "a", 1, version=2)],
        ["ClusterQueue a used 1 gpu of flavor a100, the limit is 0: Workload n/w got quota"],
        id="a quota that cannot be read grants nothing",
    ),
    pytest.param(
        [
            queue("a", 4),
            holding("w", "a", 5, version=2),
            holding("x", "a", 1, version=3),
            gone(holding("w", "a", 5, version=2), at=1),
            holding("y", "a", 4, version=5),
        ],
        [
            "ClusterQueue a used 5 gpu of flavor a100, the limit is 4: Workload n/w got quota",
            "ClusterQueue a used 5 gpu of flavor a100, the limit is 4: Workload n/y got quota",
        ],
        id="each time of excess counts once",
    ),
]


@pytest.mark.parametrize("records", KEPT)
def test_quota_was_kept(records: list[ObjectRecord]) -> None:
    assert audit(records).breaches == ()


@pytest.mark.parametrize(("records", "want"), EXCEEDED)
def test_quota_was_exceeded(records: list[ObjectRecord], want: list[str]) -> None:
    assert [str(breach) for breach in audit(records).exceeded] == want


def test_a_quota_that_was_lowered_is_no_fault_of_an_admission() -> None:
    result = audit([queue("a", 8), holding("w", "a", 8, version=2), queue("a", 4, version=3)])

    assert [str(breach) for breach in result.breaches] == [
        "ClusterQueue a used 8 gpu of flavor a100, the limit is 4: the quota of a was changed"
    ]
    assert result.exceeded == ()


def test_a_ring_of_cohorts_is_read_without_end() -> None:
    ring = [cohort("x", parent="y"), cohort("y", parent="x"), queue("a", 4, cohort="x")]

    assert audit([*ring, holding("w", "a", 4, version=2)]).breaches == ()


def test_use_and_borrowing_are_summed_over_time() -> None:
    result = audit(
        [
            queue("a", 4, cohort="c"),
            queue("b", 4, cohort="c"),
            holding("w", "a", 4, version=2, at=10),
            holding("x", "a", 2, version=3, at=20),
            gone(holding("x", "a", 2, version=3), at=30),
            pending("y", version=4, at=40),
        ]
    )

    usage = result.usage["a", GPU]
    assert usage.borrowed_seconds == 20.0
    assert (usage.peak_used, usage.peak_borrowed) == (6, 2)
    assert result.versions == 6


WAITS = [
    pytest.param(
        [queue("a", 8), pending("w", version=2, at=1), holding("w", "a", 8, version=3, at=4)],
        0.0,
        id="with quota free all the time the queue is not to blame",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("x", "a", 8, version=2, at=0),
            pending("w", version=3, at=1),
            holding("x", "a", 8, version=4, at=10, finished=True),
            holding("w", "a", 8, version=5, at=12),
        ],
        9.0,
        id="the time until quota was free is the queue's",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("x", "a", 8, version=2, at=0),
            pending("w", version=3, at=1),
            holding("x", "a", 8, version=4, at=5, finished=True),
            holding("y", "a", 1, version=5, at=6),
            holding("y", "a", 1, version=6, at=9, finished=True),
            holding("w", "a", 8, version=7, at=9),
        ],
        8.0,
        id="quota that another took again was not free",
    ),
    pytest.param(
        [
            queue("a", 8),
            holding("x", "a", 8, version=2, at=0),
            pending("w", version=3, at=1),
            holding("x", "a", 8, version=4, at=5, finished=True),
            holding("w", "a", 8, version=5, at=5),
            pending("w", version=6, at=7),
            holding("y", "a", 8, version=7, at=7),
            gone(holding("y", "a", 8, version=7), at=9),
            holding("w", "a", 8, version=9, at=9),
        ],
        6.0,
        id="all times of waiting count together",
    ),
]


@pytest.mark.parametrize(("records", "want"), WAITS)
def test_how_long_a_workload_waited_for_quota(records: list[ObjectRecord], want: float) -> None:
    assert quota_waits(records)[WorkloadKey("n", "w")] == pytest.approx(want)


def test_a_workload_that_never_got_quota_has_no_wait_yet() -> None:
    assert quota_waits([queue("a", 8), pending("w", version=2)]) == {}
