"""The answer of the flavor search: what each pod set gets, what prevents it from fitting, and the reason.

Source: Kueue, pkg/scheduler/flavorassigner/flavorassigner.go, Assignment and resolveNoFitReason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from admission.placement.topology.place import Place
from admission.placement.topology.request import PlacementRequest
from api.reasons import PendingReason
from api.workload import Admission, PodSetAssignment, TopologyAssignment
from queues.pending.pending_queue import FlavorScan
from queues.quota.resources import FlavorResource


class Mode(IntEnum):
    """What must happen before the flavors can be used, worst first."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


# A reason outranks those before it: a reason that cannot resolve by itself is reported first.
_SEVERITY = {
    PendingReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    PendingReason.WAITING_FOR_QUOTA: 2,
    PendingReason.EXCEEDS_MAX_QUOTA: 3,
    PendingReason.MISCONFIGURED: 4,
    PendingReason.NO_MATCHING_FLAVOR: 5,
}


class FlavorChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The flavor of one resource.

    `height` is how far up the quota tree it borrows. `tried` is the index of the last flavor that the scan
    looked at, -1 when it looked at all of them.
    """

    flavor: str
    mode: Mode
    height: int
    tried: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A flavor that could not be used; `group` is the index of its resource group in the ClusterQueue."""

    group: int
    flavor: str
    reason: PendingReason


class PodSetChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod set gets. `reasons` are the messages that say why it does not fit; empty when it does.

    `topology` is where its pods are placed, None where no topology applies. `delayed` is the value of
    `delayedTopologyRequest` for a pod set that is placed later.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    choices: Mapping[str, FlavorChoice]
    mode: Mode
    reasons: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    no_fit_reason: PendingReason | None = None
    topology: TopologyAssignment | None = None
    delayed: str | None = None

    @property
    def has_no_flavor(self) -> bool:
        """Whether it requests something and gets no flavor for any of it."""
        return bool(self.requests) and not self.choices


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The flavors of a whole Workload.

    `borrowing` is the greatest borrow height of its resources. `placing` is what its pods request of the
    topologies, and `places` what they take of them. `strategy` is the placement strategy, empty without a
    topology.
    """

    pod_sets: tuple[PodSetChoice, ...]
    usage: Mapping[FlavorResource, int]
    borrowing: int
    mode: Mode
    scan: FlavorScan
    placing: tuple[PlacementRequest, ...] = ()
    places: tuple[Place, ...] = ()
    strategy: str = ""
    # The admission as the status will show it, set where an equal Workload was given the same before.
    admission: Admission | None = None

    def message(self) -> str:
        """Return why it does not fit, in Kueue's words; empty where it does."""
        return "; ".join(
            f"couldn't assign flavors to pod set {choice.name}: {', '.join(sorted(choice.reasons))}"
            for choice in self.pod_sets
            if choice.reasons
        )

    def to_admission(self, cluster_queue: str) -> Admission:
        """Return the admission as the Workload's status will show it."""
        return self.admission or Admission(
            cluster_queue=cluster_queue,
            pod_sets=tuple(
                PodSetAssignment(
                    name=choice.name,
                    count=choice.count,
                    flavors={resource: chosen.flavor for resource, chosen in choice.choices.items()},
                    usage={resource: choice.requests.get(resource, 0) for resource in choice.choices},
                    topology=choice.topology,
                    delayed_topology_request=choice.delayed,
                )
                for choice in self.pod_sets
            ),
        )

    def preempting(self) -> frozenset[FlavorResource]:
        """Return the pairs of flavor and resource that need evictions."""
        return frozenset(
            FlavorResource(chosen.flavor, resource)
            for choice in self.pod_sets
            for resource, chosen in choice.choices.items()
            if chosen.mode is Mode.PREEMPT
        )

    def pending_reason(self) -> PendingReason:
        """Return why it waits: for quota where evictions may help, else what prevents it from fitting.

        That is the gravest reason over pod sets and groups, and the mildest over flavors.
        """
        if self.mode is not Mode.NO_FIT:
            return PendingReason.WAITING_FOR_QUOTA
        worst: PendingReason | None = None
        for choice in self.pod_sets:
            if choice.mode is Mode.NO_FIT:
                worst = more_severe(worst, _pod_set_reason(choice))
        return worst or PendingReason.NO_MATCHING_FLAVOR


def more_severe(a: PendingReason | None, b: PendingReason | None) -> PendingReason | None:
    """Return the reason that outranks the other; every reason outranks None."""
    return a if _severity(a) >= _severity(b) else b


def _severity(reason: PendingReason | None) -> int:
    return 0 if reason is None else _SEVERITY[reason]


def _pod_set_reason(choice: PodSetChoice) -> PendingReason:
    """Return the gravest reason over the groups, where a group's reason is the mildest over its flavors.

    The flavors of a group are alternatives, while every group is needed.
    """
    if not choice.attempts:
        return PendingReason.NO_MATCHING_FLAVOR
    mildest: dict[int, PendingReason] = {}
    for attempt in choice.attempts:
        known = mildest.get(attempt.group)
        if known is None or _SEVERITY[attempt.reason] < _SEVERITY[known]:
            mildest[attempt.group] = attempt.reason
    worst = choice.no_fit_reason
    for reason in mildest.values():
        worst = more_severe(worst, reason)
    return worst or PendingReason.NO_MATCHING_FLAVOR
