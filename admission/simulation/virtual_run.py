"""Runs one policy on one trace: the production engine on a virtual clock.

    next time ──▶ events at that time ──▶ engine.objects.upsert … ──▶ engine.cycle until done ──▶ carry out
        ▲                                                                                    │
        └── ends, stops, the engine's own wake-ups ◀─────────────────────────────────────────┘

The loop plays the controller, the API server, the Job controller and the kubelet, without delays except for
saves and restarts: an admission starts the pods, an eviction makes them save and stop, and the engine then
receives the Workload as its object would show it. The engine receives all events of one time before it
decides. This module makes no admission decisions.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from admission.decisions.decision import Admit, Decision, Evict, Plan
from admission.engine.engine import Engine
from admission.simulation.checkpointing import Habits
from admission.simulation.course import JobCourse
from admission.simulation.joining import Joining
from admission.simulation.policies import Policy
from admission.simulation.settings import Setting
from admission.simulation.timeline import Timeline
from admission.simulation.traces import TraceJob, tenants
from admission.simulation.virtual_cluster import VirtualCluster
from api.reasons import ConditionType, EvictionReason, FinishedReason
from api.workload import Admission, Condition, Workload, WorkloadKey

_SECONDS_PER_HOUR = 3600.0
# Jobs and nodes together. A smaller run takes less time than the collection of all that the process holds.
_LARGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """The result of one policy for all Jobs; `run_seconds` is the real time that the run took.

    `calendar_problems` has one sentence for each fault in a window or reservation, and for each reservation
    that Jobs could not use.
    """

    policy: Policy
    is_blind: bool
    courses: tuple[JobCourse, ...]
    run_seconds: float
    calendar_problems: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class _Living:
    """A Job that has not finished: its course, and its Workload as the cluster would show it."""

    course: JobCourse
    workload: Workload
    nodes: tuple[str, ...] = ()
    # The Job stops with everything saved, and will report that if it reports checkpoints.
    has_saved: bool = False


@dataclass(slots=True, eq=False)
class _Asked:
    """A victim that saves before it stops: its attempt, its preemptor, and when the request was cancelled."""

    living: _Living
    token: int
    preemptor: WorkloadKey | None
    called_off_at: float | None = None


# Called after each step with the number of ended Jobs and the virtual time.
Progress = Callable[[int, float], None]
# Called after each step with the engine, which it may ask but not change, and the virtual time.
Watch = Callable[[Engine, float], None]


def simulate(
    jobs: Sequence[TraceJob],
    setting: Setting,
    policy: Policy,
    *,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> PolicyRun:
    """Run every Job to its end and return the result. Equal calls give equal courses.

    `jobs` must be in the order of submits, and each must fit the nodes (`check_fits`).
    """
    began = time.perf_counter()
    run = _Run(jobs=jobs, setting=setting, policy=policy)
    run.go(progress, watch)
    return PolicyRun(
        policy=policy,
        is_blind=policy.lacks_run_times(setting),
        courses=tuple(run.courses),
        run_seconds=time.perf_counter() - began,
        calendar_problems=(*run.calendar_problems, *run.joining.problems()),
    )


@dataclass(slots=True, eq=False, kw_only=True)
class _Run:
    jobs: Sequence[TraceJob]
    setting: Setting
    policy: Policy
    engine: Engine = field(init=False)
    cluster: VirtualCluster = field(init=False)
    joining: Joining = field(init=False)
    courses: list[JobCourse] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    now: float = 0.0
    ended: int = 0
    calendar_problems: tuple[str, ...] = ()
    _living: dict[WorkloadKey, _Living] = field(default_factory=dict)
    _asked: dict[WorkloadKey, _Asked] = field(default_factory=dict)
    # Workloads that have started since requests to save were last checked for cancellation.
    _started: list[WorkloadKey] = field(default_factory=list)
    _habits: Habits = field(init=False)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.engine = Engine(self.policy.engine)
        self.cluster = VirtualCluster(self.setting, self.policy, tenants(self.jobs))
        self.joining = Joining(self.engine, self.setting.reservations)
        self.courses = [JobCourse(job) for job in self.jobs]
        self._habits = Habits(self.setting.checkpoints, self.setting.checkpoints.seed)
        self._chance = random.Random(self.setting.faults.seed)

    def go(self, progress: Progress | None, watch: Watch | None) -> None:
        """Run until every Job has ended."""
        for value in self.cluster.values():
            self.engine.objects.upsert(value, now=0.0)
        for place, course in enumerate(self.courses):
            self.timeline.plan(course.job.submitted_at, partial(self._submit, course, place))
        for number in range(self.setting.nodes):
            self._plan_loss(number)
        view = self.engine.queues.policy_view(self.policy.name)
        self.calendar_problems = view.calendar_problems if view is not None else ()
        is_large = len(self.courses) + self.setting.nodes >= _LARGE
        if is_large:
            # The current objects live until the end. Without a freeze, garbage collection of them would take
            # a third of the time.
            gc.collect()
            gc.freeze()
        try:
            while self.ended < len(self.courses):
                self._step()
                if watch is not None:
                    watch(self.engine, self.now)
                if progress is not None:
                    progress(self.ended, self.now)
        finally:
            if is_large:
                gc.unfreeze()

    def _step(self) -> None:
        wake_at = self.engine.next_wake_at()
        now = min(self.timeline.next_at, inf if wake_at is None else wake_at)
        assert now < inf, f"{len(self.courses) - self.ended} Jobs wait and no event is planned"
        self.now = max(self.now, now)
        self.timeline.run_until(self.now)
        while self.engine.wake_heads(now=self.now):
            for decision in self.engine.cycle(now=self.now):
                self._carry_out(decision)
            self._call_off()

    # --- what the cluster does ---------------------------------------------------------------------------

    def _submit(self, course: JobCourse, place: int) -> None:
        if course.job.gpus == 0:
            # A Job without GPUs needs no quota, so it starts at once.
            end = course.start(self.now, restart_seconds=0.0)
            self.timeline.plan(end, partial(self._end_without_gpu, course))
            return
        living = _Living(course, self.cluster.workload(course.job, place))
        self._living[living.workload.key] = living
        self._show(living)
        ends_at = self.joining.ends_at(course)
        if ends_at is not None and ends_at > self.now:
            self.timeline.plan(ends_at, partial(self._miss, living))

    def _miss(self, living: _Living) -> None:
        """Handle the end of the Job's reservation: if the Job still waits for it, it now waits without it."""
        if living.course.finished_at is None:
            self._show(living)

    def _end_without_gpu(self, course: JobCourse) -> None:
        course.finish(self.now)
        self.ended += 1

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Admit():
                self._start(self._living[decision.key], decision.admission)
                self._started.append(decision.key)
            case Evict():
                living = self._living[decision.key]
                if decision.save_by is None:
                    every = self._keeps_every(living.course)
                    if decision.reason is EvictionReason.FLAVOR_PROMOTION:
                        # Whether the move pays depends on what it loses, so only own checkpoints count.
                        every = self.setting.saves_every(living.course.job)
                    self._evict(living, decision.reason, keeps_every=every)
                else:
                    self._ask(living, decision, decision.save_by)
            case Plan() if decision.planned is not None:
                course = self._living[decision.key].course
                if course.promised_at is None and course.first_start_at is None:
                    course.promised_at = decision.planned.start_at

    def _start(self, living: _Living, admission: Admission) -> None:
        course = living.course
        self._show(
            living,
            *(self._condition(type_, True) for type_ in _RESERVED),
            self._condition(ConditionType.EVICTED, False),
            admission=admission,
        )
        living.nodes = tuple(_nodes(admission))
        price = self.cluster.price_of(admission)
        end = course.start(self.now, restart_seconds=self.setting.restart_seconds, price=price)
        self._plan_end(living, end)
        if self.policy.is_loss_aware and course.job.is_preemptible:
            self._publish(living, course.token, None, end)

    def _publish(self, living: _Living, token: int, saved_at: float | None, end: float) -> None:
        """Report the Job's checkpoint now, and plan the reports of further checkpoints of this attempt."""
        course, habit = living.course, self._habits.of(living.course.job)
        if course.token != token or not habit.publishes:
            return
        self._report(living, saved_at)
        self.engine.objects.upsert(living.workload, now=self.now)
        next_at = (course.work_from if saved_at is None else saved_at) + habit.interval_seconds
        if next_at < end:
            self.timeline.plan(next_at, partial(self._publish, living, token, next_at, end))

    def _report(self, living: _Living, saved_at: float | None) -> None:
        """Set the Workload's checkpoint annotations. The caller passes the Workload to the engine."""
        reported = self._habits.annotations(
            living.course.job,
            saved_at=saved_at,
            restart_seconds=self.setting.restart_seconds,
            save_seconds=self.setting.save_seconds,
        )
        living.workload = replace(living.workload, annotations={**living.workload.annotations, **reported})

    def _ask(self, living: _Living, decision: Evict, deadline: float) -> None:
        """Plan the Job's stop after a save: its own next checkpoint, or a requested one."""
        course, setting = living.course, self.setting
        key, known = living.workload.key, self._asked.get(living.workload.key)
        if known is not None and (known.token, known.called_off_at) == (course.token, self.now):
            # It is already asked to save; the eviction continues for another preemptor.
            known.preemptor, known.called_off_at = decision.preemptor, None
            return
        asking = self._asked[key] = _Asked(living, course.token, decision.preemptor)
        every = self._habits.of(course.job).interval_seconds
        done = max(0.0, self.now - course.work_from)
        own = course.work_from + (done // every + 1) * every
        asked = (
            self.now if decision.ask_at is None else decision.ask_at
        ) + setting.checkpoints.notice_seconds
        begin = min(own, asked)
        if begin + setting.save_seconds > deadline:
            self.timeline.plan(deadline, partial(self._part, asking, decision, every))
        else:
            self.timeline.plan(begin, partial(self._part, asking, decision, None))

    def _part(self, asking: _Asked, decision: Evict, keeps_every: float | None) -> None:
        if asking.called_off_at is None and asking.living.course.token == asking.token:
            self._evict(asking.living, decision.reason, keeps_every=keeps_every)

    def _call_off(self) -> None:
        """Cancel evictions whose preemptor has started elsewhere, unless another Workload needs them."""
        started, self._started = frozenset(self._started), []
        for key, asking in self._asked.items() if started else ():
            is_on = asking.called_off_at is None and asking.living.course.token == asking.token
            if is_on and asking.preemptor in started:
                asking.called_off_at = self.now
                self.engine.forget(key, asking.living.workload.uid, now=self.now)

    def _keeps_every(self, course: JobCourse) -> float | None:
        if not self.policy.preempts or self._habits.saves_on_sigterm(course.job):
            return None
        return self._habits.of(course.job).interval_seconds

    def _plan_end(self, living: _Living, end: float) -> None:
        self.timeline.plan(end, partial(self._finish, living, living.course.token))
        mean = self.setting.faults.crash_mtbf_gpu_hours
        if mean is not None:
            rate = living.course.job.gpus / (mean * _SECONDS_PER_HOUR)
            crash_at = self.now + self._chance.expovariate(rate)
            if crash_at < end:
                self.timeline.plan(crash_at, partial(self._crash, living, living.course.token))

    def _finish(self, living: _Living, token: int) -> None:
        if living.course.token != token:
            return  # It was stopped in the meantime.
        living.course.finish(self.now)
        self.ended += 1
        self._asked.pop(living.workload.key, None)
        del self._living[living.workload.key]
        if self.policy.reads_estimates:
            # The engine learns run times from successful Workloads.
            self._show(living, self._condition(ConditionType.FINISHED, True, reason=FinishedReason.SUCCEEDED))
        self.engine.objects.remove(Workload, living.workload.key, now=self.now)

    def _evict(self, living: _Living, reason: EvictionReason, *, keeps_every: float | None = None) -> None:
        """Stop the Job. It saves first, unless `keeps_every` limits what is kept to periodic checkpoints."""
        course = living.course
        self._asked.pop(living.workload.key, None)
        course.stop_work(self.now, keeps_every=keeps_every)
        course.evictions += 1
        living.has_saved = self.policy.is_loss_aware and keeps_every is None
        self._show(living, self._condition(ConditionType.EVICTED, True, reason=reason))
        gone_at = self.now + (self.setting.save_seconds if keeps_every is None else 0.0)
        self.timeline.plan(gone_at, partial(self._gone, living))

    def _gone(self, living: _Living) -> None:
        """Handle the end of the pods: release the quota and queue the Workload again."""
        course, workload = living.course, living.workload
        course.leave(self.now)
        living.nodes = ()
        admitted_at = workload.conditions[ConditionType.ADMITTED].at
        living.workload = replace(
            workload,
            accumulated_execution_seconds=workload.accumulated_execution_seconds
            + int(self.now - admitted_at),
        )
        if living.has_saved:
            self._report(living, self.now)
        self._show(living, *(self._condition(type_, False) for type_ in _RESERVED), admission=None)

    def _show(self, living: _Living, *conditions: Condition, admission: Admission | str | None = "") -> None:
        """Pass the Workload with these conditions to the engine; `admission` "" keeps the current one."""
        workload = living.workload
        living.workload = replace(
            workload,
            conditions={**workload.conditions, **{one.type: one for one in conditions}},
            admission=workload.admission if isinstance(admission, str) else admission,
        )
        self.engine.objects.upsert(living.workload, now=self.now)
        if living.course.job.reservation:
            corrected = self.joining.corrected(living.course, living.workload)
            if corrected is not None:
                living.workload = corrected
                self.engine.objects.upsert(corrected, now=self.now)

    def _condition(self, type_: ConditionType, status: bool, *, reason: str = "") -> Condition:
        return Condition(type=type_, status=status, reason=reason, at=self.now)

    # --- faults ------------------------------------------------------------------------------------------

    def _crash(self, living: _Living, token: int) -> None:
        course, setting = living.course, self.setting
        if course.token != token:
            return
        every = setting.saves_every(course.job)
        end = course.crash(self.now, keeps_every=every, restart_seconds=setting.restart_seconds)
        self._plan_end(living, end)

    def _plan_loss(self, number: int) -> None:
        flavor = self.setting.flavor_at(number)
        mean = self.setting.faults.node_mtbf_hours
        if flavor is not None and flavor.node_mtbf_hours is not None:
            mean = flavor.node_mtbf_hours
        if mean is not None:
            after = self._chance.expovariate(1 / (mean * _SECONDS_PER_HOUR))
            self.timeline.plan(self.now + after, partial(self._lose_node, number))

    def _lose_node(self, number: int) -> None:
        """Remove a node: the Workloads on it lose their unsaved work and return to the queue."""
        self.engine.objects.upsert(self.cluster.node(number, is_ready=False), now=self.now)
        name = self.cluster.node_name(number)
        for living in list(self._living.values()):
            if name in living.nodes and not living.workload.is_evicted:
                every = self.setting.saves_every(living.course.job)
                self._evict(living, EvictionReason.NODE_FAILURES, keeps_every=every)
        self.timeline.plan(self.now + self.setting.faults.repair_seconds, partial(self._mend, number))

    def _mend(self, number: int) -> None:
        self.engine.objects.upsert(self.cluster.node(number), now=self.now)
        self._plan_loss(number)


_RESERVED = (ConditionType.QUOTA_RESERVED, ConditionType.ADMITTED)


def _nodes(admission: Admission) -> Iterator[str]:
    for pod_set in admission.pod_sets:
        if pod_set.topology is not None:
            yield from (domain.values[-1] for domain in pod_set.topology.domains)
