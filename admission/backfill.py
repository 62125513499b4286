"""Backfill: who cannot start is promised a start, and who comes later starts only where no promise suffers.

    judge    a head fits now: may it start in view of the promises of higher rank?
                 it leaves them their quota and places for as long as it runs  ─▶ yes
                 it fits elsewhere, clear of what they hold                    ─▶ yes, there
                 else                                                          ─▶ it is held back
    plan     a head cannot start, or is held back: from when on does it fit, after all of higher rank?
    settle   something moved: does every promise still stand? Earlier if it can, later for a cause
    expire   a promise is near: whoever overtook it and is in its way gives way now

Whoever starts while someone of higher rank holds a promise has overtaken it, and runs on a lease for as long
as it runs: it gives way to every promise of higher rank that does not stand with it still there, those made
later included. That, not the truth of estimates, is why backfill moves no promise: an estimate that was a lie
costs the one who told it. What runs without a lease (it overtook nobody) may overrun, and then it does move
promises; so do lost nodes, cut quotas, and Workloads of higher rank that come later.

All modes share this. They differ in how many of a ClusterQueue are promised a start at a time (EASY: the
first; Conservative: the first `reservationDepth`) and in who may start in spite of a promise (Opportunistic:
lower priority too, on the lease alone).

Source: Lifka 1995 (EASY), Mu'alem and Feitelson 2001 (conservative), Slurm's sched/backfill; article on gang
scheduling, "reservation with backfill" (run in the hold, give way when the larger one is ready).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from msgspec import structs

from admission.nomination import CyclePolicy, Entry
from admission.preemption.saves import leaving_seconds
from admission.runtimes import is_opportunistic, may_be_evicted
from admission.snapshot import QueueState, Snapshot
from admission.stage import Footing, SnapshotStage, StartTrial
from admission.timekeeper import SLACK_SECONDS, Promise, Timekeeper
from api.keys import OPPORTUNISTIC
from api.policy import Backfill as BackfillRules
from api.policy import BackfillMode
from api.workload import Workload, WorkloadKey
from queues.pending import Pending
from queues.profile import Claim, Edge, Start, earliest, fits_from, holds_at, stands
from queues.promises import BackfillLease, MoveCause, PlannedStart, Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a head that fits may start: with `entry` (its places may have changed), or `behind` whom not.

    `kept_from` is what the calendar has against it, in words. `lease` is what it runs on where it overtakes
    somebody.
    """

    entry: Entry
    behind: PlannedStart | None = None
    kept_from: str | None = None
    lease: BackfillLease | None = None


