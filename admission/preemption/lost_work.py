"""The loss of an eviction in device-seconds, and which Workloads a policy protects from eviction.

Work since the last checkpoint is lost, and the devices are idle while the job starts again:

    loss = devices × (min(t − last checkpoint, t − start) + restart)        in device-seconds

    ──┬────────────┬──────────────────┬──────▶ t        kept up to c, lost from c to t
    start     checkpoint c          evicted

A Workload that will be asked to save before its eviction (`admission.preemption.checkpoint_before_eviction`)
and can do so within the grace, or that saves at SIGTERM, loses no more than the save takes. It loses only the
restart where its own next checkpoint comes in time:

    loss = devices × (min(t − last checkpoint, t − start, save) + restart)

All terms but `t`, `start` and `devices` are declared by the job itself. So each term is bounded, such that no
declaration protects a Workload from eviction, and none that is true makes its eviction more likely:

  - A Workload that reports no checkpoint counts as having saved when half of those that do report had started
    (their median start), or at its own start where that is later. If it counted as never having saved,
    silence would protect it; if it counted as saving all the time, reporting would. Earlier attempts of a
    reporting Workload move its start back by the time that they ran (`_reporting_starts`).
  - Lost work counts up to `maxCountedLossSeconds`, and up to twice the interval that the job itself declares.
  - Where no checkpoint has come for twice the declared interval, the Workload counts as reporting none.
  - A checkpoint in the future counts as none; within a minute it is clock skew, and counts as now.
  - Times to save and to restart count up to `maxDeclaredSeconds`.

Inference keeps no progress: it loses its restart alone, where the policy prefers inference as victims.
The idea of the median is from the discussion of Kueue's issue 477.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from statistics import median_low

from admission.preemption.checkpoint_before_eviction import credible_checkpoint, plan_save, saves_at_sigterm
from admission.preemption.eviction_cost import devices_of, eviction_cost, save_seconds_of
from admission.preemption.replicas import Guard, KeptReplicas
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState, QueueTree
from api.jobs.checkpoint_annotations import CLOCK_SKEW_SECONDS, CheckpointFacts, checkpoint_facts
from api.policy import AdmissionPolicy, PreemptionRules, VictimRules
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import Estimator
from queues.estimates.runtime_estimate import Estimate
from queues.quota.resources import to_quantities

_DEFAULT_RULES = VictimRules()
_PREEMPTED = EvictionReason.PREEMPTED.value
# How many preemptions double the minimum run time: eight times ten minutes are more than an hour.
_MOST_DOUBLINGS = 3


@dataclass(slots=True, kw_only=True)
class EvictionLosses:
    """The losses of one cycle, each computed once. `now` is in Unix seconds.

    Created for each cycle, because losses grow with time. `spared` maps a ClusterQueue to the first instant
    (Unix seconds) at which a policy stops sparing one of its candidates.
    """

    now: float
    # What earlier runs have taught; the default knows of none.
    estimator: Estimator = field(default_factory=Estimator)
    # By ClusterQueue: the earliest instant at which a candidate for its head is no longer spared.
    spared: dict[str, float] = field(default_factory=dict)
    # By preemptor: the candidates that a floor, a budget or a policy keeps from it.
    _kept: dict[WorkloadKey, KeptReplicas] = field(default_factory=dict)
    # The setting that spares a Workload.
    _spared_by: dict[WorkloadKey, str] = field(default_factory=dict)
    _medians: dict[int, float | None] = field(default_factory=dict)
    _known: dict[tuple[str, str], float] = field(default_factory=dict)
    _estimates: dict[tuple[str, str], Estimate | None] = field(default_factory=dict)
    # Whether a section has rules. It is stored with the section, so that no other object can reuse its id.
    _rules: dict[int, tuple[PreemptionRules, bool]] = field(default_factory=dict)

    def of(self, held: HeldWorkload, queue: QueueState) -> float:
        """Return the loss of evicting the Workload now, by the policy of `queue`, in device-seconds.

        0 for a Workload that has not started; of preferred inference only the restart counts. The policy that
        counts is that of `queue`, which is the victim's own or the preemptor's, as the caller decides.
        """
        # The key has the policy's name, because the bounds of two policies may differ.
        question = (held.workload.uid, queue.policy.name)
        if question not in self._known:
            self._known[question] = self._work_out(held, queue.tree, queue.policy)
        return self._known[question]

    def spared_until(self, held: HeldWorkload, queue: QueueState, priority: int) -> float | None:
        """Return until when the Workload may not be evicted for one of `priority` (Unix seconds).

        By the policy of its own `queue`. None: it may be evicted now; infinity: time alone never allows it.

        The rules are asked in this order: the guards for training, near completion, and the minimum run time,
        which protects from equal priority only. What spares it is kept for `protection_message`.
        """
        section = queue.policy.preemption
        if section is None:
            return None
        has_rules = self._has_rules(section)
        # The minimum run time does not protect from a higher priority, and a Workload that is leaving
        # already needs no protection.
        if (held.workload.priority < priority and not has_rules) or held.is_evicted:
            return None
        if has_rules:
            facts = held.facts(with_aliases=queue.policy.reads_aliases)
            # Preferred inference is a candidate whatever its minimum run time: it has no progress to protect.
            if facts.is_inference and section.rules.prefers_inference and held.workload.priority < priority:
                return None
            if facts.is_training and (rule := self._protecting_rule(held, facts, section, priority)):
                self._spared_by[held.key] = rule
                return inf
            nearly_done = self._nearly_done_until(held, queue.policy) if facts.is_training else None
            if nearly_done is not None:
                self._spared_by[held.key] = "protectNearlyDone"
                return nearly_done
        start = started_at(held.workload)
        if start is None or held.workload.priority < priority:
            return None
        ends_at = start + section.minimum_runtime_seconds * self._patience(held, queue)
        self._spared_by[held.key] = "minimumRuntimeSeconds"
        # Over at the very instant of its end, at which the head is woken.
        return ends_at if ends_at > self.now else None

    def protects_none_below(self, queue: QueueState) -> bool:
        """Return whether the policy of `queue` spares none of its Workloads from a higher priority.

        A cheap test that saves the question to each candidate.
        """
        section = queue.policy.preemption
        return section is None or not self._has_rules(section)

    def _has_rules(self, section: PreemptionRules) -> bool:
        """Return whether the section has any rule other than the defaults."""
        # Compared once for each section and cycle, by identity, since it is needed for every candidate.
        if id(section) not in self._rules:
            self._rules[id(section)] = section, section.rules != _DEFAULT_RULES
        return self._rules[id(section)][1]

    @staticmethod
    def _patience(held: HeldWorkload, queue: QueueState) -> int:
        """Return the factor of the minimum run time: it doubles with each preemption of the Workload.

        Otherwise two Workloads that may evict each other would do so for ever, as soon as each may. Under
        least attained service such alternation is intended, and the factor is 1.
        """
        if queue.turns is not None:
            return 1
        times = sum(n for (reason, _), n in held.workload.evictions.items() if reason == _PREEMPTED)
        # Bounded: doubled further, it would mean in practice that the Workload is never evicted.
        return int(2 ** min(times, _MOST_DOUBLINGS))

    def note_spared(self, queue: str, until: float) -> None:
        """Note that the head of the ClusterQueue `queue` may try again at `until`."""
        self.spared[queue] = min(until, self.spared.get(queue, inf))

    def note_spared_from(self, preemptor: WorkloadKey, held: HeldWorkload, until: float) -> None:
        """Note that a policy spares a candidate of this preemptor until then.

        Call it right after `spared_until` has returned `until` for this Workload.
        """
        rule = self._spared_by[held.key]
        self._kept.setdefault(preemptor, KeptReplicas()).note_spared(held, rule, until)

    def note_kept(self, preemptor: WorkloadKey, held: HeldWorkload, guard: Guard) -> None:
        """Note that a floor or a budget keeps a candidate from this preemptor."""
        self._kept.setdefault(preemptor, KeptReplicas()).note(held, guard)

    def protection_message(self, preemptor: WorkloadKey) -> str:
        """Return a message about the candidates that are kept from this preemptor; empty where none is.

        Stable while nothing changes, so that the condition is not written again and again.
        """
        kept = self._kept.get(preemptor)
        return "" if kept is None else kept.description(preemptor.namespace)

    def _protecting_rule(
        self, held: HeldWorkload, facts: CheckpointFacts, section: PreemptionRules, priority: int
    ) -> str:
        """Return the rule that protects it from one of `priority` until something changes; empty for none."""
        # Each rule is on only where its setting is given; the first one that applies is returned.
        rules = section.rules
        if rules.protected_priority is not None and held.workload.priority >= rules.protected_priority:
            return "protectPriority"
        started = started_at(held.workload) or 0.0
        saved_at = credible_checkpoint(facts, now=self.now, started_at=started)
        if rules.protects_uncheckpointed and saved_at is None:
            return "protectUncheckpointed"
        max_age = rules.checkpoint_max_age_seconds
        if max_age is None:
            return ""
        is_old = saved_at is None or self.now - saved_at >= max_age
        # This rule checks the priority too; for other rules Kueue's settings say
        # which priorities are evicted.
        return "requireFreshCheckpoint" if is_old or held.workload.priority >= priority else ""

    def _nearly_done_until(self, held: HeldWorkload, policy: AdmissionPolicy) -> float | None:
        """Return until when a running Workload is spared as nearly done (Unix seconds); None where it is not.

        A run time that a Job only declares protects nothing: its enforced limit counts, else earlier runs.
        """
        section, start = policy.preemption, started_at(held.workload)
        most = section.rules.protected_remaining_seconds if section is not None else None
        if most is None or start is None:
            return None
        # Cached: searches ask this of each candidate several times, and a learned time encodes the pods.
        question = (held.workload.uid, policy.name)
        if question not in self._estimates:
            self._estimates[question] = self.estimator.unclaimed_estimate(held.workload, policy)
        estimate = self._estimates[question]
        if estimate is None or start + estimate.seconds - self.now >= most:
            return None
        # Past an enforced limit it is being stopped already.
        if estimate.is_enforced:
            return inf
        # A Workload that runs longer than its earlier runs may run for ever.
        ends_at = start + estimate.seconds
        return ends_at if ends_at > self.now else None

    def _work_out(self, held: HeldWorkload, tree: QueueTree, policy: AdmissionPolicy) -> float:
        """Compute the loss, in device-seconds: work since the last checkpoint, within the policy's limits."""
        rules = policy.preemption or PreemptionRules()
        # The victim's own declarations, under the annotation names that the policy reads.
        facts = held.facts(with_aliases=policy.reads_aliases)
        start = started_at(held.workload)
        if start is None:
            return 0.0  # It reserves quota and has not started.
        # Never before its own start: what earlier attempts have saved is not lost.
        lost = max(0.0, self.now - max(start, self._kept_until(facts, start, tree)))
        lost = min(lost, _most_counted(facts, rules))
        plan = plan_save(held.workload, policy, now=self.now, facts=held.facts())
        if saves_at_sigterm(held.workload, facts):
            # It saves a checkpoint while its pods terminate.
            lost = min(lost, save_seconds_of(facts, rules))
        elif plan is not None:
            # Asked to save, it loses no more than the save takes; by its own next checkpoint, nothing.
            lost = 0.0 if plan.ask_at > self.now else min(lost, save_seconds_of(facts, rules))
        if facts.is_inference and rules.rules.prefers_inference:
            lost = 0.0
        return eviction_cost(held, lost, facts, rules)

    def _kept_until(self, facts: CheckpointFacts, started: float, tree: QueueTree) -> float:
        """Return up to when the work counts as saved, by the Workload's own reports or by those of others."""
        saved_at = credible_checkpoint(facts, now=self.now, started_at=started)
        if saved_at is not None:
            return saved_at
        assumed = self._median_start(tree)
        # Where no Workload reports checkpoints, all of them are treated alike.
        return assumed if assumed is not None else 0.0

    def _median_start(self, tree: QueueTree) -> float | None:
        """Return the median start of the Workloads in the tree that report checkpoints, None without any."""
        # By the tree's identity, for one cycle: the Workloads of a tree compete with each other.
        if id(tree) not in self._medians:
            ordered = sorted(self._reporting_starts(tree))
            self._medians[id(tree)] = median_low(ordered) if ordered else None
        return self._medians[id(tree)]

    def _reporting_starts(self, tree: QueueTree) -> Iterator[float]:
        """Yield when those in the tree that report checkpoints would have started without any eviction.

        A Workload that reports and is evicted often also starts often. If only its last start counted, a
        silent Workload would seem to have saved a moment ago, so that its eviction would cost almost nothing.
        """
        for queue in tree.queues:
            for held in queue.held.values():
                facts, workload = held.facts(), held.workload
                # Called for every running Workload, so the test that excludes most comes first.
                if facts.saved_at is None or (started := started_at(workload)) is None:
                    continue
                if credible_checkpoint(facts, now=self.now, started_at=started) is not None:
                    yield started - workload.accumulated_execution_seconds


def lost_work(workload: Workload, *, saved_at: float | None, now: float) -> float:
    """Return what a Workload that stops now loses, in device-seconds: its work since its last checkpoint.

    Unlike the loss that victims are compared by, it is bounded only by the start of the attempt. A Workload
    without a reported checkpoint loses the whole attempt; inference loses nothing.
    """
    start = started_at(workload)
    if start is None or workload.admission is None or checkpoint_facts(workload).is_inference:
        return 0.0
    kept_until = start if saved_at is None or saved_at > now + CLOCK_SKEW_SECONDS else max(start, saved_at)
    return devices_of(to_quantities(workload.admission.pod_sets)) * max(0.0, now - kept_until)


def started_at(workload: Workload) -> float | None:
    """Return when the present attempt could start (Unix seconds), None while it may not run.

    The transition time of Admitted=True, since pods may run from then on.
    """
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    return admitted.at if admitted is not None and admitted.status else None


def _most_counted(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    """Return the most seconds of lost work that count: the policy's limit, or twice its own save interval."""
    most = float(rules.max_counted_loss_seconds)
    return most if facts.interval_seconds is None else min(most, 2 * facts.interval_seconds)
