"""The quota tree: availability, borrowing, lending, potential, borrow height.

Rules are those of Kueue's documentation of ClusterQueues and Cohorts.
"""

from __future__ import annotations

import pytest

from api.queueing import ResourceQuota
from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource
from tests.builders import GPU, make_cluster_queue, make_cohort, make_quota

OTHER = FlavorResource("other", "gpu")


def make_pair(lender: ResourceQuota, borrower: ResourceQuota) -> CohortHierarchy:
    """Two queues in one cohort that has no object of its own."""
    return build_hierarchy(
        [
            make_cluster_queue("lender", cohort="team", quota=lender),
            make_cluster_queue("borrower", cohort="team", quota=borrower),
        ],
        [],
    )


# root (quota 2)
# ├── left              nominal 0
# │   ├── a  nominal 10
# │   └── b  nominal 4
# └── right             nominal 6
#     └── c  nominal 3
def make_deep() -> CohortHierarchy:
    return build_hierarchy(
        [
            make_cluster_queue("a", cohort="left", quota=10),
            make_cluster_queue("b", cohort="left", quota=4),
            make_cluster_queue("c", cohort="right", quota=3),
        ],
        [
            make_cohort("root", quota=2),
            make_cohort("left", parent="root"),
            make_cohort("right", parent="root", quota=6),
        ],
    )


@pytest.mark.parametrize(
    ("lender", "borrower", "want_available"),
    [
        pytest.param(make_quota(10), make_quota(2), 12, id="a queue may borrow all that others leave unused"),
        pytest.param(
            make_quota(10), make_quota(2, borrowing=3), 5, id="a borrowing limit bounds what is borrowed"
        ),
        pytest.param(make_quota(10), make_quota(2, borrowing=0), 2, id="a borrowing limit of 0 forbids it"),
        pytest.param(
            make_quota(10, lending=4), make_quota(2), 6, id="a lending limit bounds what others may take"
        ),
        pytest.param(make_quota(10, lending=0), make_quota(2), 2, id="a lending limit of 0 lends nothing"),
        pytest.param(
            make_quota(10, lending=20),
            make_quota(2),
            12,
            id="a lending limit above the quota lends the quota",
        ),
    ],
)
def test_a_queue_may_use_its_quota_and_what_it_can_borrow(
    lender: ResourceQuota, borrower: ResourceQuota, want_available: int
) -> None:
    tree = make_pair(lender, borrower)

    assert tree.queues["borrower"].available(GPU) == want_available
    assert tree.queues["borrower"].cell(GPU).potential == want_available


@pytest.mark.parametrize(
    ("used", "want"),
    [
        pytest.param(0, 12, id="unused, its quota and the limit"),
        pytest.param(3, 9, id="used below what it keeps, as much less"),
        pytest.param(11, 1, id="borrowing, what the limit leaves"),
    ],
)
def test_a_queue_that_lends_and_borrows_within_limits_may_still_use(used: int, want: int) -> None:
    tree = make_pair(make_quota(20), make_quota(10, lending=4, borrowing=2))

    tree.queues["borrower"].add({GPU: used})

    assert tree.queues["borrower"].available(GPU) == want


def test_a_cohorts_borrowing_limit_counts_from_what_its_queues_bring() -> None:
    tree = build_hierarchy(
        [make_cluster_queue("a", cohort="left", quota=4), make_cluster_queue("b", cohort="root", quota=20)],
        [make_cohort("root"), make_cohort("left", parent="root", quota=make_quota(0, borrowing=3))],
    )

    assert tree.queues["a"].available(GPU) == 7
    assert tree.queues["a"].cell(GPU).potential == 7


def test_use_of_the_lender_takes_from_what_can_be_borrowed() -> None:
    tree = make_pair(make_quota(10), make_quota(2))

    tree.queues["lender"].add({GPU: 7})

    assert tree.queues["borrower"].available(GPU) == 5


def test_the_part_that_is_not_lent_is_used_first_and_costs_the_cohort_nothing() -> None:
    tree = make_pair(make_quota(10, lending=4), make_quota(2))

    tree.queues["lender"].add({GPU: 6})

    assert tree.cohorts["team"].cell(GPU).usage == 0
    assert tree.queues["borrower"].available(GPU) == 6


def test_availability_is_negative_once_usage_exceeds_a_lowered_quota() -> None:
    node = build_hierarchy([make_cluster_queue("queue", quota=4)], []).queues["queue"]

    node.add({GPU: 6})

    assert node.available(GPU) == -2
    assert not node.fits({GPU: 1})
    assert node.fits({GPU: 0})


def test_quota_of_a_cohort_is_for_all_below_it() -> None:
    tree = make_deep()

    assert tree.queues["b"].available(GPU) == 25
    assert tree.queues["c"].cell(GPU).potential == 25


def test_a_quota_that_is_not_declared_has_no_room_but_counts_what_is_used() -> None:
    node = make_deep().queues["a"]

    assert node.available(OTHER) == 0
    node.add({OTHER: 3})
    assert node.available(OTHER) == -3


