"""Random clusters and what happens to them, small enough that limits are met all the time."""

from __future__ import annotations

from hypothesis import strategies as st

from api.queueing import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    FungibilityPolicy,
    FungibilityPreference,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceGroup,
    ResourceQuota,
)
from api.workload import Workload
from tests.builders import EVERY_NAMESPACE, make_pod_set, make_workload

FLAVORS = ("spot", "reserved")
QUEUES = ("q0", "q1", "q2", "q3")
COHORTS = ("root", "left", "right")
_RESOURCES = ("gpu", "disk")

_amounts = st.integers(0, 6)
_limits = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def quotas(draw: st.DrawFn, *, with_parent: bool) -> ResourceQuota:
    nominal = draw(_amounts)
    limit = draw(_limits) if with_parent else None
    lending = draw(_limits) if with_parent else None
    lending = None if lending is None else min(lending, nominal)
    return ResourceQuota(nominal=nominal, borrowing_limit=limit, lending_limit=lending)


@st.composite
def groups(draw: st.DrawFn, *, with_parent: bool = True) -> tuple[ResourceGroup, ...]:
    resources = draw(st.sampled_from([_RESOURCES, _RESOURCES[:1]]))
    flavors = draw(st.sampled_from([FLAVORS, FLAVORS[:1], FLAVORS[::-1]]))
    return (
        ResourceGroup(
            covered_resources=resources,
            flavors=tuple(
                FlavorQuotas(
                    name=name,
                    resources={one: draw(quotas(with_parent=with_parent)) for one in resources},
                )
                for name in flavors
            ),
        ),
    )


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[Cohort, ...]:
    own = st.one_of(st.just(()), groups())
    left_parent = draw(st.sampled_from(["root", None]))
    return (
        Cohort(name="root", resource_groups=draw(st.one_of(st.just(()), groups(with_parent=False)))),
        Cohort(name="left", parent=left_parent, resource_groups=draw(own)),
        Cohort(name="right", parent="root", resource_groups=draw(own)),
    )


@st.composite
def cluster_queues(draw: st.DrawFn, name: str, *, preempts: bool = True) -> ClusterQueue:
    cohort = draw(st.sampled_from([*COHORTS, None]))
    return ClusterQueue(
        name=name,
        cohort=cohort,
        namespace_selector=EVERY_NAMESPACE,
        resource_groups=draw(groups(with_parent=cohort is not None)),
        queueing_strategy=draw(st.sampled_from(list(QueueingStrategy))),
        fungibility=FlavorFungibility(
            when_can_borrow=draw(st.sampled_from(list(FungibilityPolicy))),
            when_can_preempt=draw(st.sampled_from(list(FungibilityPolicy))),
            preference=draw(st.sampled_from([None, *FungibilityPreference])),
        ),
        preemption=draw(_preemptions()) if preempts else Preemption(),
        fair_weight_milli=draw(st.sampled_from([0, 500, 1000])),
    )


@st.composite
def _preemptions(draw: st.DrawFn) -> Preemption:
    reclaim = draw(
        st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY])
    )
    may_borrow = reclaim is not PreemptionPolicy.NEVER and draw(st.booleans())
    return Preemption(
        within_cluster_queue=draw(
            st.sampled_from(
                [
                    PreemptionPolicy.NEVER,
                    PreemptionPolicy.LOWER_PRIORITY,
                    PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
                ]
            )
        ),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY if may_borrow else PreemptionPolicy.NEVER,
    )


@st.composite
def workloads(draw: st.DrawFn, name: str, *, at: float = 0.0) -> Workload:
    count = draw(st.integers(1, 3))
    partial = draw(st.sampled_from([None, 1]))
    requests = {one: draw(st.integers(0, 3)) for one in draw(st.sampled_from([_RESOURCES, _RESOURCES[:1]]))}
    return make_workload(
        name,
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.integers(0, 2)),
        at=at,
        pod_sets=(make_pod_set(count=count, min_count=partial, requests=requests),),
    )
