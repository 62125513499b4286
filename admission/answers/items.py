"""The items of the lists of /v1, as they are on the wire. The OpenAPI document is made from these classes.

Field names are camelCase on the wire. Times are RFC 3339 in UTC, amounts are Kubernetes quantities, and None
(null) means that a value is not known or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from api.parsing.times import to_rfc3339


def instant(at: float | None) -> str | None:
    """Return a time as it is in an item. `at` is in Unix seconds."""
    return None if at is None else to_rfc3339(at)


class Kind(StrEnum):
    """The lists."""

    WORKLOADS = "workloads"
    CLUSTER_QUEUES = "clusterqueues"
    LOCAL_QUEUES = "localqueues"
    COHORTS = "cohorts"
    RACKS = "racks"
    PROMISES = "promises"
    DECISIONS = "decisions"


class Item(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base of all items."""


class WorkloadItem(Item, frozen=True, kw_only=True):
    """A Workload.

    `status` is pending, quotaReserved, admitted, finished or deactivated. `position` counts from 1 among the
    pending Workloads of the ClusterQueue that can start. `expectedStart` is a promise if `isPromised`;
    without it, `expectedAfter` is a lower bound, by turns or by the ends of what it depends on. Four of five
    starts lie between `earliestStart` and `latestStart`, which is the promise where there is one. `canStart`
    false: not as it is, whatever ends. `reason` and `message` say why it waits or how it ended. `requests`
    are those of all pods together.
    """

    namespace: str
    name: str
    owner_kind: str | None
    owner_name: str | None
    local_queue_name: str
    cluster_queue: str
    status: str
    priority: int
    pods: int
    requests: Mapping[str, str]
    flavors: tuple[str, ...]
    created_at: str
    position: int | None
    can_start: bool
    expected_start: str | None
    earliest_start: str | None
    latest_start: str | None
    expected_after: str | None
    is_promised: bool
    started_at: str | None
    expected_end: str | None
    finished_at: str | None
    evictions: int
    reason: str
    message: str


class QuotaItem(Item, frozen=True, kw_only=True):
    """The quota of one resource in one flavor, of a ClusterQueue or of all that is below a Cohort.

    `nominal` is the quota in force, `used` what Workloads hold. `borrowed` is the part of `used` that comes
    from the cohort above. `lent` is what others use of this quota; where several could have lent it, each
    counts in proportion to what it leaves unused. `over` is use beyond all that may be used, as after a cut
    of quota. `available` is what may still be used, with what can be borrowed. Limits: null for no limit.
    """

    flavor: str
    resource: str
    nominal: str
    used: str
    borrowed: str
    lent: str
    over: str
    available: str
    borrowing_limit: str | None
    lending_limit: str | None


class UsageItem(Item, frozen=True, kw_only=True):
    """How much of a resource is used, and how much of that is borrowed."""

    total: str
    borrowed: str


Usages = Mapping[str, Mapping[str, UsageItem]]


class QuotaInForceItem(Item, frozen=True, kw_only=True):
    """A quota that an open window of the policy's calendar has put in place of the declared one."""

    flavor: str
    resource: str
    nominal_quota: str
    instead_of: str
    window: str
    until: str | None


class AmountItem(Item, frozen=True, kw_only=True):
    """An amount of one resource of one flavor."""

    flavor: str
    resource: str
    amount: str


class ReservationItem(Item, frozen=True, kw_only=True):
    """An advance reservation of the ClusterQueue's quota, of a namespace that the caller may see."""

    name: str
    policy: str
    namespace: str
    local_queue_name: str
    start: str
    end: str
    has_begun: bool
    domain: str | None
    nodes: int | None
    resources: tuple[AmountItem, ...]


class ClusterQueueItem(Item, frozen=True, kw_only=True):
    """A ClusterQueue. `inadmissible` of its `pending` Workloads wait for a change of the cluster.

    `flavorsReservation` is what Workloads with quota hold, `flavorsUsage` what admitted ones use, as in its
    status.
    """

    name: str
    cohort: str | None
    strategy: str
    policy: str
    is_active: bool
    reason: str
    message: str
    pending: int
    inadmissible: int
    reserving: int
    admitted: int
    weighted_share: int
    quotas: tuple[QuotaItem, ...]
    flavors_reservation: Usages
    flavors_usage: Usages
    quotas_in_force: tuple[QuotaInForceItem, ...]
    reservations: tuple[ReservationItem, ...]


class LocalQueueItem(Item, frozen=True, kw_only=True):
    """A LocalQueue, with what its own Workloads use of the ClusterQueue, by flavor and resource."""

    namespace: str
    name: str
    cluster_queue: str
    is_active: bool
    reason: str
    message: str
    pending: int
    inadmissible: int
    reserving: int
    admitted: int
    used: Mapping[str, Mapping[str, str]]


class CohortItem(Item, frozen=True, kw_only=True):
    """A Cohort with the quota of all that is below it. `clusterQueues` and `cohorts` count its children."""

    name: str
    parent: str | None
    cluster_queues: int
    cohorts: int
    admitted: int
    weighted_share: int
    quotas: tuple[QuotaItem, ...]


class GangItem(Item, frozen=True, kw_only=True):
    """How many pods with so many GPUs each fit into the domain now, on one or more of its nodes."""

    gpus_per_pod: int
    pods: int


class RackItem(Item, frozen=True, kw_only=True):
    """A topology domain above the nodes, as the nodes of one flavor see it.

    `domain` joins the values of its levels, the widest first, by /; `level` is the node label of the last
    one. `freeNodes` have all of their GPUs free. `largestGangs` has an entry for each size of pods, by GPUs
    alone: CPU, memory and quota may allow less.
    """

    flavor: str
    level: str
    domain: str
    nodes: int
    free_nodes: int
    gpus: int
    free_gpus: int
    largest_gangs: tuple[GangItem, ...]


class PromiseItem(Item, frozen=True, kw_only=True):
    """A promised start. `firstStartAt` is the first one promised; `moves` counts how often it has moved."""

    namespace: str
    name: str
    cluster_queue: str
    start_at: str
    first_start_at: str
    made_at: str
    domain: str | None
    borrows: bool
    moves: int
    cause: str | None


class DecisionItem(Item, frozen=True, kw_only=True):
    """An entry of the decision log. `by` is the replica that decided, `fence` its term."""

    at: str
    by: str
    fence: int
    cycle: int
    namespace: str
    name: str
    decision: str
    reason: str
    message: str
    start_at: str | None


ItemT = TypeVar("ItemT", bound=Item)


class Page(Item, Generic[ItemT], frozen=True, kw_only=True):
    """A page of a list. `continue` is the parameter for the next page, "" at the end.

    `total` counts all items that the filters select and the caller may see. `hidden` counts those that the
    filters select and that it may not see, 0 where that would tell names of others.
    """

    items: tuple[ItemT, ...]
    total: int
    hidden: int
    continue_: str = msgspec.field(name="continue", default="")