def test_what_a_queue_uses_without_declaring_it_is_borrowed_from_its_cohort() -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("lender", cohort="team", quota=5),
            make_cluster_queue("without", cohort="team", groups=()),
        ],
        [],
    )

    tree.queues["without"].add({GPU: 2})

    assert tree.queues["lender"].available(GPU) == 3


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param(12, True, id="all that is available fits"),
        pytest.param(13, False, id="one more does not"),
    ],
)
def test_a_request_fits_into_what_is_available(amount: int, want: bool) -> None:
    tree = make_pair(make_quota(20), make_quota(10, lending=4, borrowing=2))

    assert tree.queues["borrower"].fits({GPU: amount}) is want


@pytest.mark.parametrize(
    ("lent", "want"),
    [pytest.param(5, True, id="its cohort has it"), pytest.param(4, False, id="it has less")],
)
def test_a_request_for_quota_that_only_its_cohort_has_fits_where(lent: int, want: bool) -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("lender", cohort="team", quota=lent),
            make_cluster_queue("without", cohort="team", groups=()),
        ],
        [],
    )

    assert tree.queues["without"].fits({GPU: 5}) is want
    assert tree.queues["without"].cell(GPU).borrow_height(lent) == (1, False)


def test_a_request_that_no_queue_or_cohort_declares_reaches_up_to_the_root() -> None:
    assert make_deep().queues["a"].cell(OTHER).borrow_height(1) == (2, False)


@pytest.mark.parametrize(
    ("removed", "want"),
    [
        pytest.param([9], {"lender": 0, "team": 0}, id="all of it"),
        pytest.param([2], {"lender": 7, "team": 3}, id="what was borrowed first"),
        pytest.param(
            [5, 1], {"lender": 3, "team": 0}, id="then what is not lent, of which the cohort knows nothing"
        ),
        pytest.param([6], {"lender": 3, "team": 0}, id="both at once"),
    ],
)
def test_what_is_released_is_taken_from(removed: list[int], want: dict[str, int]) -> None:
    tree = make_pair(make_quota(10, lending=6), make_quota(2))
    lender, team = tree.queues["lender"], tree.cohorts["team"]
    lender.add({GPU: 9})
    assert team.cell(GPU).usage == 5

    for amount in removed:
        lender.remove({GPU: amount})

    assert {"lender": lender.cell(GPU).usage, "team": team.cell(GPU).usage} == want


def test_what_is_released_without_being_declared_is_no_longer_used() -> None:
    node = make_deep().queues["a"]
    node.add({OTHER: 3})

    node.remove({OTHER: 2})

    assert node.cell(OTHER).usage == 1
    assert node.root.cell(OTHER).usage == 1


def test_a_change_charges_what_is_positive_and_releases_what_is_negative() -> None:
    tree = make_pair(make_quota(10, lending=6), make_quota(2))
    lender, team = tree.queues["lender"], tree.cohorts["team"]
    lender.add({GPU: 5, OTHER: 1})

    lender.change({GPU: 2, OTHER: -1})
    assert (lender.cell(GPU).usage, lender.cell(OTHER).usage) == (7, 0)
    assert (team.cell(GPU).usage, team.cell(OTHER).usage) == (3, 0)

    lender.change({GPU: -2, OTHER: 1})
    assert (lender.cell(GPU).usage, lender.cell(OTHER).usage) == (5, 1)
    assert (team.cell(GPU).usage, team.cell(OTHER).usage) == (1, 1)


def test_use_of_a_quota_that_is_not_declared_is_beyond_the_nominal_quota() -> None:
    node = make_deep().queues["a"]
    assert node.is_within_nominal([GPU, OTHER])

    node.add({OTHER: 1})

    assert node.is_within_nominal([GPU])
    assert not node.is_within_nominal([GPU, OTHER])


def test_the_part_that_is_not_lent_is_used_up_before_the_cohort_is_charged() -> None:
    tree = make_pair(make_quota(10, lending=4), make_quota(2))

    tree.queues["lender"].add({GPU: 4})
    tree.queues["lender"].add({GPU: 3})

    assert tree.cohorts["team"].cell(GPU).usage == 1


def test_another_quota_changes_what_each_node_may_use_and_keeps_what_is_used() -> None:
    tree = make_deep()
    tree.queues["a"].add({GPU: 12})
    tree.queues["c"].add({GPU: 1})

    tree.queues["b"].shift(GPU, 5)

    assert tree.queues["a"].cell(GPU).usage == 12
    assert tree.cohorts["left"].cell(GPU).usage == 12
    assert tree.cohorts["root"].cell(GPU).usage == 13
    assert {name: node.available(GPU) for name, node in tree.queues.items()} == {"a": 17, "b": 17, "c": 17}
    assert {name: node.cell(GPU).potential for name, node in tree.queues.items()} == dict.fromkeys("abc", 30)
    assert tree.cohorts["left"].cell(GPU).potential == 30


