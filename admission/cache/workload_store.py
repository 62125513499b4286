"""The store of all Workloads: each is pending in a ClusterQueue, holds quota, or neither.

It takes in changes of objects and queues, and moves Workloads between its two sides,
`admission.cache.pending_workloads` and `admission.cache.admitted_workloads`. What follows for the next cycle
is marked: trees to try or to wake (`admission.cache.trees_to_try`), statuses to write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from admission.cache.admitted_workloads import AdmittedWorkloads
from admission.cache.cache import Cache
from admission.cache.deleted_usage import MOST_DAYS
from admission.cache.dependencies import Dependencies
from admission.cache.finished_runs import FinishedRuns
from admission.cache.pending_workloads import PendingWorkloads
from admission.cache.priority_boost import boosted
from admission.cache.touched_statuses import TouchedStatuses
from admission.cache.trees_to_try import TreesToTry
from admission.cache.workload_changed import Observer, WorkloadChanged
from admission.cache.workload_index import WorkloadIndex
from admission.cache.workload_record import LocalQueueKey, WorkloadRecord, make_record
from admission.cache.workload_usage import daily_usage, day_of
from api.jobs.pod_owner_key import has_known_pods
from api.jobs.resource_requests import ResourceSettings
from api.jobs.static_address import parse_reservations
from api.keys import ADDRESSES
from api.workload import Workload, WorkloadKey
from queues.pending.ordering import RequeuingTimestamp

# How many Workloads `refresh` places in one round. Any number does, since it goes on until all are placed.
_AT_ONCE = 10_000


class WorkloadStore:
    """All known Workloads, based on the cache of specs. One task owns it."""

    def __init__(
        self,
        cache: Cache,
        *,
        resources: ResourceSettings,
        requeuing_timestamp: RequeuingTimestamp,
        boosts_priorities: bool = False,
    ) -> None:
        self.touched = TouchedStatuses()
        self.index = WorkloadIndex(self.touched)
        self.trees = TreesToTry(cache, self.touched)
        self.pending = PendingWorkloads(
            cache, self.index, self.trees, self.touched, requeuing_timestamp=requeuing_timestamp
        )
        self.admitted = AdmittedWorkloads(
            cache,
            self.index,
            self.pending,
            self.trees,
            self.touched,
            requeuing_timestamp=requeuing_timestamp,
        )
        self._dependencies = Dependencies(self.index.records)
        self._dependants: dict[WorkloadKey, None] = {}
        # Workloads to be put into their place once changed specs have taken effect.
        self._unplaced: OrderedDict[WorkloadKey, WorkloadRecord] = OrderedDict()
        # LocalQueues whose ClusterQueue is to be woken once changed specs have taken effect.
        self._rerouted: set[LocalQueueKey] = set()
        # Of the Workloads to be placed, those whose requests have to be computed again first.
        self._unread: set[WorkloadKey] = set()
        self._is_catching_up = False
        # What acts on the difference between two versions of an object, in this order. None depends on
        # another but for one: run times are learned before the Workloads alike are placed by them.
        self._observers: tuple[Observer, ...] = (
            FinishedRuns(cache).observe,
            self._replace_alike,
            self.pending.note_preemptor,
            self.trees.note_replicas,
        )
        self._cache = cache
        self._resources = resources
        self._boosts_priorities = boosts_priorities

    # --- changes of objects ------------------------------------------------------------------------------

    def put(self, workload: Workload) -> None:
        """Take in a Workload, new or changed."""
        if self._boosts_priorities:
            workload = boosted(workload)
        key = workload.key
        if self._cache.specs.unreadable:
            # It was readable this time, whatever it was before.
            self._cache.specs.unreadable.pop((Workload, key), None)
        record = self.index.records.get(key)
        # It was deleted and created again under the same name between two events, so no state of
        # the old object applies.
        if record is not None and record.workload.uid != workload.uid:
            self.drop(key)
            record = None
        # Before it leaves its place: a run is compared with its estimate while that is known.
        self._send(WorkloadChanged(before=record.workload if record is not None else None, after=workload))
        before = record.workload if record is not None else None
        if record is None:
            record = self.index.records[key] = make_record(workload, self._cache, self._resources)
            self.index.by_uid[workload.uid] = record
        else:
            record.take(workload, self._cache, self._resources)
        self.index.note_claims(record)
        self._note_dependants(before, workload)
        self._note_addresses(workload)
        # Where it belongs depends on changed specs; it is placed once they have taken effect.
        if self._cache.specs.is_stale:
            self._unplaced[key] = record
            self.admitted.note_shown(workload)
        else:
            self._place(record)

    def drop(self, key: WorkloadKey) -> None:
        """Forget a Workload whose object no longer exists."""
        record = self.index.records.get(key)
        if record is not None:
            # Before its queue and quota are taken from it.
            used = daily_usage(record, self._cache, most_days=MOST_DAYS)
            self._cache.deleted_usage.add(used, today=day_of(self._cache.now))
            self._end(record)
            self._unplaced.pop(key, None)
            self._unread.discard(key)
            self.pending.join(key, ())
            self.pending.note_gone(record.workload)
            del self.index.records[key]
            self.index.by_uid.pop(record.workload.uid, None)
            self._dependants.pop(key, None)
            self._note_dependants(record.workload, None)
            self._cache.schedule_plan.forget(key)

    def _note_dependants(self, before: Workload | None, after: Workload | None) -> None:
        """Have Workloads placed again that depend on one that has changed."""
        for key in self._dependencies.note(before, after):
            self._unplaced[key] = self.index.records[key]
            self._dependants[key] = None

    def take_dependants(self) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that depend on others which have changed since the last call."""
        if not self._dependants:
            return ()
        taken, self._dependants = tuple(self._dependants), {}
        return taken

    def _note_addresses(self, workload: Workload) -> None:
        """Reserve the static addresses that the object shows.

        One that shows none keeps those that were chosen while it holds quota: their write is on its way.
        """
        text, key = workload.annotations.get(ADDRESSES), workload.key
        if text is not None or key not in self._cache.held:
            self._cache.topology_cache.reserve_addresses(key, parse_reservations(text))

    def _send(self, change: WorkloadChanged) -> None:
        for observer in self._observers:
            observer(change)

    def _replace_alike(self, change: WorkloadChanged) -> None:
        """Have pending Workloads of the same kind placed again: their expected run time has changed.

        It decides whether a Workload starts before or after a promise, and by a predicting policy its
        place in the queue. With its former estimate a Workload could keep waiting although it is
        short enough to start.
        """
        if change.finished is not None:
            self._unplaced.update(self.pending.alike(change.finished))

    def reroute(self, local_queue: LocalQueueKey) -> None:
        """Record that the LocalQueue or its ClusterQueue was added, removed or changed."""
        self.touched.local_queues.add(local_queue)
        # Placed only once the specs are in effect: one change of a queue often comes with many.
        self._unplaced.update(self.index.members(local_queue))
        self._rerouted.add(local_queue)

    def reread(self, records: Iterable[WorkloadRecord]) -> None:
        """Have the requests of Workloads without quota computed again, since their inputs have changed."""
        for record in records:
            if self._may_be_reread(record):
                self._unread.add(record.workload.key)
                self._unplaced[record.workload.key] = record

    def awaited(self, workload: Workload) -> tuple[Workload, ...]:
        """Return the Workloads whose success this one waits for; () if one is missing or has failed."""
        return self._dependencies.awaited(workload)

    def _may_be_reread(self, record: WorkloadRecord) -> bool:
        """Return whether its requests may change: once it holds quota they are fixed."""
        return record.workload.key not in self._cache.held and not record.workload.is_finished

    def _place(self, record: WorkloadRecord) -> None:
        """Put a Workload where its object says that it belongs: its queue, held quota, or neither."""
        workload = record.workload
        if workload.is_finished:
            self._end(record)
            return
        self.index.enter(record)
        if workload.has_quota_reservation and not _is_let_go(workload):
            self.admitted.note_fact(record)
        # An event older than our own write must not take back what was assumed.
        elif _is_let_go(workload) or not self.admitted.keeps_assumption(workload):
            if workload.key in self._cache.held:
                self.admitted.release(workload.key)
            record.unmet = self._dependencies.unmet(workload)
            self.pending.route(record)

    # --- what follows ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Let changed specs take effect, all at once: the trees of a thousand queues are built once."""
        while self.catch_up(_AT_ONCE):
            pass

    @property
    def has_to_catch_up(self) -> bool:
        """Whether a spec has changed, or Workloads are left to be placed for an earlier change."""
        return self._cache.specs.is_stale or bool(self._unplaced)

    def catch_up(self, most: int) -> bool:
        """Let changed specs take effect, and place at most `most` of the Workloads that move for it.

        Return whether more are left; `see` then shows the progress so far. A caller
        that decides uses `refresh`.
        """
        self._take_effect()
        for _ in range(min(most, len(self._unplaced))):
            key, record = self._unplaced.popitem(last=False)
            if key in self._unread:
                self._unread.discard(key)
                if self._may_be_reread(record):
                    record.compute(self._cache, self._resources)
            self._place(record)
        self._is_catching_up = bool(self._unplaced)
        if self._is_catching_up:
            return True
        # After all are placed, so that a queue is woken with its Workloads in it.
        for rerouted in self._rerouted:
            local_queue = self._cache.specs.local_queues.get(rerouted)
            if local_queue is not None:
                self.trees.wake(local_queue.cluster_queue)
        self._rerouted.clear()
        return False

    def see(self) -> None:
        """Let changed specs take effect for a caller that only reads.

        While `catch_up` works in steps, doing the rest at once would defeat its purpose. A question in
        between sees the Workloads placed so far, as if the others came later.
        """
        if self._is_catching_up:
            self._take_effect()
        else:
            self.refresh()

    def _take_effect(self) -> None:
        """Build the queues again if specs have changed, and mark the Workloads to be placed for it."""
        changed = self._cache.refresh()
        if changed is not None:
            self.touched.touch_all(self._cache.specs)
            self.trees.replace(changed)
            self.admitted.weigh_all()
            self._unplaced.update(self.pending.update_orderings())
            # Workloads that name a reservation may be able to join it now.
            self._unplaced.update(self.index.joining)

    def settle(self) -> None:
        """Wake what may fit now and what has finished its back-off."""
        self.refresh()
        self.trees.wake_displaced()
        # This comes before the trees are woken, since a turn that has come wakes its tree.
        self.pending.pass_turns()
        self.trees.wake_due()

    def _end(self, record: WorkloadRecord) -> None:
        """Take the Workload out of all queues and quota: it has finished, or its object is gone."""
        self.pending.unqueue(record)
        self.admitted.successors.pop(record.workload.key, None)
        # It may have held nothing by then.
        if record.workload.key in self._cache.held:
            self.admitted.release(record.workload.key)
        self.admitted.note_freed(self._cache.topology_cache.reserve_addresses(record.workload.key, {}))
        self.index.end(record)


def _is_let_go(workload: Workload) -> bool:
    """Return whether quota is free although the object still shows it: it was deactivated, and has no owner.

    Only the program that created it can take the reservation away, which it may never do. The quota of one
    with an owner is kept until its pods have ended.
    Source: Kueue, pkg/controller/core/workload_controller.go, Update.
    """
    return not workload.active and workload.owner_kind is None and not has_known_pods(workload)
