"""The second pass: Workloads that hold quota and have lost nodes get other ones, or give their quota back.

It runs apart from the cycle and before it: what a running gang lost comes before what nobody has yet. Those
of higher priority first, then the older. A Workload whose new nodes were decided holds them from then on, as
one that was admitted does; the object follows. Where there is no room it is evicted (it fails fast, Kueue's
default), or it keeps what it has and is tried again when room comes free on its flavor's nodes.

    unhealthyNodes ─▶ second pass ─▶ Reassign     new topologyAssignment, unhealthyNodes emptied
                          │      ╰─▶ Evict        reason NodeFailures: queues again, before its equals
                          ╰────────▶ Unreplaced   without fail-fast
Kueue waits a second before the pass and doubles that after each failure; here events alone cause it.
Source: Kueue, pkg/scheduler/scheduler.go and pkg/cache/queue/second_pass_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from admission.cache import Cache
from admission.decision import Evict, Reassign, SecondPassDecision, Unreplaced
from admission.placement.fleet import Unplaced
from admission.placement.health import NodeFailureSettings, hosts_of
from admission.placement.replacement import replace_hosts
from admission.roster import Roster
from admission.snapshot import Held
from admission.topology import standing
from api.reasons import EvictionReason
from api.workload import Admission, TopologyAssignment, WorkloadKey


def second_pass(
    cache: Cache, roster: Roster, settings: NodeFailureSettings
) -> tuple[SecondPassDecision, ...]:
    """Decide for every Workload that has lost nodes; what is decided is assumed when this returns."""
    due = [held for key in roster.lost if (held := cache.held.get(key)) is not None]
    roster.lost.clear()
    if not settings.is_on:
        return ()
    decisions = []
    for held in sorted(due, key=_urgency):
        decision = _decide(cache, roster, held, settings)
        if decision is not None:
            decisions.append(decision)
    return tuple(decisions)


def _urgency(held: Held) -> tuple[int, float, WorkloadKey]:
    return -held.workload.priority, held.queued_at, held.key


def _decide(
    cache: Cache, roster: Roster, held: Held, settings: NodeFailureSettings
) -> SecondPassDecision | None:
    workload, snapshot = held.workload, cache.snapshot()
    if held.is_evicted or held.former is not None or held.is_assumed:
        return None
    stands = standing(snapshot, held, roster.records[held.key].requests)
    assigned = {host for one in stands for host in hosts_of(one.assignment)}
    # A node that is gone by now has to be replaced too, or the rest would be placed around a hole.
    lost = assigned & set(workload.unhealthy_nodes) | {h for h in assigned if not cache.fleet.nodes_at(h)}
    if not lost:
        return None
    found = replace_hosts(cache.fleet, stands, lost)
    if isinstance(found, Unplaced):
        return _fail(roster, held, _failure(lost, found), settings)
    roster.reassign(held, reassigned(held.admission, found))
    return Reassign(
        key=held.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        assignments=found,
        lost=tuple(sorted(lost)),
        found=tuple(sorted(_hosts(found.values()) - assigned)),
    )


def _fail(roster: Roster, held: Held, message: str, settings: NodeFailureSettings) -> SecondPassDecision:
    workload = held.workload
    if not settings.fails_fast:
        roster.unreplaced[held.key] = None
        return Unreplaced(key=held.key, uid=workload.uid, message=message)
    held.is_evicting = True
    return Evict(
        key=held.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=EvictionReason.NODE_FAILURES,
        message=f"Workload was evicted as there was {message}",
        cluster_queue=held.admission.cluster_queue,
    )


def _failure(lost: Iterable[str], found: Unplaced) -> str:
    names = sorted(lost)
    which = f"a failed node: {names[0]}" if len(names) == 1 else f"failed nodes: {', '.join(names)}"
    return f"no replacement for {which} (pod set {found.pod_set}: {found.message})"


def reassigned(admission: Admission, found: Mapping[str, TopologyAssignment]) -> Admission:
    """Return the admission with these topology assignments in it, by pod set."""
    return replace(
        admission,
        pod_sets=tuple(
            replace(one, topology=found[one.name]) if one.name in found else one for one in admission.pod_sets
        ),
    )


def _hosts(assignments: Iterable[TopologyAssignment]) -> set[str]:
    return {host for one in assignments for host in hosts_of(one)}
