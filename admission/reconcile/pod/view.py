"""One look at a unit: its pods, the Workload that stands for them, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from admission.reconcile.job.context import JobContext
from admission.reconcile.job.view import HeldJob
from api import keys
from api.disruption_budget import DisruptionBudget
from api.jobs.job import MAIN_POD_SET
from api.jobs.pod import Pod
from api.jobs.pod_workload import GroupMember, is_fast, name_of_pod_workload
from api.objects import OwnerReference
from api.parsing.decimals import whole_number
from api.workload import PodSetAssignment, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Who makes a group's pods anew and is not among their owners. `has_place`: it is to have this group."""

    reference: OwnerReference
    has_place: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """What is known of a unit beside its pods. `by_eviction`: those that lose their quota go by the eviction
    subresource, as their budgets allow. `replicas`: how many its keeper is to have, None: nobody keeps it up.
    `keeper`: the LeaderWorkerSet whose group it is. `budgets`: those of its namespace, of each what is left
    for this unit. `refusal`: in which words the server has just refused to evict its pods; None where it has
    not, or it is time to try again.
    """

    by_eviction: bool = False
    replicas: int | None = None
    keeper: Keeper | None = None
    budgets: tuple[DisruptionBudget, ...] = ()
    refusal: str | None = None


NOTHING_ELSE = UnitFacts()


class PodView:
    """The pods of a unit, the oldest first, its Workload, and the context. There is at least one pod."""

    def __init__(
        self,
        pods: Sequence[tuple[Pod, bytes]],
        workload: tuple[Workload, bytes] | None,
        *,
        context: JobContext,
        now: float,
        facts: UnitFacts = NOTHING_ELSE,
    ) -> None:
        # By age and name, so that all that is chosen from them is the same at every look.
        in_order = sorted(pods, key=lambda one: (one[0].created_at, one[0].name))
        self.members = tuple(GroupMember(pod, raw) for pod, raw in in_order)
        self.held = HeldJob(*workload) if workload is not None else None
        self.context = context
        self.now = now
        self.facts = facts

    @property
    def first(self) -> Pod:
        """The oldest pod: it speaks for the others where they have to agree."""
        return self.members[0].pod

    @property
    def speaker(self) -> Pod:
        """The oldest pod that is alive, else the oldest: what it says now is what the unit asks for."""
        return self.alive[0].pod if self.alive else self.first

    @property
    def group(self) -> str:
        """The name of the group; empty for a pod by itself."""
        return self.first.group

    @property
    def keeper(self) -> OwnerReference | None:
        """Who owns the Workload in the place of its pods."""
        return self.facts.keeper.reference if self.facts.keeper is not None else None

    @property
    def workload_name(self) -> str:
        """The name of the Workload that stands for the unit."""
        return self.group or name_of_pod_workload(self.first)

    @property
    def workload(self) -> Workload:
        """The unit's Workload, in steps that follow its creation."""
        assert self.held is not None, "a step before this one answers for a unit without a Workload"
        return self.held.workload

    @property
    def raw(self) -> bytes:
        """The bytes of the unit's Workload."""
        assert self.held is not None
        return self.held.raw

    @cached_property
    def alive(self) -> tuple[GroupMember, ...]:
        """The members that nobody has to replace."""
        return tuple(member for member in self.members if member.pod.is_alive)

    @cached_property
    def is_fast(self) -> bool:
        """Whether the group is admitted before all its members are there."""
        return is_fast(self.members)

    @property
    def is_stopped(self) -> bool:
        """Whether no pod takes of the quota."""
        return not any(member.pod.is_active for member in self.members)

    @property
    def assignments(self) -> Mapping[str, PodSetAssignment]:
        """What each pod set was given, {} without a reservation."""
        admission = self.workload.admission
        return {} if admission is None else {one.name: one for one in admission.pod_sets}

    def pod_set_of(self, member: GroupMember) -> str:
        """Return the pod set that a member belongs to, as the Workload has it or would have it."""
        if not self.group:
            return MAIN_POD_SET
        # Who is admitted fast is admitted for pods that nobody has seen: all of them are of the first's kind.
        # More than one pod set came of roles that were seen, fast or not.
        if self.is_fast and self.held is not None and len(self.workload.pod_sets) == 1:
            return self.workload.pod_sets[0].name
        return member.role

    @cached_property
    def kept(self) -> tuple[GroupMember, ...]:
        """The living members that have a place in the unit, those with most to lose first.

        Once quota is held each role has as many places as were admitted; before that the group as a whole.
        """
        if not self.group:
            return self.alive
        # A stable sort: among those at the gate, and among those that run, the oldest first.
        in_order = sorted(self.alive, key=lambda member: member.pod.is_gated)
        if self.held is None or self.workload.admission is None:
            return tuple(in_order[: self.wanted])
        # What a serving group gave back may be somebody else's by now.
        given_back = self.workload.reclaimable if self.first.is_serving else {}
        places = {
            name: assignment.count - given_back.get(name, 0) for name, assignment in self.assignments.items()
        }
        kept = []
        for member in in_order:
            name = self.pod_set_of(member)
            if places.get(name, 0) > 0:
                places[name] -= 1
                kept.append(member)
        return tuple(kept)

    @property
    def wanted(self) -> int:
        """How many pods the unit is to have."""
        if not self.group:
            return 1
        is_waiting = self.held is None or self.workload.admission is None
        # The keeper's number of now: what pods were told of it may be old.
        if is_waiting and self.facts.replicas is not None:
            return self.facts.replicas
        # From then on what the Workload says counts, as that was admitted.
        if self.held is not None and (counts := [one.count for one in self.workload.pod_sets]):
            return sum(counts)
        return whole_number(self.first.annotations.get(keys.POD_GROUP_TOTAL_COUNT)) or 0

    @property
    def expected(self) -> int:
        """How many of the pods that were admitted there are to be now."""
        replicas = self.facts.replicas
        return self.wanted if replicas is None else min(self.wanted, replicas)

    @property
    def missing(self) -> int:
        """How many members have yet to come, or to come again.

        To a group that is admitted fast they come when it runs (a StatefulSet makes the second pod once the
        first is ready): it lacks nothing as long as it has one.
        """
        if self.is_fast and self.kept:
            return 0
        return max(0, self.wanted - len(self.kept))
