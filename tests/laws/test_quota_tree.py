"""Laws of the quota tree, for any tree and any use of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from api.queueing import ClusterQueue, Cohort, FlavorQuotas
from queues.quota.fair_sharing import dominant_resource_share
from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource
from tests.laws.generators import FLAVORS, QUEUES, cluster_queues, cohorts

GPU = FlavorResource(FLAVORS[0], "gpu")
_uses = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 8)), max_size=12)


@st.composite
def specs(draw: st.DrawFn) -> tuple[list[ClusterQueue], tuple[Cohort, ...]]:
    return [draw(cluster_queues(name)) for name in QUEUES], draw(cohorts())


def all_nodes(tree: CohortHierarchy) -> list[QuotaNode]:
    return [*tree.queues.values(), *tree.cohorts.values()]


def usage_of(tree: CohortHierarchy) -> dict[tuple[bool, str], int]:
    return {(node.is_queue, node.name): node.cell(GPU).usage for node in all_nodes(tree)}


def fill(tree: CohortHierarchy, uses: list[tuple[str, int]]) -> None:
    for name, amount in uses:
        tree.queues[name].add({GPU: amount})


@given(specs(), _uses, st.randoms(use_true_random=False))
def test_adding_and_removing_cancel_out_in_any_order(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]], random: Random
) -> None:
    tree = build_hierarchy(*drawn)
    fill(tree, uses)
    before = usage_of(tree)
    tried = [*uses]
    random.shuffle(tried)

    fill(tree, tried)
    for name, amount in uses:
        tree.queues[name].remove({GPU: amount})

    assert usage_of(tree) == before


@given(specs(), _uses)
def test_a_cohorts_usage_is_what_its_children_use_beyond_their_local_part(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]]
) -> None:
    tree = build_hierarchy(*drawn)
    fill(tree, uses)

    for cohort in tree.cohorts.values():
        cells = [child.cell(GPU) for child in cohort.children]
        assert cohort.cell(GPU).usage == sum(max(0, cell.usage - cell.local) for cell in cells)


@given(specs(), _uses)
def test_no_node_has_more_available_than_its_potential(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]]
) -> None:
    tree = build_hierarchy(*drawn)
    empty = {node.name: node.available(GPU) for node in tree.queues.values()}
    assert empty == {node.name: node.cell(GPU).potential for node in tree.queues.values()}

    fill(tree, uses)

    for node in tree.queues.values():
        assert node.available(GPU) <= node.cell(GPU).potential


@given(specs(), _uses, st.sampled_from(QUEUES), st.integers(1, 8))
def test_using_what_is_available_leaves_no_root_overdrawn(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]],
    uses: list[tuple[str, int]],
    name: str,
    amount: int,
) -> None:
    tree = build_hierarchy(*drawn)
    for other, wanted in uses:
        node = tree.queues[other]
        node.add({GPU: min(wanted, max(0, node.available(GPU)))})
    free = tree.queues[name].available(GPU)

    tree.queues[name].add({GPU: min(amount, max(0, free))})

    # What was allowed to each on its own never overdraws the whole: a tree without over-admission stays so.
    for root in {node.root for node in tree.queues.values()}:
        assert root.available(GPU) >= 0


@given(specs(), _uses)
def test_the_borrow_height_is_0_exactly_within_the_own_quota(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]]
) -> None:
    tree = build_hierarchy(*drawn)
    fill(tree, uses)

    for node in tree.queues.values():
        cell = node.cell(GPU)
        is_within = cell.usage + 1 <= cell.nominal
        assert (cell.borrow_height(1).height == 0) == (is_within or node.parent is None)


@given(specs(), _uses)
def test_a_share_is_positive_only_for_a_node_that_borrows(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]]
) -> None:
    tree = build_hierarchy(*drawn)
    fill(tree, uses)

    for node in all_nodes(tree):
        share = dominant_resource_share(node)
        assert share.order >= (0, 0)
        assert share.is_borrowing or share.order == (0, 0)
        if node.parent is not None:
            assert share.is_borrowing == any(cell.usage > cell.subtree for cell in node.cells.values())


def cells_of(tree: CohortHierarchy) -> dict[tuple[bool, str], tuple[int, ...]]:
    cells = {(node.is_queue, node.name): node.cell(GPU) for node in all_nodes(tree)}
    return {
        key: (cell.nominal, cell.subtree, cell.local, cell.potential, cell.usage)
        for key, cell in cells.items()
    }


@given(specs(), _uses, st.sampled_from(QUEUES), st.integers(-8, 8))
def test_a_shifted_quota_is_as_if_the_tree_had_been_built_with_it_and_shifting_back_leaves_no_trace(
    drawn: tuple[list[ClusterQueue], tuple[Cohort, ...]], uses: list[tuple[str, int]], name: str, amount: int
) -> None:
    queues, above = drawn
    tree = build_hierarchy(queues, above)
    if GPU not in tree.queues[name].cells:
        return
    amount = max(amount, -tree.queues[name].cell(GPU).nominal)
    edited = build_hierarchy(
        [_with_more(queue, amount) if queue.name == name else queue for queue in queues], above
    )
    fill(tree, uses)
    fill(edited, uses)
    before = cells_of(tree)

    tree.queues[name].shift(GPU, amount)
    assert cells_of(tree) == cells_of(edited)

    tree.queues[name].shift(GPU, -amount)
    assert cells_of(tree) == before


def _with_more(queue: ClusterQueue, amount: int) -> ClusterQueue:
    def of_flavor(flavor: FlavorQuotas) -> FlavorQuotas:
        quotas = dict(flavor.resources)
        if flavor.name == GPU.flavor and GPU.resource in quotas:
            quota = quotas[GPU.resource]
            quotas[GPU.resource] = replace(quota, nominal=quota.nominal + amount)
        return replace(flavor, resources=quotas)

    groups = tuple(
        replace(group, flavors=tuple(map(of_flavor, group.flavors))) for group in queue.resource_groups
    )
    return replace(queue, resource_groups=groups)
