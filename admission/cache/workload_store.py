"""Every Workload in its place: waiting in a ClusterQueue, holding quota, or neither.

The engine's bookkeeping. It moves Workloads as their objects and the queues change, and notes what follows
for the next cycle: which trees to wake, which to try again, whose status has changed. Who waits, and where,
is `admission.cache.pending_workloads`'s side of it, who holds quota `admission.cache.admitted_workloads`';
here stand the objects' changes.
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

# A round of a whole refresh: how many does not matter there.
_AT_ONCE = 10_000


class WorkloadStore(AdmittedWorkloads):
    """All Workloads known, on top of the cache of specs. One task owns it."""

    def __init__(
        self, cache: Cache, *, resources: ResourceSettings, requeuing_timestamp: RequeuingTimestamp
    ) -> None:
        super().__init__(cache, requeuing_timestamp=requeuing_timestamp)
        # LocalQueues whose ClusterQueue is to be woken once changed specs have taken effect.
        self._rerouted: set[LocalQueueKey] = set()
        self._resources = resources
        # Of those to be placed, whose requests are to be worked out anew first.
        self._unread: set[WorkloadKey] = set()
        self._is_catching_up = False
        # By who waits: the evictions that it joined, of Workloads that save for somebody else.
        self.joined: dict[WorkloadKey, tuple[Evict, ...]] = {}

    # --- changes of objects ------------------------------------------------------------------------------

    def put(self, workload: Workload) -> None:
        """Take in a Workload, new or changed."""
        key = workload.key
        if self._cache.unreadable:
            # It could be read this time, whatever it was before.
            self._cache.unreadable.pop((Workload, key), None)
        record = self.records.get(key)
        # Deleted and created anew under the same name between two events: none of the
        # old one's state applies.
        if record is not None and record.workload.uid != workload.uid:
            self.drop(key)
            record = None
        # Before the record changes: the debt is told by the difference.
        self._note_debt(record.workload if record is not None else None, workload)
        # Only as it ends, not at every later event of an object that has ended.
        if workload.is_finished and (record is None or not record.workload.is_finished):
            note_ended(self._cache, workload)
            self.note_run(workload)
        if record is not None and may_free_others(record.workload, workload):
            self._wake_holder(workload)
        if record is None:
            record = self.records[key] = make_record(workload, self._cache, self._resources)
        else:
            record.take(workload, self._cache, self._resources)
        # Where it belongs depends on specs that are being taken in; it is placed once they have taken effect.
        if self._cache.is_stale:
            self._unplaced[key] = record
            self._note_shown(workload)
        else:
            self._place(record)

    def _wake_holder(self, workload: Workload) -> None:
        """More replicas may be taken than before: who was refused one is to ask again."""
        admission = workload.admission
        queue = self._cache.queues.get(admission.cluster_queue) if admission is not None else None
        if queue is not None:
            self.woken.add(queue.tree)

    def drop(self, key: WorkloadKey) -> None:
        """Forget a Workload whose object is gone."""
        record = self.records.get(key)
        if record is not None:
            self._end(record)
            self._cache.schedule_plan.forget(key)
            self._unplaced.pop(key, None)
            self._unread.discard(key)
            self.join(key, ())
            del self.records[key]

    def reroute(self, local_queue: LocalQueueKey) -> None:
        """Note that the LocalQueue, or its ClusterQueue, came, went or changed: its Workloads may move."""
        self.touched_local_queues.add(local_queue)
        # Placed anew once the specs are in effect, not now: one change of a queue comes with many.
        self._unplaced.update(self.by_local_queue.get(local_queue, {}))
        self._rerouted.add(local_queue)

    def reread(self, records: Iterable[WorkloadRecord]) -> None:
        """Work out the requests anew of Workloads without quota, as what they depend on has changed."""
        for record in records:
            if self._may_be_reread(record):
                self._unread.add(record.workload.key)
                self._unplaced[record.workload.key] = record

    def _may_be_reread(self, record: WorkloadRecord) -> bool:
        """Return whether other requests may count for it: what holds quota was weighed by those it had."""
        return record.workload.key not in self._cache.held and not record.workload.is_finished

    def _place(self, record: WorkloadRecord) -> None:
        """Put a Workload where its object says that it belongs."""
        workload = record.workload
        if workload.is_finished:
            self._end(record)
            return
        self._index(record)
        if workload.has_quota_reservation:
            self._note_fact(record)
        # Older events than our write are no reason to take back what was assumed.
        elif not self._keeps_assumption(workload):
            if workload.key in self._cache.held:
                self.release(workload.key)
            self._route(record)

    def _note_debt(self, before: Workload | None, workload: Workload) -> None:
        """Take note of for whom the Workload is evicted, or was until its quota came free.

        Who decided that knows it anyway; a leader that comes after it reads it here, and lets that one come
        first as its predecessor did.
        """
        had_request = before is not None and has_request(before)
        if not had_request and not has_request(workload):
            return
        request = eviction_request(workload) if not workload.is_finished else None
        former = eviction_request(before) if before is not None else None
        # Removed first, even if the same one is put in again: it may be owed by another uid now.
        if former is not None and former.preemptor is not None:
            self.owed.pop(former.preemptor, None)
        if request is not None and request.preemptor is not None:
            self.owed[request.preemptor] = request.preemptor_uid
            # The preemptor may be known already; otherwise it is paid as it comes in.
            record = self.records.get(request.preemptor)
            if record is not None:
                self._pay(record)

    def join(self, key: WorkloadKey, evictions: tuple[Evict, ...]) -> None:
        """Take note of who is to leave for this one too, by the last cycle that tried it."""
        if evictions:
            self.joined[key] = evictions
        else:
            self.joined.pop(key, None)

    # --- what follows ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Let changed specs take effect, all at once: a thousand queues are built into trees once."""
        while self.catch_up(_AT_ONCE):
            pass

    @property
    def has_to_catch_up(self) -> bool:
        """Whether a spec has changed since the Workloads were placed."""
        return self._cache.is_stale or bool(self._unplaced)

    def catch_up(self, most: int) -> bool:
        """Let changed specs take effect, and place so many of the Workloads that they move at most.

        Returns whether more are left; then `see` shows how far it has come. Who decides asks `refresh`.
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
        """Let changed specs take effect for whoever asks.

        While somebody catches up in steps it is no use to do the rest in one: a question in between sees
        the Workloads that are placed, as if the others came later.
        """
        if self._is_catching_up:
            self._take_effect()
        else:
            self.refresh()

    def _take_effect(self) -> None:
        """Build the queues anew where specs have changed, and note who has to be placed for it."""
        changed = self._cache.refresh()
        if changed is not None:
            # By name, as the trees that were to be woken have been replaced by new ones.
            names = {queue.name for tree in self.woken for queue in tree.queues}
            queues = self._cache.queues
            self.renewed = set(changed)
            self.woken = changed | {queues[name].tree for name in names if name in queues}
            # Nothing says which trees a change left alone: each is tried once.
            self.unsettled = {queue.tree: None for queue in queues.values()}
            self.displaced.clear()
            for held in self._cache.held.values():
                self._weigh(held)
            self._take_turns_anew()
            # Those that wait to join a set may be able to now.
            self._unplaced.update(self.joining)

    def settle(self) -> None:
        """Wake what may fit now, and those whose back-off has ended."""
        self.refresh()
        self._rouse()

    def _end(self, record: WorkloadRecord) -> None:
        """The work is over, or the object gone: it holds nothing and waits for nothing."""
        key = record.workload.key
        self.unqueue(record)
        self.joining.pop(key, None)
        # By its end alone it may have been out of every queue, and holding nothing.
        if key in self._cache.held:
            self.release(key)
        if self.by_local_queue.get(record.local_queue, {}).pop(key, None) is not None:
            self.touched_local_queues.add(record.local_queue)
