"""The store of all Workloads: each is pending in a ClusterQueue, holds quota, or neither.

This is the top layer of the Workload bookkeeping. It takes in changes of objects and queues, moves Workloads
accordingly, and marks what follows for the next cycle: trees to wake or to try again, statuses to write. The
layers below keep the two sides: `admission.cache.pending_workloads` and `admission.cache.admitted_workloads`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from admission.cache.admitted_workloads import AdmittedWorkloads
from admission.cache.cache import Cache
from admission.cache.finished_runs import note_ended
from admission.cache.workload_record import LocalQueueKey, WorkloadRecord, make_record
from admission.decisions.decision import Evict
from admission.preemption.replicas import may_free_others
from api.eviction import eviction_request, has_request
from api.jobs.resource_requests import ResourceSettings
from api.workload import Workload, WorkloadKey
from queues.pending.ordering import RequeuingTimestamp

# How many Workloads `refresh` places in one round. Any number does, since it goes on until all are placed.
_AT_ONCE = 10_000


class WorkloadStore(AdmittedWorkloads):
    """All known Workloads, based on the cache of specs. One task owns it."""

    def __init__(
        self, cache: Cache, *, resources: ResourceSettings, requeuing_timestamp: RequeuingTimestamp
    ) -> None:
        super().__init__(cache, requeuing_timestamp=requeuing_timestamp)
        # LocalQueues whose ClusterQueue is to be woken once changed specs have taken effect.
        self._rerouted: set[LocalQueueKey] = set()
        self._resources = resources
        # Of the Workloads to be placed, those whose requests have to be computed again first.
        self._unread: set[WorkloadKey] = set()
        self._is_catching_up = False
        # By pending Workload: the evictions it joined, of Workloads that save a checkpoint for another one.
        self.joined: dict[WorkloadKey, tuple[Evict, ...]] = {}

    # --- changes of objects ------------------------------------------------------------------------------

    def put(self, workload: Workload) -> None:
        """Take in a Workload, new or changed."""
        key = workload.key
        if self._cache.specs.unreadable:
            # It was readable this time, whatever it was before.
            self._cache.specs.unreadable.pop((Workload, key), None)
        record = self.records.get(key)
        # It was deleted and created again under the same name between two events, so no state of
        # the old object applies.
        if record is not None and record.workload.uid != workload.uid:
            self.drop(key)
            record = None
        # Before the record changes, since the request is found by comparing the two versions.
        self._note_preemptor(record.workload if record is not None else None, workload)
        # Only when it finishes, not at every later event of a finished object.
        if workload.is_finished and (record is None or not record.workload.is_finished):
            note_ended(self._cache, workload)
            self.note_run(workload)
        if record is not None and may_free_others(record.workload, workload):
            self._wake_holder(workload)
        if record is None:
            record = self.records[key] = make_record(workload, self._cache, self._resources)
        else:
            record.take(workload, self._cache, self._resources)
        # Where it belongs depends on changed specs; it is placed once they have taken effect.
        if self._cache.specs.is_stale:
            self._unplaced[key] = record
            self._note_shown(workload)
        else:
            self._place(record)

    def _wake_holder(self, workload: Workload) -> None:
        """Wake the tree of a running Workload: more replicas may be taken from it than before."""
        admission = workload.admission
        queue = self._cache.queues.get(admission.cluster_queue) if admission is not None else None
        if queue is not None:
            self.woken.add(queue.tree)

    def drop(self, key: WorkloadKey) -> None:
        """Forget a Workload whose object no longer exists."""
        record = self.records.get(key)
        if record is not None:
            self._end(record)
            self._cache.schedule_plan.forget(key)
            self._unplaced.pop(key, None)
            self._unread.discard(key)
            self.join(key, ())
            del self.records[key]

    def reroute(self, local_queue: LocalQueueKey) -> None:
        """Record that the LocalQueue or its ClusterQueue was added, removed or changed."""
        self.touched_local_queues.add(local_queue)
        # Placed only once the specs are in effect: one change of a queue often comes with many.
        self._unplaced.update(self.by_local_queue.get(local_queue, {}))
        self._rerouted.add(local_queue)

    def reread(self, records: Iterable[WorkloadRecord]) -> None:
        """Have the requests of Workloads without quota computed again, since their inputs have changed."""
        for record in records:
            if self._may_be_reread(record):
                self._unread.add(record.workload.key)
                self._unplaced[record.workload.key] = record

    def _may_be_reread(self, record: WorkloadRecord) -> bool:
        """Return whether its requests may change: once it holds quota they are fixed."""
        return record.workload.key not in self._cache.held and not record.workload.is_finished

    def _place(self, record: WorkloadRecord) -> None:
        """Put a Workload where its object says that it belongs: its queue, held quota, or neither."""
        workload = record.workload
        if workload.is_finished:
            self._end(record)
            return
        self._index(record)
        if workload.has_quota_reservation:
            self._note_fact(record)
        # An event older than our own write must not take back what was assumed.
        elif not self._keeps_assumption(workload):
            if workload.key in self._cache.held:
                self.release(workload.key)
            self._route(record)

    def _note_preemptor(self, before: Workload | None, workload: Workload) -> None:
        """Record which preemptor the Workload is evicted for, or was until its quota came free.

        The leader that decided the eviction knows it already. A later leader learns it here, and lets that
        preemptor come first as its predecessor did.
        """
        had_request = before is not None and has_request(before)
        if not had_request and not has_request(workload):
            return
        request = eviction_request(workload) if not workload.is_finished else None
        former = eviction_request(before) if before is not None else None
        # Removed first, even to be added again: it may name another uid now.
        if former is not None and former.preemptor is not None:
            self.owed.pop(former.preemptor, None)
        if request is not None and request.preemptor is not None:
            self.owed[request.preemptor] = request.preemptor_uid
            # If the preemptor is not known yet, it is put first when it comes in.
            record = self.records.get(request.preemptor)
            if record is not None:
                self._put_first(record)

    def join(self, key: WorkloadKey, evictions: tuple[Evict, ...]) -> None:
        """Record the evictions that the last cycle let this Workload join; an empty tuple for none."""
        if evictions:
            self.joined[key] = evictions
        else:
            self.joined.pop(key, None)

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
        for key in list(islice(self._unplaced, most)):
            record = self._unplaced.pop(key)
            if key in self._unread:
                self._unread.discard(key)
                if self._may_be_reread(record):
                    record.work_out(self._cache, self._resources)
            self._place(record)
        self._is_catching_up = bool(self._unplaced)
        if self._is_catching_up:
            return True
        # After all are placed, so that a queue is woken with its Workloads in it.
        for local_queue in self._rerouted:
            self._wake_queue_of(local_queue)
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
            # By name, since the trees that were to be woken have been replaced.
            names = {queue.name for tree in self.woken for queue in tree.queues}
            queues = self._cache.queues
            self.renewed = set(changed)
            self.woken = changed | {queues[name].tree for name in names if name in queues}
            # It is not known which trees a change left alone, so each is tried once.
            self.unsettled = {queue.tree: None for queue in queues.values()}
            self.displaced.clear()
            for held in self._cache.held.values():
                self._weigh(held)
            self._update_turns()
            # Workloads that name a reservation may be able to join it now.
            self._unplaced.update(self.joining)

    def settle(self) -> None:
        """Wake what may fit now and what has finished its back-off."""
        self.refresh()
        self._wake_due()

    def _end(self, record: WorkloadRecord) -> None:
        """Take the Workload out of all queues and quota: it has finished, or its object is gone."""
        key = record.workload.key
        self.unqueue(record)
        self.joining.pop(key, None)
        # It may have held nothing by then.
        if key in self._cache.held:
            self.release(key)
        if self.by_local_queue.get(record.local_queue, {}).pop(key, None) is not None:
            self.touched_local_queues.add(record.local_queue)
