"""What an eviction costs: the formula that all who choose victims share, whatever they know of the work lost.

    cost = devices × (work that is done again + restart)        in device-seconds

`admission.preemption.lost_work` works out the first term from the last checkpoint. Where Workloads take
turns (`admission.preemption.least_attained`) it is the save that they are asked for, which does not grow
while they run, so that an order by it need not be made anew as time passes. What a Job says of itself counts
up to the policy's bound.
"""

from __future__ import annotations

from admission.snapshot.snapshot import HeldWorkload
from api.jobs.checkpoint_annotations import CheckpointFacts
from api.jobs.resource_requests import gpus_of
from api.policy import AdmissionPolicy, Aliases, PreemptionRules
from queues.quota.resources import Quantities, by_resource


def eviction_cost(
    held: HeldWorkload, work_seconds: float, facts: CheckpointFacts, rules: PreemptionRules
) -> float:
    """Return what it costs to stop the Workload now and start it again, in device-seconds."""
    return devices_of(held.usage) * (work_seconds + restart_seconds_of(facts, rules))


def cost_if_asked(held: HeldWorkload, policy: AdmissionPolicy) -> float:
    """Return what it costs where the Workload saves on request."""
    rules = policy.preemption or PreemptionRules()
    facts = held.facts(with_aliases=policy.aliases is Aliases.ARTICLES)
    return eviction_cost(held, save_seconds_of(facts, rules), facts, rules)


def save_seconds_of(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    """Return how long a save takes: as declared or measured, within the bound, else the policy's default."""
    told = facts.save_seconds
    return min(rules.default_save_seconds if told is None else told, rules.max_declared_seconds)


def restart_seconds_of(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    """Return how long a restart takes before work goes on, known and bounded as the time to save is."""
    told = facts.restart_seconds
    return min(rules.default_restart_seconds if told is None else told, rules.max_declared_seconds)


def devices_of(usage: Quantities) -> int:
    """Return how many devices work of this usage runs on; one without any, so that CPU jobs count too."""
    return max(1, gpus_of(by_resource(usage)))
