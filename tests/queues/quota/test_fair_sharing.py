"""The dominant resource share. Rules of KEP 1714 and Kueue's documentation of fair sharing."""

from __future__ import annotations

import pytest

from api.queueing import ResourceGroup
from queues.quota.fair_sharing import MAX_SHARE, dominant_resource_share
from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.resources import FlavorResource
from tests.builders import CPU, GPU, make_cluster_queue, make_cohort, make_group


def make_tree(weight_milli: int = 1000) -> CohortHierarchy:
    """Queues `borrower` (4 GPUs, 4 CPUs) and `lender` (12 GPUs, 36 CPUs) in one cohort."""

    def groups(gpus: int, cpus: int) -> tuple[ResourceGroup, ...]:
        return (make_group(default=gpus), make_group(default=cpus, resource="cpu"))

    return build_hierarchy(
        [
            make_cluster_queue(
                "borrower", cohort="team", groups=groups(4, 4), fair_weight_milli=weight_milli
            ),
            make_cluster_queue("lender", cohort="team", groups=groups(12, 36)),
        ],
        [],
    )


def test_use_within_the_own_quota_is_no_share() -> None:
    borrower = make_tree().queues["borrower"]
    borrower.add({GPU: 4})

    share = dominant_resource_share(borrower)

    assert share.order == (0, 0)
    assert not share.is_borrowing


@pytest.mark.parametrize(
    ("usage", "want"),
    [
        pytest.param({GPU: 8}, 250, id="what is borrowed counts by what could be lent, in thousandths"),
        pytest.param({GPU: 6, CPU: 24_000}, 500, id="the resource with the largest part of its kind counts"),
    ],
)
def test_the_share_is_that_of_the_dominant_resource(usage: dict[FlavorResource, int], want: float) -> None:
    borrower = make_tree().queues["borrower"]
    borrower.add(usage)

    assert dominant_resource_share(borrower).order[0] == want


def test_a_greater_weight_makes_the_same_use_count_less() -> None:
    borrower = make_tree(weight_milli=2000).queues["borrower"]
    borrower.add({GPU: 8})

    assert dominant_resource_share(borrower).rounded() == 125


def test_weight_0_that_borrows_has_an_infinite_share_and_two_such_compare_without_it() -> None:
    tree = make_tree(weight_milli=0)
    borrower = tree.queues["borrower"]
    borrower.add({GPU: 5})
    little = dominant_resource_share(borrower)
    borrower.add({GPU: 1})
    more = dominant_resource_share(borrower)

    assert little.is_infinite
    assert little.rounded() == MAX_SHARE
    assert little.order < more.order


def test_weight_0_within_its_quota_has_no_share() -> None:
    assert dominant_resource_share(make_tree(weight_milli=0).queues["borrower"]).order == (0, 0)


def test_a_root_has_no_share() -> None:
    tree = make_tree()
    tree.queues["borrower"].add({GPU: 99})

    assert dominant_resource_share(tree.cohorts["team"]).order == (0, 0)


def test_what_no_queue_declares_is_no_borrowing() -> None:
    borrower = make_tree().queues["borrower"]
    borrower.add({FlavorResource("gone", "gpu"): 3})

    assert not dominant_resource_share(borrower).is_borrowing


def test_a_cohort_has_the_share_of_what_its_children_use_beyond_it() -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("a", cohort="left", quota=2),
            make_cluster_queue("b", cohort="right", quota=6),
        ],
        [make_cohort("left", parent="root"), make_cohort("right", parent="root")],
    )
    tree.queues["a"].add({GPU: 4})

    assert dominant_resource_share(tree.cohorts["left"]).order == (250, 0)
    assert dominant_resource_share(tree.queues["a"]).is_borrowing_any([GPU])


def test_a_cohorts_weight_makes_its_use_count_less() -> None:
    tree = build_hierarchy(
        [make_cluster_queue("a", cohort="left", quota=2), make_cluster_queue("b", cohort="root", quota=6)],
        [make_cohort("left", parent="root", fair_weight_milli=2000)],
    )
    tree.queues["a"].add({GPU: 4})

    assert dominant_resource_share(tree.cohorts["left"]).order[0] == 125


def test_what_could_be_lent_counts_from_anywhere_in_the_tree_and_the_share_is_rounded_up() -> None:
    """Cohort left could have 8 GPUs of flavor default, and all 6 of flavor other that only right declares."""
    tree = build_hierarchy(
        [
            make_cluster_queue("a", cohort="left", quota=2),
            make_cluster_queue("b", cohort="right", groups=(make_group(default=6, other=6),)),
        ],
        [make_cohort("left", parent="root"), make_cohort("right", parent="root")],
    )
    tree.queues["a"].add({GPU: 4})

    share = dominant_resource_share(tree.queues["a"])

    assert share.order[0] == pytest.approx(2000 / 14)
    assert share.rounded() == 143


def test_what_is_borrowed_of_a_resource_is_summed_over_its_flavors() -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("a", cohort="team", groups=(make_group(default=1, other=1),)),
            make_cluster_queue("b", cohort="team", groups=(make_group(default=4, other=4),)),
        ],
        [],
    )
    tree.queues["a"].add({GPU: 3, FlavorResource("other", "gpu"): 2})

    assert dominant_resource_share(tree.queues["a"]).order == (300, 0)


@pytest.mark.parametrize(
    ("quota", "want"),
    [
        pytest.param(0, (0, 0), id="nothing could be lent, the share is 0"),
        pytest.param(1, (2000, 0), id="one could be lent, the share counts by it"),
    ],
)
def test_a_queue_that_uses_more_than_all_could_lend_is_borrowing_and_where(
    quota: int, want: tuple[float, float]
) -> None:
    tree = build_hierarchy(
        [
            make_cluster_queue("a", cohort="team", quota=0),
            make_cluster_queue("b", cohort="team", quota=quota),
        ],
        [],
    )
    tree.queues["a"].add({GPU: 2})

    share = dominant_resource_share(tree.queues["a"])

    assert share.is_borrowing
    assert share.order == want


def test_a_look_at_another_quota_has_another_share() -> None:
    tree = make_tree()
    borrower = tree.queues["borrower"]
    borrower.add({GPU: 8})
    assert dominant_resource_share(borrower).order[0] == 250

    tree.queues["lender"].shift(GPU, 16)
    assert dominant_resource_share(borrower).order[0] == 125

    tree.queues["lender"].shift(GPU, -16)
    assert dominant_resource_share(borrower).order[0] == 250
