"""A unit during one look: its pods, its Workload, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from admission.reconcile.job.context import JobContext
from admission.reconcile.job.held_job import HeldJob
from api import keys
from api.disruption_budget import DisruptionBudget
from api.jobs.job import MAIN_POD_SET
from api.jobs.pod import Pod
from api.jobs.pod_workload import GroupMember, is_fast
from api.objects.common import OwnerReference
from api.parsing.decimals import whole_number
from api.workload import PodSetAssignment, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOwner:
    """The owner that creates a group's pods without owning them. `has_place`: it still wants this group."""

    reference: OwnerReference
    has_place: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """What is known of a unit besides its pods.

    `by_eviction`: its pods are stopped by the eviction subresource, as their budgets allow. `replicas`: how
    many pods its StatefulSet should have; None: it has no such owner. `keeper`: that set, or the
    LeaderWorkerSet of the group. `budgets`: those of its namespace, less what other units use of each.
    `refusal`: the message with which the server has just refused to evict its pods; None if it has not, or if
    the next attempt is due.
    """

    by_eviction: bool = False
    replicas: int | None = None
    keeper: GroupOwner | None = None
    budgets: tuple[DisruptionBudget, ...] = ()
    refusal: str | None = None


NOTHING_ELSE = UnitFacts()


class PodView:
    """The pods of a unit (at least one, the oldest first), its Workload, and the context."""

    def __init__(
        self,
        pods: Sequence[tuple[Pod, bytes]],
        workload: tuple[Workload, bytes] | None,
        *,
        context: JobContext,
        now: float,
        facts: UnitFacts = NOTHING_ELSE,
    ) -> None:
        # By age and name, so that every choice among them is the same at every look.
        in_order = sorted(pods, key=lambda one: (one[0].created_at, one[0].name))
        self.members = tuple(GroupMember(pod, raw) for pod, raw in in_order)
        self.held = HeldJob(*workload) if workload is not None else None
        self.context = context
        self.now = now
        self.facts = facts

    @property
    def first(self) -> Pod:
        """Return the oldest pod: it represents the unit in fields that all pods have to agree on."""
        return self.members[0].pod

    @property
    def group(self) -> str:
        """Return the name of the group; "" for a single pod."""
        return self.first.group

    @property
    def owner(self) -> OwnerReference | None:
        """Return the owner of the Workload, if it is not the pods."""
        return self.facts.keeper.reference if self.facts.keeper is not None else None

    @property
    def workload(self) -> Workload:
        """Return the unit's Workload. Only for steps that follow its creation."""
        assert self.held is not None, "a step before this one answers for a unit without a Workload"
        return self.held.workload

    @property
    def raw(self) -> bytes:
        """Return the bytes of the unit's Workload."""
        assert self.held is not None
        return self.held.raw

    @cached_property
    def alive(self) -> tuple[GroupMember, ...]:
        """Return the members that need not be replaced."""
        return tuple(member for member in self.members if member.pod.is_alive)

    @cached_property
    def is_fast(self) -> bool:
        """Return whether the group is admitted before all of its members exist."""
        return is_fast(self.members)

    @property
    def is_stopped(self) -> bool:
        """Return whether no pod uses quota."""
        return not any(member.pod.is_active for member in self.members)

    @property
    def assignments(self) -> Mapping[str, PodSetAssignment]:
        """Return the assignment of each pod set; {} without a reservation."""
        admission = self.workload.admission
        return {} if admission is None else {one.name: one for one in admission.pod_sets}

    def pod_set_of(self, member: GroupMember) -> str:
        """Return the pod set that a member belongs to, in the present Workload or in one to be created."""
        if not self.group:
            return MAIN_POD_SET
        # With fast admission all pods count as the first one's role, because the others were not seen. More
        # than one pod set comes from roles that were seen, so then the member's own role counts.
        if self.is_fast and self.held is not None and len(self.workload.pod_sets) == 1:
            return self.workload.pod_sets[0].name
        return member.role

    @cached_property
    def kept(self) -> tuple[GroupMember, ...]:
        """Return the living members that have a place in the unit, those with most to lose first.

        Once quota is held, each role has as many places as were admitted. Before that the group
        as a whole has.
        """
        if not self.group:
            return self.alive
        # A stable sort: the oldest come first among running pods and among gated pods.
        in_order = sorted(self.alive, key=lambda member: member.pod.is_gated)
        if self.held is None or self.workload.admission is None:
            return tuple(in_order[: self.wanted])
        # Quota that a serving group gave back may be in use by another Workload.
        given_back = self.workload.reclaimable if self.first.is_serving else {}
        places = {
            name: assignment.count - given_back.get(name, 0) for name, assignment in self.assignments.items()
        }
        kept = []
        for member in in_order:
            name = self.pod_set_of(member)
            if places.get(name, 0) > 0 and not self.excess_of(member):
                places[name] -= 1
                kept.append(member)
        return tuple(kept)

    def excess_of(self, member: GroupMember) -> str:
        """Return what a waiting pod requests beyond its place in the admitted group; "" if nothing.

        A pod that was let go keeps its place: it was compared then, and a start changes its spec.
        """
        if not member.pod.is_gated or self.held is None or self.workload.admission is None:
            return ""
        name = self.pod_set_of(member)
        template = next((one.get("template") for one in self.held.pod_sets if one.get("name") == name), None)
        return "" if template is None else member.excess_over(template)

    @property
    def wanted(self) -> int:
        """Return how many pods the unit should have."""
        if not self.group:
            return 1
        is_waiting = self.held is None or self.workload.admission is None
        # The owner's present number: what pods were created with may be outdated.
        if is_waiting and self.facts.replicas is not None:
            return self.facts.replicas
        # From the reservation on the Workload's number counts, because that was admitted.
        if self.held is not None and (counts := [one.count for one in self.workload.pod_sets]):
            return sum(counts)
        return whole_number(self.first.annotations.get(keys.POD_GROUP_TOTAL_COUNT)) or 0

    @property
    def expected(self) -> int:
        """Return how many of the admitted pods should exist now."""
        replicas = self.facts.replicas
        return self.wanted if replicas is None else min(self.wanted, replicas)

    @property
    def missing(self) -> int:
        """Return how many members have yet to be created or replaced.

        A group with fast admission lacks none as long as it has one: its other pods are created while it runs
        (a StatefulSet creates the second pod once the first is ready).
        """
        if self.is_fast and self.kept:
            return 0
        return max(0, self.wanted - len(self.kept))