@dataclass(slots=True, kw_only=True)
class Backfill:
    """Judges and plans on one snapshot, which it leaves as it found it. Promises are the timekeeper's."""

    snapshot: Snapshot
    keeper: Timekeeper
    policy: CyclePolicy
    now: float
    _stage: SnapshotStage = field(init=False)
    # Promises whose capacity counts as taken already while the cycle lasts: others were sent away for it.
    _later: list[tuple[PlannedStart, Footing]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stage = SnapshotStage(self.snapshot)

    # --- judging -----------------------------------------------------------------------------------------

    def judge(self, entry: Entry) -> Verdict:
        """Return whether the entry, which fits, may start (or have its targets evicted) now."""
        if self.keeper.ahead.is_heeded:
            entry, words = self._clear_of_calendar(entry)
            if words is not None:
                return Verdict(entry=entry, kept_from=words)
        if not self.keeper.promises:
            return Verdict(entry=entry)
        rank = self._rank_of(entry)
        above = self._above(rank, entry.pending.key)
        verdict = self._clear_of_lower(entry, rank, above)
        if verdict.behind is not None or not above:
            return verdict
        entry = verdict.entry
        with self.snapshot.without((target.queue, target.held) for target in entry.targets):
            return self._judge(entry, rank, above)

    def _clear_of_calendar(self, entry: Entry) -> tuple[Entry, str | None]:
        """Return the entry in no way of the calendar, on other flavors if need be; or what is in its way.

        Whoever says nothing of its length, or may not be stopped and has no enforced limit, never ends here:
        a promise can be moved, an appointment cannot.
        """
        estimate = self.keeper.estimator.estimate(entry.pending.workload, entry.queue.policy)
        span = inf if estimate is None else self._span(entry.pending.workload, entry.queue)
        leaving = frozenset(target.held.key for target in entry.targets)
        with self.snapshot.without((target.queue, target.held) for target in entry.targets):
            rank = self._rank_of(entry)
            edges = self._edges(entry.queue, rank, (), leaving=leaving, of=entry.pending.workload)
            edges = [edge for edge in edges if not self.keeper.has_outrun(edge[2])]
            trial, footing = self._trial(entry), self._footing(entry)
            key = stands(edges, self._stage, trial, footing, now=self.now, until=self.now + span)
            if key is None:
                return entry, None
            if not entry.targets:
                found = fits_from(edges, self._stage, trial, now=self.now, seconds=span)
                if found is not None and found.assignment is not None:
                    return structs.replace(entry, assignment=found.assignment), None
        if self._may_stay_until(entry, key):
            return entry, None
        return entry, self.keeper.ahead.words[key]

    def _may_stay_until(self, entry: Entry, appointment: WorkloadKey) -> bool:
        """Return whether it may run in what a reservation will need, and give way at its start."""
        kept = next((one for one in self.keeper.ahead.reservations.kept if one.holder == appointment), None)
        workload = entry.pending.workload
        if kept is None or not is_opportunistic(workload):
            return False
        leaving = leaving_seconds(workload, entry.queue.policy)
        return self.now + self._least_seconds(entry.queue) + leaving <= kept.start_at

    def _clear_of_lower(self, entry: Entry, rank: Rank, above: Sequence[Promise]) -> Verdict:
        """Return the entry on quota and places promised to nobody, not even of lower rank, if it fits there.

        Where it does not, it starts all the same if it outranks whom it is in the way of, or if its own
        promise is due; else it waits: a promise that was made is not broken for one that is merely older.
        """
        others = [one for key, one in self.keeper.promises.items() if key != entry.pending.key]
        if entry.targets or len(others) == len(above):
            return Verdict(entry=entry)
        trial, edges = self._trial(entry), self._edges(entry.queue, rank, others, of=entry.pending.workload)
        span = self.keeper.length(entry.pending.workload, entry.queue.name)
        footing, until = self._footing(entry), self.now + span
        if stands(edges, self._stage, trial, footing, now=self.now, until=until) is None:
            return Verdict(entry=entry)
        found = fits_from(edges, self._stage, trial, now=self.now, seconds=span)
        if found is not None and found.assignment is not None:
            return Verdict(entry=structs.replace(entry, assignment=found.assignment))
        own = self.keeper.promises.get(entry.pending.key)
        if own is not None and own.planned.start_at <= self.now:
            return Verdict(entry=entry)
        firm = self._firm_below(rank, entry.pending.key)
        edges = self._edges(entry.queue, rank, firm, of=entry.pending.workload)
        behind = stands(edges, self._stage, trial, footing, now=self.now, until=until)
        if behind is not None and behind in self.keeper.ahead.words:
            return Verdict(entry=entry, kept_from=self.keeper.ahead.words[behind])
        planned = self.keeper.promises[behind].planned if behind is not None else None
        return Verdict(entry=entry, behind=planned)

    def _judge(self, entry: Entry, rank: Rank, above: Sequence[Promise]) -> Verdict:
        workload, queue = entry.pending.workload, entry.queue
        span = self._span(workload, queue)
        known = self._known_to_wait(entry, above, span)
        if known is not None:
            return Verdict(entry=entry, behind=known)
        trial = self._trial(entry)
        leaving = frozenset(target.held.key for target in entry.targets)
        edges = self._edges(queue, rank, above, leaving=leaving, of=workload)
        footing = self._footing(entry)
        behind = stands(edges, self._stage, trial, footing, now=self.now, until=self.now + span)
        if behind is not None:
            found = None
            if not entry.targets:
                found = fits_from(edges, self._stage, trial, now=self.now, seconds=span)
            if found is not None and found.assignment is not None:
                entry, footing = structs.replace(entry, assignment=found.assignment), found
            elif behind in self.keeper.ahead.words:
                # There is room until then, but not beside those who are promised theirs.
                return Verdict(entry=entry, kept_from=self.keeper.ahead.words[behind])
            elif not self._is_opportunity(workload, self.keeper.promises[behind].planned, queue):
                self._remember(entry, above, span, behind)
                return Verdict(entry=entry, behind=self.keeper.promises[behind].planned)
        in_the_way = stands(edges, self._stage, trial, footing, now=self.now, until=inf)
        lease = BackfillLease(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=queue.name,
            rank=rank,
            started_at=self.now,
            eviction_seconds=leaving_seconds(workload, queue.policy),
            is_evictable=may_be_evicted(workload),
            promised=in_the_way if in_the_way in self.keeper.promises else None,
        )
        return Verdict(entry=entry, lease=lease)

    def _known_to_wait(self, entry: Entry, above: Sequence[Promise], span: float) -> PlannedStart | None:
        """Return behind what one of the same requests, and no longer, was held back a moment ago.

        Nothing has changed since, so the answer is the same. Hundreds of equals wait in a full cluster.
        """
        known = self.keeper.held_back.get(self._question(entry, above))
        if known is None or not self._may_remember(entry):
            return None
        version, at, least, behind = known
        is_same = version == self.keeper.profile.version and self.now - at < SLACK_SECONDS
        promise = self.keeper.promises.get(behind)
        return promise.planned if promise is not None and is_same and span >= least else None

    def _remember(self, entry: Entry, above: Sequence[Promise], span: float, behind: WorkloadKey) -> None:
        if self._may_remember(entry):
            known = self.keeper.profile.version, self.now, span, behind
            self.keeper.held_back[self._question(entry, above)] = known

    def _may_remember(self, entry: Entry) -> bool:
        """Return whether the answer follows from requests and length: nothing was decided in this cycle."""
        rules = _rules(entry.queue)
        is_opportunistic = rules is not None and rules.mode is BackfillMode.OPPORTUNISTIC
        return not entry.targets and not is_opportunistic and not self.snapshot.decided

    @staticmethod
    def _question(entry: Entry, above: Sequence[Promise]) -> object:
        counts = tuple(choice.count for choice in entry.assignment.pod_sets)
        return entry.queue.name, entry.pending.shape, counts, frozenset(one.planned.key for one in above)

    def _span(self, workload: Workload, queue: QueueState) -> float:
        """Return for how long it must be out of the way of others: as long as it runs, and is being stopped.

        What may not be evicted is believed only where its limit is enforced; else it runs for ever.
        """
        estimate = self.keeper.estimator.estimate(workload, queue.policy)
        if not may_be_evicted(workload) and (estimate is None or not estimate.is_enforced):
            return inf
        return self.keeper.length(workload, queue.name) + leaving_seconds(workload, queue.policy)

    def _is_opportunity(self, workload: Workload, promised: PlannedStart, queue: QueueState) -> bool:
        """Return whether it may run in what is held for the promise, and give way when that is due."""
        rules = _rules(queue)
        if rules is None or rules.mode is not BackfillMode.OPPORTUNISTIC or not may_be_evicted(workload):
            return False
        is_lower = -workload.priority > promised.rank.negative_priority
        if not is_lower and workload.annotations.get(OPPORTUNISTIC) != "true":
            return False
        least = self._least_seconds(queue)
        return self.now + least + leaving_seconds(workload, queue.policy) <= promised.start_at

    @staticmethod
    def _least_seconds(queue: QueueState) -> int:
        """Return how long work of the queue runs at least before it is sent away for an equal."""
        preemption = queue.policy.preemption
        return preemption.minimum_runtime_seconds if preemption is not None else 0

    # --- planning ----------------------------------------------------------------------------------------

    def plan(self, entry: Entry) -> bool:
        """Promise a start to a head that cannot start now. Returns whether it has a promise.

        It gets none where its ClusterQueue has promised to enough Workloads before it, where it would not
        fit if all others had ended, and beyond the window unless it is the first of its queue.
        """
        rules, key = _rules(entry.queue), entry.pending.key
        if rules is None:
            return False
        if key in self.keeper.promises:
            return True
        before = self._promised_before(entry)
        if before >= rules.reservation_depth:
            return False
        found = self._search(entry.queue, entry.pending)
        if found is None or (before and found[0].start_at > self.now + rules.window_seconds):
            return False
        self._keep(*found)
        return True

    def plan_after_evictions(self, entry: Entry) -> bool:
        """Promise a start to a head whose targets are sent away in this cycle: when the last of them is gone.

        Returns whether it has a promise. For the rest of the cycle its capacity counts as taken.
        """
        if _rules(entry.queue) is None:
            return False
        workload, queue = entry.pending.workload, entry.queue
        wait = max(leaving_seconds(one.held.workload, one.queue.policy) for one in entry.targets)
        known = self.keeper.promises.get(workload.key)
        at = self.now + wait
        planned = PlannedStart(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=queue.name,
            rank=self._rank_of(entry),
            start_at=at,
            seconds=self.keeper.length(workload, queue.name),
            admission=entry.assignment.to_admission(queue.name),
            made_at=known.planned.made_at if known is not None else self.now,
            first_start_at=known.planned.first_start_at if known is not None else at,
        )
        self._later.append((planned, self._footing(entry)))
        self._claim_now(entry)
        return True

    def _promised_before(self, entry: Entry) -> int:
        own = _own_rank(entry.pending)
        return sum(
            1
            for promise in self.keeper.promises.values()
            if promise.planned.cluster_queue == entry.queue.name and promise.planned.rank[1:] < own
        )

    def _search(
        self, queue: QueueState, pending: Pending, known: PlannedStart | None = None
    ) -> tuple[PlannedStart, Footing] | None:
        """Return the earliest start after all of higher rank, None for never."""
        height = known.rank.height if known is not None else 0
        while True:
            rank = self._rank(queue, pending, height)
            start = self._earliest(queue, pending, rank, self._before(rank, pending.key))
            if start is None or start.value.assignment is None:
                return None
            if start.value.assignment.borrowing <= rank.height:
                return self._planned(queue, pending, rank, start, known), start.value
            # It has to borrow higher than was assumed, and so comes after more of the others.
            height = start.value.assignment.borrowing

    def _earliest(
        self, queue: QueueState, pending: Pending, rank: Rank, others: Sequence[Promise]
    ) -> Start[Footing] | None:
        trial = StartTrial(snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy)
        edges = self._edges(queue, rank, others, of=pending.workload)
        seconds = self._seconds(queue, pending, others)
        return earliest(edges, self._stage, trial, now=self.now, seconds=seconds)

    def _seconds(self, queue: QueueState, pending: Pending, others: Sequence[Promise]) -> float:
        """Return for how long a promise holds: as long as it must be out of the way of those before it."""
        if others:
            return self._span(pending.workload, queue)
        return self.keeper.length(pending.workload, queue.name)

    def _planned(
        self,
        queue: QueueState,
        pending: Pending,
        rank: Rank,
        start: Start[Footing],
        known: PlannedStart | None,
    ) -> PlannedStart:
        assert start.value.assignment is not None, "what a search finds has flavors"
        fresh = PlannedStart(
            key=pending.key,
            uid=pending.workload.uid,
            cluster_queue=queue.name,
            rank=rank,
            start_at=start.at,
            seconds=self._seconds(queue, pending, self._before(rank, pending.key)),
            admission=start.value.assignment.to_admission(queue.name),
            made_at=self.now,
            first_start_at=start.at,
        )
        if known is None:
            return fresh
        return replace(
            fresh,
            made_at=known.made_at,
            first_start_at=known.first_start_at,
            moves=known.moves,
            cause=known.cause,
        )

    def _keep(self, planned: PlannedStart, footing: Footing) -> None:
        self.keeper.keep(planned, footing.usage, footing.spots)
        self._note_precedence(planned.key, planned.rank, planned.cluster_queue)

    def _note_precedence(self, key: WorkloadKey, rank: Rank, queue: str) -> None:
        """Note that someone takes precedence over the promises of lower rank, which were made without it."""
        for promise in self.keeper.promises.values():
            lower = promise.planned
            if lower.rank > rank and lower.key != key:
                is_reclaim = lower.cluster_queue != queue and lower.rank.height > rank.height
                self.keeper.causes.add(MoveCause.RECLAIM if is_reclaim else MoveCause.HIGHER_PRIORITY)

    # --- what the cycle did ------------------------------------------------------------------------------

    def note_admitted(self, verdict: Verdict) -> None:
        """Take note that the entry starts: from here on it claims what it takes, until its expected end."""
        entry = verdict.entry
        self._note_precedence(entry.pending.key, self._rank_of(entry), entry.queue.name)
        self._claim_now(entry, verdict.lease)

    def finish(self) -> None:
        """Take note that the cycle has ended: what it counted as taken for the time being is promised."""
        for planned, footing in self._later:
            self._keep(planned, footing)
        self._later.clear()

    def _claim_now(self, entry: Entry, lease: BackfillLease | None = None) -> None:
        self.keeper.ahead.join(entry.pending.workload)
        seconds = self.keeper.length(entry.pending.workload, entry.queue.name)
        if lease is not None and self.keeper.gives_way(lease):
            seconds += lease.eviction_seconds
        self.keeper.profile.put(
            Claim(
                holder=entry.pending.key,
                queue=entry.queue.name,
                usage=entry.assignment.usage,
                spots=self.snapshot.fleet.spots(entry.assignment.places),
                ends_at=self.now + seconds,
            )
        )

    # --- settling ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Look at every promise again, the highest rank first: it stands, moves, or is taken back.

        To be called between cycles, while everybody who waits is in a queue.
        """
        causes, self.keeper.causes = self.keeper.causes, set()
        may_improve, self.keeper.may_improve = self.keeper.may_improve, False
        for promise in self.keeper.in_order():
            queue = self.snapshot.queues[promise.planned.cluster_queue]
            pending = queue.pending.get(promise.planned.key)
            if pending is None:
                continue
            if not self._stands(promise, queue, pending):
                self._move(promise, queue, pending, causes)
            elif may_improve:
                self._improve(promise, queue, pending)

    def _stands(self, promise: Promise, queue: QueueState, pending: Pending) -> bool:
        planned = promise.planned
        trial = StartTrial(snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy)
        footing = Footing(usage=promise.claim.usage, spots=promise.claim.spots)
        above = self._above(planned.rank, planned.key)
        edges = self._edges(queue, planned.rank, above, of=pending.workload)
        at = max(planned.start_at, self.now)
        return holds_at(edges, self._stage, trial, footing, at=at, seconds=planned.seconds)

    def _move(self, promise: Promise, queue: QueueState, pending: Pending, causes: set[MoveCause]) -> None:
        known = promise.planned
        found = self._search(queue, pending, known)
        if found is None:
            self.keeper.withdraw(known.key)
            return
        planned, footing = found
        if planned.start_at > known.start_at + SLACK_SECONDS:
            planned = replace(planned, moves=known.moves + 1, cause=self._cause(promise, causes))
        self.keeper.keep(planned, footing.usage, footing.spots)

    def _cause(self, promise: Promise, causes: set[MoveCause]) -> MoveCause:
        """Return why a promise does not stand: what is known of it alone first, then what has happened.

        Nothing but work that was to end can be late without a word, so that is what is left.
        """
        if not self.snapshot.fleet.has_nodes(promise.claim.spots):
            return MoveCause.NODE_LOST
        return next((cause for cause in MoveCause if cause in causes), MoveCause.OVERRUN)

    def _improve(self, promise: Promise, queue: QueueState, pending: Pending) -> None:
        """Start it earlier if that is worth a word and moves nobody else, those of lower rank included."""
        known, rules = promise.planned, _rules(queue)
        least = rules.resolution_seconds if rules is not None else 0
        if known.start_at - self.now < max(least, SLACK_SECONDS):
            return
        others = [one for key, one in self.keeper.promises.items() if key != known.key]
        start = self._earliest(queue, pending, known.rank, others)
        if start is None or start.at > known.start_at - max(least, SLACK_SECONDS):
            return
        if start.value.assignment is None or start.value.assignment.borrowing > known.rank.height:
            return
        planned = self._planned(queue, pending, known.rank, start, known)
        self.keeper.keep(planned, start.value.usage, start.value.spots)

    # --- leases ------------------------------------------------------------------------------------------

    def expired(self) -> tuple[tuple[BackfillLease, PlannedStart], ...]:
        """Return whose time has come to give way, and to which promise; each once."""
        found: dict[WorkloadKey, tuple[BackfillLease, PlannedStart]] = {}
        graces = {lease.eviction_seconds for lease in self.keeper.leases.values()}
        if not graces:
            return ()
        for promise in self.keeper.in_order():
            planned = promise.planned
            if planned.start_at - max(graces) > self.now:
                continue
            for lease in self._in_the_way(promise, frozenset(found)):
                self.keeper.leases[lease.key] = replace(lease, promised=planned.key)
                if planned.start_at - lease.eviction_seconds <= self.now:
                    found[lease.key] = (lease, planned)
        return tuple(found.values())

    def _in_the_way(self, promise: Promise, leaving: frozenset[WorkloadKey]) -> Sequence[BackfillLease]:
        """Return a smallest set of leases without which the promise stands, () where it does or none helps.

        Who started last has the least to lose and goes first; in the end those come back who need not go.
        """
        planned = promise.planned
        queue = self.snapshot.queues[planned.cluster_queue]
        pending = queue.pending.get(planned.key)
        leases = self._lower_leases(planned.rank, leaving)
        if pending is None or not leases:
            return ()
        trial = StartTrial(snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy)
        footing = Footing(usage=promise.claim.usage, spots=promise.claim.spots)
        above = self._above(planned.rank, planned.key)
        at = max(planned.start_at, self.now)

        def is_enough(going: Iterable[WorkloadKey]) -> bool:
            ending = frozenset(going)
            staying = frozenset(lease.key for lease in leases) - ending
            edges = self._edges(
                queue, planned.rank, above, staying=staying, going=ending, of=pending.workload
            )
            # At its start alone: what comes after that is for the promises that begin then.
            return holds_at(edges, self._stage, trial, footing, at=at, seconds=0.0)

        going: list[BackfillLease] = []
        for lease in (None, *leases):
            if lease is not None:
                going.append(lease)
            if is_enough(one.key for one in going):
                break
        else:
            return ()
        for lease in going[:-1]:
            if is_enough(one.key for one in going if one is not lease):
                going.remove(lease)
        return going

    def _lower_leases(self, rank: Rank, leaving: frozenset[WorkloadKey]) -> list[BackfillLease]:
        """Return the leases that give way to a promise of that rank, the last started first."""
        lower = [
            lease
            for lease in self.keeper.leases.values()
            if lease.rank > rank and lease.key not in leaving and self.keeper.can_leave(lease)
        ]
        return sorted(lower, key=lambda lease: (-lease.started_at, lease.key))

    # --- ranks and edges ---------------------------------------------------------------------------------

    def _rank_of(self, entry: Entry) -> Rank:
        return self._rank(entry.queue, entry.pending, entry.assignment.borrowing)

    def _rank(self, queue: QueueState, pending: Pending, height: int) -> Rank:
        """Return the place of a Workload of the queue among the promised, were it to borrow so high."""
        own = _own_rank(pending)
        for promise in self.keeper.promises.values():
            planned = promise.planned
            if planned.cluster_queue == queue.name and planned.rank[1:] < own:
                height = max(height, planned.rank.height)
        return Rank(height, *own)

    def _above(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        promises = self.keeper.promises.values()
        return [one for one in promises if one.planned.rank < rank and one.planned.key != key]

    def _before(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return whose promises a new promise of that rank has to leave alone."""
        return [*self._above(rank, key), *self._firm_below(rank, key)]

    def _firm_below(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return the promises of lower rank that one of that rank may not break.

        Whoever borrows less, has the higher priority or the lower level takes precedence; being older
        alone is no licence. Such a one may come to its turn late (beyond the window or behind the depth
        when others were promised theirs), or could start before its own promise on what is promised to a
        younger one.
        """
        promises = (one for one in self.keeper.promises.values() if one.planned.key != key)
        return [one for one in promises if one.planned.rank > rank and one.planned.rank[:3] == rank[:3]]

    def _edges(
        self,
        queue: QueueState,
        rank: Rank,
        promises: Iterable[Promise],
        *,
        leaving: frozenset[WorkloadKey] = frozenset(),
        staying: frozenset[WorkloadKey] = frozenset(),
        going: frozenset[WorkloadKey] = frozenset(),
        of: Workload | None = None,
    ) -> list[Edge]:
        """Return what happens to whom the Workload of that rank can meet: running work and these promises.

        `leaving` have been taken off the snapshot already, `staying` are taken not to end, `going` to end
        now. Who outran a lease ends as soon as it can be stopped, where it gives way to that rank.
        """
        promised = {one.planned.key for one in promises}
        gone = self.snapshot.gone | leaving | staying | going
        tree, queues = queue.tree, self.snapshot.queues

        def wants(claim: Claim) -> bool:
            if not (claim.is_running and claim.holder not in gone) and claim.holder not in promised:
                return False
            other = queues.get(claim.queue)
            return bool(claim.spots) or (other is not None and other.tree is tree)

        edges = self.keeper.profile.edges(wants=wants)
        names = [other.name for other in tree.queues]
        ahead = self.keeper.ahead.edges(names, self.keeper.profile, joining=of)
        late = [*self._overstaying(rank, gone), *((key, self.now) for key in going)]
        if late or ahead:
            moved = dict(late)
            edges = [edge for edge in edges if edge[2] not in moved]
            for key, at in moved.items():
                claim = self.keeper.profile.get(key)
                if claim is not None:
                    edges.append((at, -1, key, claim))
            edges += ahead
            edges.sort(key=lambda edge: edge[:3])
        return edges

    def _overstaying(self, rank: Rank, gone: frozenset[WorkloadKey]) -> list[tuple[WorkloadKey, float]]:
        """Return who has outrun the estimate that its lease was given on, and when it could be gone."""
        late = []
        for lease in self.keeper.leases.values():
            claim = self.keeper.profile.get(lease.key)
            if claim is not None and claim.ends_at <= self.now and lease.key not in gone:
                wait = lease.eviction_seconds
                # Whoever is of lower rank cannot send it away, and had better not look every second.
                late.append((lease.key, self.now + (wait if lease.rank > rank else max(wait, _PATIENCE))))
        return late

    # --- helpers -----------------------------------------------------------------------------------------

    def _footing(self, entry: Entry) -> Footing:
        spots = self.snapshot.fleet.spots(entry.assignment.places)
        return Footing(usage=entry.assignment.usage, spots=spots, assignment=entry.assignment)

    def _trial(self, entry: Entry) -> StartTrial:
        return StartTrial(
            snapshot=self.snapshot,
            queue=entry.queue,
            pending=entry.pending,
            policy=self.policy,
            counts=[choice.count for choice in entry.assignment.pod_sets],
        )


# For so many seconds who runs beyond its time is believed once more by those who cannot send it away.
_PATIENCE = 60.0


def _rules(queue: QueueState) -> BackfillRules | None:
    return queue.policy.backfill_rules


def _own_rank(pending: Pending) -> tuple[int, int, float, str]:
    return -pending.workload.priority, pending.level, pending.queued_at, pending.workload.uid
