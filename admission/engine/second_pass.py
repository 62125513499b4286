"""The second pass: new nodes for admitted Workloads that lost some, and first places for delayed topologies.

It runs before each cycle, since running work that lost nodes takes precedence over pending Workloads. Higher
priority comes first, then age. A Workload holds its new nodes from the decision on, as after an admission,
and its object follows. If there is no room, it is evicted (fail fast, Kueue's default), or it keeps what it
has and is tried again when room comes free on its flavor's nodes.

    unhealthyNodes ─▶ second pass ─▶ Reassign     new topologyAssignment, unhealthyNodes emptied
                          │      ╰─▶ Evict        reason NodeFailures: queues again, before its equals
                          ╰────────▶ Unreplaced   without fail-fast
    checks ready,      ─▶ second pass ─▶ Reassign     first topologyAssignment, delayedTopologyRequest: Ready
    no place yet          ╰────────▶ Unreplaced   tried again when room comes free on the flavor's nodes

Failed nodes are listed for a second before the pass, as in Kueue, so that several that fail together are
noticed. Kueue waits before first places too, and doubles the wait after each failure; here only events
cause these.
Source: Kueue, pkg/scheduler/scheduler.go and pkg/cache/queue/second_pass_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from admission.cache.admitted_workloads import AdmittedWorkloads
from admission.cache.cache import Cache
from admission.cache.workload_index import WorkloadIndex
from admission.decisions.decision import Evict, Reassign, SecondPassDecision, Unreplaced
from admission.flavors.topology_assigner import delayed_requests, placed_pod_sets
from admission.placement.performance import FAILED
from admission.placement.replacement import replace_hosts
from admission.placement.topology.node_health import NodeFailureSettings, hosts_of
from admission.placement.topology_cache import Unplaced
from admission.snapshot.held_workload import HeldWorkload
from api.reasons import EvictionReason
from api.workload import (
    DELAYED_READY,
    Admission,
    PodSetAssignment,
    TopologyAssignment,
    WorkloadKey,
)
from queues.profile.capacity_profile import Spot


class SecondPass:
    """Decides for the Workloads in the second pass queue."""

    def __init__(
        self,
        cache: Cache,
        index: WorkloadIndex,
        admitted: AdmittedWorkloads,
        settings: NodeFailureSettings,
    ) -> None:
        self._cache = cache
        self._index = index
        self._admitted = admitted
        self._settings = settings

    def decide(self) -> tuple[SecondPassDecision, ...]:
        """Decide for every Workload noted for the pass; what is decided is assumed on return.

        In the order of priority and age, since the first takes the last free nodes. Workloads that have ended
        since they were noted are passed over.
        """
        # Some may have ended since they were noted.
        keys = self._admitted.second_pass.take_due(now=self._cache.now)
        due = [held for key in keys if (held := self._cache.held.get(key)) is not None]
        decisions = []
        # The order decides which Workload gets the last free nodes.
        for held in sorted(due, key=_urgency):
            if held.workload.awaits_place:
                decision = self._place(held)
            else:
                decision = self._replace(held) if self._settings.is_on else None
            if decision is not None:
                decisions.append(decision)
        return tuple(decisions)

    def _place(self, held: HeldWorkload) -> SecondPassDecision | None:
        """Give the pods their first places, on the nodes that their checks have provided."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        # Pods that run in another cluster are placed in that cluster.
        if queue is None or queue.is_dispatching or held.is_evicted or held.former is not None:
            return None
        requests = delayed_requests(self._cache.snapshot(), held, self._index.records[held.key].requests)
        if not requests:
            # No pod set waits for places any more.
            return None
        with self._cache.topology_cache.usage.occupied(self._reserved_for_others(held)):
            found = self._cache.topology_cache.place(requests)
        if isinstance(found, Unplaced):
            self._admitted.second_pass.park(held.key)
            message = f"no place for pod set {found.pod_set} yet: {found.message}"
            return Unreplaced(key=held.key, uid=held.workload.uid, message=message)
        # They are held from now on, so that the next Workload of this pass finds those nodes taken.
        self._admitted.reassign(held, reassigned(held.admission, found))
        return Reassign(
            key=held.key,
            uid=held.workload.uid,
            resource_version=held.workload.resource_version,
            assignments=found,
            lost=(),
            found=tuple(sorted(_hosts(found.values()))),
        )

    def _replace(self, held: HeldWorkload) -> SecondPassDecision | None:
        """Replace the nodes that the Workload has lost; None if none has to be replaced now."""
        workload, snapshot = held.workload, self._cache.snapshot()
        # New places or an eviction are being written; the answer to that comes first.
        if held.is_evicted or held.former is not None or held.is_assumed:
            return None
        placed = placed_pod_sets(snapshot, held, self._index.records[held.key].requests)
        assigned = {host for one in placed for host in hosts_of(one.assignment)}
        # A node that no longer exists has to be replaced too, or the pods would be placed around a gap.
        lost = assigned & set(workload.unhealthy_nodes) | {
            h for h in assigned if not self._cache.topology_cache.nodes.at_host(h)
        }
        if not lost:
            return None
        # The loss lowers the host's score for later placements.
        self._cache.topology_cache.observe(
            lost, uid=f"{workload.uid}/lost", at=self._cache.now, outcome=FAILED
        )
        with self._cache.topology_cache.usage.occupied(self._reserved_for_others(held)):
            found = replace_hosts(self._cache.topology_cache, placed, lost)
        if isinstance(found, Unplaced):
            return self._fail(held, _failure(lost, found))
        self._admitted.reassign(held, reassigned(held.admission, found))
        return Reassign(
            key=held.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            assignments=found,
            lost=tuple(sorted(lost)),
            # Only hosts that are new to it; a host that it already had may have got more pods.
            found=tuple(sorted(_hosts(found.values()) - assigned)),
        )

    def _reserved_for_others(self, held: HeldWorkload) -> dict[Spot, Mapping[str, int]]:
        """Return the capacity of domains that are reserved for others while the Workload is expected to run.

        There it would block the reservation at its start, and could stay if its estimate had not passed.
        """
        schedule_plan = self._cache.schedule_plan
        claim = schedule_plan.profile.get(held.key)
        until = schedule_plan.ends.latest_end(claim, now=schedule_plan.now) if claim is not None else inf
        return schedule_plan.upcoming.domains_of_others(held.workload, begun_by=until)

    def _fail(self, held: HeldWorkload, message: str) -> SecondPassDecision:
        """Evict a Workload that got no replacement; without fail-fast it keeps what it has and waits."""
        workload = held.workload
        if not self._settings.fails_fast:
            self._admitted.second_pass.park(held.key)
            return Unreplaced(key=held.key, uid=workload.uid, message=message)
        # Its quota counts until it has stopped. The mark keeps it from being evicted twice.
        held.is_evicting = True
        return Evict(
            key=held.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            reason=EvictionReason.NODE_FAILURES,
            message=f"Workload was evicted as there was {message}",
            cluster_queue=held.admission.cluster_queue,
        )