def test_another_quota_keeps_what_is_used_without_being_declared() -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("idle", cohort="team", groups=()),
            make_cluster_queue("lender", cohort="team", quota=5),
            make_cluster_queue("without", cohort="team", groups=()),
        ],
        [],
    )
    tree.queues["without"].add({GPU: 2})

    tree.queues["lender"].shift(GPU, 1)

    assert tree.queues["without"].cell(GPU).usage == 2
    assert tree.cohorts["team"].cell(GPU).usage == 2
    assert tree.queues["lender"].available(GPU) == 4
    assert tree.queues["without"].cell(GPU).potential == 6


@pytest.mark.parametrize(
    ("used", "want"),
    [
        pytest.param(9, True, id="its own quota and its queue's are used up"),
        pytest.param(10, False, id="one more is borrowed"),
    ],
)
def test_a_cohort_is_within_its_quota_while(used: int, want: bool) -> None:
    tree = make_deep()

    tree.queues["c"].add({GPU: used})

    assert tree.cohorts["right"].is_within_nominal([GPU]) is want


@pytest.mark.parametrize(
    ("used", "amount", "want"),
    [
        pytest.param({}, 4, (0, True), id="within its own quota a queue is at height 0"),
        pytest.param({}, 14, (1, True), id="what its cohort covers is at the cohort's height"),
        pytest.param({}, 15, (2, False), id="what only the root covers is at the root's height"),
        pytest.param({"a": 10}, 5, (2, False), id="use by a sibling pushes the borrower further up"),
        pytest.param({"c": 25}, 4, (0, True), id="use elsewhere does not matter within the own quota"),
        pytest.param({}, 99, (2, False), id="what no node covers is at the root's height"),
    ],
)
def test_the_borrow_height_is_that_of_the_smallest_subtree_that_covers_a_request(
    used: dict[str, int], amount: int, want: tuple[int, bool]
) -> None:
    tree = make_deep()
    for name, value in used.items():
        tree.queues[name].add({GPU: value})

    assert tree.queues["b"].cell(GPU).borrow_height(amount) == want


# top (quota 20)
# └── middle            nominal 8
#     └── low           nominal 6, lends 2
#         └── a  nominal 6, lends 2
@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param(6, (0, True), id="the queue itself"),
        pytest.param(12, (1, True), id="its cohort, beyond what the queue keeps"),
        pytest.param(16, (2, True), id="the next one, beyond what both keep"),
        pytest.param(20, (2, True), id="to the last that it has"),
        pytest.param(21, (3, False), id="and then the root"),
    ],
)
def test_what_is_kept_below_need_not_be_covered_above(amount: int, want: tuple[int, bool]) -> None:
    tree = build_hierarchy(
        [make_cluster_queue("a", cohort="low", quota=make_quota(6, lending=2))],
        [
            make_cohort("top", quota=20),
            make_cohort("middle", parent="top", quota=8),
            make_cohort("low", parent="middle", quota=make_quota(6, lending=2)),
        ],
    )

    assert tree.queues["a"].cell(GPU).borrow_height(amount) == want


def test_a_cohort_is_one_higher_than_its_highest_child() -> None:
    queues = [make_cluster_queue("a", cohort="left", quota=1), make_cluster_queue("b", cohort="top", quota=1)]

    tree = build_hierarchy(queues, [make_cohort("left", parent="top")])

    assert (tree.cohorts["left"].height, tree.cohorts["top"].height) == (1, 2)


def test_a_queue_without_cohort_is_always_at_height_0() -> None:
    node = build_hierarchy([make_cluster_queue("queue", quota=4)], []).queues["queue"]

    assert node.cell(GPU).borrow_height(99) == (0, False)


def test_a_path_is_written_from_the_root_as_in_kueues_messages() -> None:
    assert make_deep().queues["a"].path() == "/root/left/a"


def names_of(node: QuotaNode) -> list[str]:
    return [queue.name for queue in node.queues()]


def test_a_cohort_that_is_only_named_exists_without_quota() -> None:
    tree = build_hierarchy(
        [make_cluster_queue("queue", cohort="middle", quota=1)], [make_cohort("middle", parent="top")]
    )

    assert tree.queues["queue"].root is tree.cohorts["top"]
    assert names_of(tree.cohorts["top"]) == ["queue"]
    assert tree.cohorts["top"].cell(GPU).nominal == 0


def test_cohorts_in_a_cycle_are_named_and_leave_their_queues_alone() -> None:
    tree = build_hierarchy(
        [make_cluster_queue("inside", cohort="c", quota=1), make_cluster_queue("outside", quota=1)],
        [make_cohort("a", parent="b"), make_cohort("b", parent="a"), make_cohort("c", parent="a")],
    )

    assert tree.queue_cycles == {"inside": "a → b → a"}
    assert set(tree.cohort_cycles) == {"a", "b", "c"}
    assert tree.queues["inside"].parent is None
    assert tree.queues["outside"].available(GPU) == 1


def test_the_order_of_the_specs_does_not_matter() -> None:
    queues = [make_cluster_queue(name, cohort="team", quota=1) for name in "cab"]

    tree = build_hierarchy(queues, [])

    assert names_of(tree.cohorts["team"]) == ["a", "b", "c"]
