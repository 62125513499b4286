"""When those who wait are expected to start: the profile played forward with everybody in turn.

Each Workload takes the earliest start after running work, all promises and all before it, and claims it for
those behind. So an expected start is what a promise would be if everybody had one; but it is none: nothing is
held for it, and whoever can be backfilled starts earlier.

    promised           its promise
    the first N        worked out here, one a step
    those behind       not before the last of the first N, as far as turns go (`after`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from msgspec import structs

from admission.backfill.profile_trial import SnapshotStage, StartTrial
from admission.backfill.schedule_plan import SchedulePlan
from admission.nomination.nominate import CyclePolicy
from admission.snapshot.snapshot import QueueState, Snapshot
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import CapacityProfile, Claim, order
from queues.profile.earliest_start import earliest
from queues.profile.request_horizon import RequestHorizon

# Who runs beyond its time is taken to end after so many seconds more, for want of anything better.
_OVERDUE_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Forecast:
    """One pass over all who wait under a policy with backfill. It changes nothing but `starts`.

    To be stepped between cycles; outdated by any change of who holds quota, and then of no use.
    """

    snapshot: Snapshot
    schedule_plan: SchedulePlan
    policy: CyclePolicy
    now: float
    starts: dict[WorkloadKey, float] = field(default_factory=dict)
    # By ClusterQueue: the start of the last that was worked out, where others wait behind it.
    after: dict[str, float] = field(default_factory=dict)
    _truncated: set[str] = field(default_factory=set)
    _profile: CapacityProfile = field(default_factory=CapacityProfile)
    _version: int = field(init=False)
    _steps: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        self._version = self.schedule_plan.profile.version
        self._steps = self._run()

    @property
    def is_outdated(self) -> bool:
        """Whether what it began with holds no longer."""
        return self._version != self.schedule_plan.profile.version

    def step(self) -> bool:
        """Work out one start. Returns whether more are left."""
        return next(self._steps, self) is not self

    def _run(self) -> Iterator[None]:
        # On a profile of its own, as promises are not to stand behind mere expectations.
        for claim in self.schedule_plan.profile.claims():
            is_overdue = claim.is_running and claim.ends_at <= self.now
            late = structs.replace(claim, ends_at=self.now + _OVERDUE_SECONDS) if is_overdue else claim
            self._profile.put(late)
        for queue, pending in self._in_turn():
            at = self._expected(queue, pending)
            if at is not None:
                self.starts[pending.key] = at
                if queue.name in self._truncated:
                    self.after[queue.name] = max(at, self.after.get(queue.name, at))
            yield

    def _in_turn(self) -> list[tuple[QueueState, Pending]]:
        waiting: list[tuple[QueueState, Pending]] = []
        for queue in self.snapshot.queues.values():
            rules = queue.policy.backfill_rules
            if rules is not None and not queue.inactive:
                everybody = queue.pending.in_order()
                first = everybody[: rules.eta_depth]
                if len(first) < len(everybody):
                    self._truncated.add(queue.name)
                # Who is promised a start has it already, as a claim.
                waiting += [(queue, one) for one in first if one.key not in self.schedule_plan.promises]
        # Within a queue the order is the queue's own; between queues priority and age decide.
        waiting.sort(key=lambda one: (-one[1].workload.priority, one[1].level, one[1].queued_at, one[1].key))
        return waiting

    def _expected(self, queue: QueueState, pending: Pending) -> float | None:
        # It waits for somebody to act, which no profile tells.
        if pending.retry_at == inf:
            return None
        queues = self.snapshot.queues

        def wants(claim: Claim) -> bool:
            other = queues.get(claim.queue)
            return bool(claim.spots) or (other is not None and other.tree is queue.tree)

        trial = StartTrial(snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy)
        seconds = self.schedule_plan.lengths.length(pending.workload, queue.name)
        edges = self._profile.edges(wants=wants)
        names = [other.name for other in queue.tree.queues]
        ahead = self.schedule_plan.ahead.edges(names, self.schedule_plan.profile, joining=pending.workload)
        if ahead:
            edges = sorted([*edges, *ahead], key=order)
        start = earliest(
            RequestHorizon(edges=edges, profile=self._profile, put_in=ahead),
            SnapshotStage(self.snapshot),
            trial,
            now=max(self.now, pending.retry_at),
            seconds=seconds,
        )
        if start is None:
            return None
        self._profile.put(
            Claim(
                holder=pending.key,
                queue=queue.name,
                usage=start.value.usage,
                spots=start.value.spots,
                begins_at=start.at,
                ends_at=start.at + seconds,
            )
        )
        return start.at


def changed_starts(
    known: Mapping[WorkloadKey, tuple[float, float]],
    starts: Mapping[WorkloadKey, float],
    *,
    now: float,
    least_seconds: float,
) -> dict[WorkloadKey, float]:
    """Return the starts that are news: of those not known yet, or last told so many seconds ago and more.

    `known` holds, by Workload, what was told and when.
    """
    return {
        key: at
        for key, at in starts.items()
        if key not in known or (now - known[key][1] >= least_seconds and known[key][0] != at)
    }