def _urgency(held: HeldWorkload) -> tuple[int, float, WorkloadKey]:
    """Return the order in which Workloads are served: priority, then age, then name."""
    return -held.workload.priority, held.queued_at, held.key


def _failure(lost: Iterable[str], found: Unplaced) -> str:
    """Return why no replacement was found, with the failed nodes."""
    names = sorted(lost)
    which = f"a failed node: {names[0]}" if len(names) == 1 else f"failed nodes: {', '.join(names)}"
    return f"no replacement for {which} (pod set {found.pod_set}: {found.message})"


def reassigned(admission: Admission, found: Mapping[str, TopologyAssignment]) -> Admission:
    """Return the admission with the topology assignments of these pod sets replaced.

    `found` is by name of the pod set. A delayed placement counts as ready then.
    """
    return replace(
        admission,
        pod_sets=tuple(
            # Pod sets that lost nothing keep their assignment.
            replace(one, topology=found[one.name], delayed_topology_request=_state(one))
            if one.name in found
            else one
            for one in admission.pod_sets
        ),
    )


def _state(assignment: PodSetAssignment) -> str | None:
    """Return the state of delayedTopologyRequest after a placement, None where it was not delayed."""
    return None if assignment.delayed_topology_request is None else DELAYED_READY


def _hosts(assignments: Iterable[TopologyAssignment]) -> set[str]:
    """Return the names of the hosts in these assignments."""
    return {host for one in assignments for host in hosts_of(one)}
