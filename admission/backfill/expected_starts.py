"""Expected starts: when is each pending Workload expected to start, if all take their turn?

The profile is played forward: each Workload takes the earliest start after running work, all promises and all
Workloads before it, and claims that capacity for those behind it. So an expected start is what a promise
would be if every Workload had one. But it promises nothing: no capacity is held for it, and a Workload that
can be backfilled starts earlier.

    has a promise               its promised start
    the first N of a queue      computed here, one per step
    those behind the first N    not before the last of them, as far as turns go (`after`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from msgspec import structs

from admission.backfill.profile_trial import SnapshotStage, StartTrial
from admission.backfill.schedule_plan import SchedulePlan
from admission.nomination.nominate import CyclePolicy
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import CapacityProfile, Claim, order
from queues.profile.earliest_start import earliest
from queues.profile.request_horizon import RequestHorizon

# Running work past its expected end counts as ending this many seconds from now, a guess without data.
_OVERDUE_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Forecast:
    """One pass over all pending Workloads under a policy with backfill. It fills `starts` and `after`.

    It is stepped between cycles. Any change of held quota outdates it, and it is then of no use.
    """

    snapshot: Snapshot
    schedule_plan: SchedulePlan
    policy: CyclePolicy
    now: float
    starts: dict[WorkloadKey, float] = field(default_factory=dict)
    # By ClusterQueue: the latest start computed, where more Workloads wait behind those computed.
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
        """Whether held quota has changed since the pass began."""
        return self._version != self.schedule_plan.profile.version

    def step(self) -> bool:
        """Compute one start. Return whether more are left."""
        return next(self._steps, self) is not self

    def _run(self) -> Iterator[None]:
        """Claim the earliest start of one Workload after the other, a step for each."""
        # It works on a profile of its own, since a promise must not wait behind a mere expectation.
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
        """Return the Workloads whose starts are computed, in the order in which they would be served."""
        waiting: list[tuple[QueueState, Pending]] = []
        for queue in self.snapshot.queues.values():
            rules = queue.policy.backfill_rules
            if rules is not None and not queue.inactive:
                in_order = queue.pending.in_order()
                first = in_order[: rules.eta_depth]
                if len(first) < len(in_order):
                    self._truncated.add(queue.name)
                # A Workload with a promise has its start already, as a claim in the profile.
                waiting += [(queue, one) for one in first if one.key not in self.schedule_plan.promises]
        # Within a queue the queue's own order counts; between queues, priority and age.
        waiting.sort(key=lambda one: (-one[1].workload.priority, one[1].level, one[1].queued_at, one[1].key))
        return waiting

    def _expected(self, queue: QueueState, pending: Pending) -> float | None:
        """Return the start of one Workload (Unix seconds) and claim it, None where none is found."""
        # It waits until someone acts on it, and no profile can say when that will be.
        if pending.retry_at == inf:
            return None
        queues = self.snapshot.queues

        def wants(claim: Claim) -> bool:
            other = queues.get(claim.queue)
            return bool(claim.spots) or (other is not None and other.tree is queue.tree)

        trial = StartTrial(snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy)
        seconds = self.schedule_plan.run_estimates.length(pending.workload, queue.name)
        edges = self._profile.edges(wants=wants)
        names = [other.name for other in queue.tree.queues]
        upcoming = self.schedule_plan.upcoming.edges(
            names, self.schedule_plan.profile, joining=pending.workload
        )
        if upcoming:
            edges = sorted([*edges, *upcoming], key=order)
        start = earliest(
            RequestHorizon(edges=edges, profile=self._profile, put_in=upcoming),
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
