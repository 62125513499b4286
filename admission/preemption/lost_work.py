"""What an eviction would cost, and whom no eviction may touch.

Work since the last checkpoint is lost, and the devices stand idle while the job starts again:

    loss = devices × (min(t − last checkpoint, t − start) + restart)        in device-seconds

    ──┬────────────┬──────────────────┬──────▶ t        kept up to c, lost from c to t
    start     checkpoint c          evicted

Whoever will be asked to save before it is evicted (`admission.preemption.checkpoint_before_eviction`), and
can do so within the grace, or saves at SIGTERM, loses no more than the save takes, and nothing but the
restart where its own next checkpoint comes in time:

    loss = devices × (min(t − last checkpoint, t − start, save) + restart)

Everything in it but `t`, `start` and `devices` is the job's own word, so each term is bounded such that no
claim makes anybody untouchable, and none is punished for honesty:

  - Who tells of no checkpoint is taken to have saved when half of those who do tell had started (their median
    start), or at its own start where that is later. Were it taken to have saved never, hiding would protect;
    were it taken to save all the time, telling would. Who was stopped and has started again counts as started
    before it by as long as it had run (`_begins_of_who_tell`).
  - Lost work counts up to `maxCountedLossSeconds`, and up to twice the interval that the job itself declares.
  - Whose checkpoints have stopped, by twice its own interval while it runs, is treated like these.
  - A checkpoint of the future counts as none; within a minute it is another clock, and counts as now.
  - Times to save and to restart count up to `maxDeclaredSeconds`.

Inference keeps no progress: it loses its restart alone, where the policy says that it is preferred.
The idea of the median is from the discussion of Kueue's issue 477.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from statistics import median_low

from admission.preemption.checkpoint_before_eviction import believed_checkpoint, plan_save, saves_at_sigterm
from admission.preemption.eviction_cost import devices_of, eviction_cost, save_seconds_of
from admission.preemption.replicas import Guard, KeptReplicas
from admission.snapshot.snapshot import HeldWorkload, QueueState, QueueTree
from api.jobs.checkpoint_annotations import CLOCK_SKEW_SECONDS, CheckpointFacts, checkpoint_facts
from api.policy import AdmissionPolicy, Aliases, PreemptionRules, VictimRules
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import Estimator
from queues.estimates.runtime_estimate import Estimate
from queues.quota.resources import to_quantities

_DEFAULT_RULES = VictimRules()
_PREEMPTED = EvictionReason.PREEMPTED.value
# The minimum run time doubles with each preemption so many times: eight times ten minutes are over an hour.
_MOST_DOUBLINGS = 3


@dataclass(slots=True, kw_only=True)
class EvictionLosses:
    """The losses of one cycle, each worked out once. `now` in Unix seconds."""

    now: float
    # What earlier runs have taught; by itself it knows of none.
    estimator: Estimator = field(default_factory=Estimator)
    # Until when a Workload is spared that might go for the head of a ClusterQueue, the earliest, by its name.
    spared: dict[str, float] = field(default_factory=dict)
    # By who waits: whom the floor of an application, or a budget, kept from it.
    _kept: dict[WorkloadKey, KeptReplicas] = field(default_factory=dict)
    # What spares a Workload, by the name of its setting.
    _spared_by: dict[WorkloadKey, str] = field(default_factory=dict)
    _medians: dict[int, float | None] = field(default_factory=dict)
    _known: dict[tuple[str, str], float] = field(default_factory=dict)
    _estimates: dict[tuple[str, str], Estimate | None] = field(default_factory=dict)
    # With the section itself, so that no other takes its identity meanwhile.
    _rules: dict[int, tuple[PreemptionRules, bool]] = field(default_factory=dict)

    def of(self, held: HeldWorkload, queue: QueueState) -> float:
        """Return what evicting the Workload now would lose by the policy of `queue`, in device-seconds."""
        # By the policy's name: bounds of two policies may differ.
        question = (held.workload.uid, queue.policy.name)
        if question not in self._known:
            self._known[question] = self._work_out(held, queue.tree, queue.policy)
        return self._known[question]

    def spared_until(self, held: HeldWorkload, queue: QueueState, priority: int) -> float | None:
        """Return until when the Workload may not be evicted for one of `priority`, by the policy of its own
        `queue`. None: it may be now; infinity: no time alone will change it.
        """
        section = queue.policy.preemption
        if section is None:
            return None
        has_rules = self._has_rules(section)
        # A higher priority waits for nobody's minimum run time; whoever is leaving
        # already needs no protection.
        if (held.workload.priority < priority and not has_rules) or held.is_evicted:
            return None
        if has_rules:
            facts = held.facts(with_aliases=queue.policy.aliases is Aliases.ARTICLES)
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
        # Equal to now is over, so that the wake-up at that very instant finds it so.
        return ends_at if ends_at > self.now else None

    def spares_nobody_below(self, queue: QueueState) -> bool:
        """Return whether the policy of `queue` lets all of its own be evicted for a higher priority."""
        section = queue.policy.preemption
        return section is None or not self._has_rules(section)

    def _has_rules(self, section: PreemptionRules) -> bool:
        # Compared once a cycle and section, by identity: asked of everybody who runs.
        if id(section) not in self._rules:
            self._rules[id(section)] = section, section.rules != _DEFAULT_RULES
        return self._rules[id(section)][1]

    @staticmethod
    def _patience(held: HeldWorkload, queue: QueueState) -> int:
        """Return how many minimum run times a Workload has: twice as many each time that it was preempted.

        Else two who may evict each other would do so for ever, each time as soon as they may. Where equals
        take turns that is what is wanted.
        """
        if queue.turns is not None:
            return 1
        times = sum(n for (reason, _), n in held.workload.evictions.items() if reason == _PREEMPTED)
        # Bounded: after three preemptions more patience would only mean that it is never evicted.
        return int(2 ** min(times, _MOST_DOUBLINGS))

    def note_spared(self, queue: str, until: float) -> None:
        """Note that the head of the ClusterQueue `queue` may ask again at `until`."""
        self.spared[queue] = min(until, self.spared.get(queue, inf))

    def note_spared_from(self, preemptor: WorkloadKey, held: HeldWorkload, until: float) -> None:
        """Note that its policy spares a candidate from one that waits, until then."""
        rule = self._spared_by[held.key]
        self._kept.setdefault(preemptor, KeptReplicas()).note_spared(held, rule, until)

    def note_kept(self, preemptor: WorkloadKey, held: HeldWorkload, guard: Guard) -> None:
        """Note that a floor or a budget keeps a candidate from one that waits."""
        self._kept.setdefault(preemptor, KeptReplicas()).note(held, guard)

    def kept_from(self, preemptor: WorkloadKey) -> str:
        """Return in words whom floors, budgets and policies kept from one that waits, empty where nobody."""
        kept = self._kept.get(preemptor)
        return "" if kept is None else kept.words()

    def _protecting_rule(
        self, held: HeldWorkload, facts: CheckpointFacts, section: PreemptionRules, priority: int
    ) -> str:
        """Return the rule of the articles that protects from one of `priority` for as long as nothing
        changes; empty for none.
        """
        # Each is on only where its number is given; the first that holds protects.
        rules = section.rules
        if rules.protected_priority is not None and held.workload.priority >= rules.protected_priority:
            return "protectPriority"
        started = started_at(held.workload) or 0.0
        saved_at = believed_checkpoint(facts, now=self.now, started_at=started)
        if rules.protects_uncheckpointed and saved_at is None:
            return "protectUncheckpointed"
        max_age = rules.checkpoint_max_age_seconds
        if max_age is None:
            return ""
        is_old = saved_at is None or self.now - saved_at >= max_age
        # The article's rule has two halves; elsewhere Kueue's settings say to which priorities one gives way.
        return "requireFreshCheckpoint" if is_old or held.workload.priority >= priority else ""

    def _nearly_done_until(self, held: HeldWorkload, policy: AdmissionPolicy) -> float | None:
        """Return until when a running Workload is spared since it is nearly done; None where it is not.

        What a Job merely expects of itself protects nobody: its enforced limit counts, else earlier runs.
        """
        section, start = policy.preemption, started_at(held.workload)
        most = section.rules.protected_remaining_seconds if section is not None else None
        if most is None or start is None:
            return None
        # Searches ask it of each candidate several times, and learned times cost an encoding of the pods.
        question = (held.workload.uid, policy.name)
        if question not in self._estimates:
            self._estimates[question] = self.estimator.unclaimed_estimate(held.workload, policy)
        estimate = self._estimates[question]
        if estimate is None or start + estimate.seconds - self.now >= most:
            return None
        # Who is past its limit is being stopped already.
        if estimate.is_enforced:
            return inf
        # Who runs longer than earlier runs did may do so for ever.
        ends_at = start + estimate.seconds
        return ends_at if ends_at > self.now else None

    def _work_out(self, held: HeldWorkload, tree: QueueTree, policy: AdmissionPolicy) -> float:
        rules = policy.preemption or PreemptionRules()
        # Of the victim: what it says of itself, by the names that the policy reads.
        facts = held.facts(with_aliases=policy.aliases is Aliases.ARTICLES)
        start = started_at(held.workload)
        if start is None:
            return 0.0  # It reserves quota and has not begun.
        # Never before its own start: what earlier attempts kept is kept.
        lost = max(0.0, self.now - max(start, self._kept_until(facts, start, tree)))
        lost = min(lost, _most_counted(facts, rules))
        plan = plan_save(held.workload, policy, now=self.now, facts=held.facts())
        if saves_at_sigterm(held.workload, facts):
            # It saves on its way out.
            lost = min(lost, save_seconds_of(facts, rules))
        elif plan is not None:
            # Asked to save, it loses no more than the save takes; left to its own checkpoint, nothing.
            lost = 0.0 if plan.ask_at > self.now else min(lost, save_seconds_of(facts, rules))
        if facts.is_inference and rules.rules.prefers_inference:
            lost = 0.0
        return eviction_cost(held, lost, facts, rules)

    def _kept_until(self, facts: CheckpointFacts, started: float, tree: QueueTree) -> float:
        saved_at = believed_checkpoint(facts, now=self.now, started_at=started)
        if saved_at is not None:
            return saved_at
        assumed = self._median_start(tree)
        # Where nobody tells, all are alike in that.
        return assumed if assumed is not None else 0.0

    def _median_start(self, tree: QueueTree) -> float | None:
        """Return when half of those in the tree who tell of their checkpoints had started."""
        # By the tree's identity, for one cycle; a tree stands for all who compete with each other.
        if id(tree) not in self._medians:
            ordered = sorted(self._begins_of_who_tell(tree))
            self._medians[id(tree)] = median_low(ordered) if ordered else None
        return self._medians[id(tree)]

    def _begins_of_who_tell(self, tree: QueueTree) -> Iterator[float]:
        """Yield when those in the tree would have started, had they never been stopped, who tell of their
        checkpoints.

        Who tells and is stopped often starts often. By the last start alone its evictions would make it look
        as if whoever tells nothing had saved a moment ago, and cost next to nothing.
        """
        for queue in tree.queues:
            for held in queue.held.values():
                facts, workload = held.facts(), held.workload
                # Asked of everybody who runs, so first what rules out most.
                if facts.saved_at is None or (started := started_at(workload)) is None:
                    continue
                if believed_checkpoint(facts, now=self.now, started_at=started) is not None:
                    yield started - workload.accumulated_execution_seconds


def lost_work(workload: Workload, *, saved_at: float | None, now: float) -> float:
    """Return what a Workload loses that stops now, in device-seconds: its work since its last checkpoint.

    Unlike the loss that victims are compared by, it is bounded by nothing but the start of the attempt. Who
    tells of no checkpoint loses all of that; inference has nothing to lose.
    """
    start = started_at(workload)
    if start is None or workload.admission is None or checkpoint_facts(workload).is_inference:
        return 0.0
    kept_until = start if saved_at is None or saved_at > now + CLOCK_SKEW_SECONDS else max(start, saved_at)
    return devices_of(to_quantities(workload.admission.pod_sets)) * max(0.0, now - kept_until)


def started_at(workload: Workload) -> float | None:
    """Return when the present attempt could start, None while it may not run."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    return admitted.at if admitted is not None and admitted.status else None


def _most_counted(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    most = float(rules.max_counted_loss_seconds)
    return most if facts.interval_seconds is None else min(most, 2 * facts.interval_seconds)
