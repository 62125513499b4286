"""The digest of a quota tree: what changes it and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.tree_digest import tree_digest
from tests.builders import GPU, make_cluster_queue, make_cohort, make_quota


def make_tree(**changed: Any) -> CohortHierarchy:
    """Return a cohort of two ClusterQueues; `changed` are fields of the first one."""
    fields = {"cohort": "team", "quota": make_quota(4, borrowing=2)}
    return build_hierarchy(
        [
            make_cluster_queue("a", **{**fields, **changed}),
            make_cluster_queue("b", cohort="team", quota=2),
            make_cluster_queue("alone", quota=4),
        ],
        [make_cohort("team", parent="all"), make_cohort("elsewhere", parent="all")],
    )


DIGEST = tree_digest(make_tree().queues["a"])


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"quota": make_quota(5, borrowing=2)}, id="a quota"),
        pytest.param({"quota": make_quota(4, borrowing=3)}, id="a borrowing limit"),
        pytest.param({"quota": make_quota(4, borrowing=2, lending=1)}, id="a lending limit"),
        pytest.param({"cohort": "elsewhere"}, id="the cohort of a queue"),
    ],
)
def test_a_tree_has_another_digest_when(changed: dict[str, Any]) -> None:
    assert tree_digest(make_tree(**changed).queues["b"]) != DIGEST


def _use(tree: CohortHierarchy) -> None:
    tree.queues["a"].add({GPU: 3})


def _shift(tree: CohortHierarchy) -> None:
    tree.queues["a"].shift(GPU, 2)


@pytest.mark.parametrize("change", [_use, _shift])
def test_usage_and_trials_leave_the_digest_as_it_is(change: Callable[[CohortHierarchy], None]) -> None:
    tree = make_tree()
    change(tree)

    assert tree_digest(tree.queues["a"]) == DIGEST


def test_all_nodes_of_a_tree_share_its_digest_and_other_trees_have_theirs() -> None:
    tree = make_tree()

    assert tree_digest(tree.queues["b"]) == tree_digest(tree.cohorts["team"]) == DIGEST
    assert tree_digest(tree.queues["alone"]) != DIGEST


def test_the_digest_is_the_same_in_every_process() -> None:
    """It is stored with each admission, so a changed value would make all of them look outdated."""
    assert DIGEST == "35fbc8e88269899b"
