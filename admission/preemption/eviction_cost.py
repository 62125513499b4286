"""The cost of an eviction: one formula for every choice of victims, whatever is known about the lost work.

    cost = devices × (work that is done again + restart)        in device-seconds

`admission.preemption.lost_work` computes the first term from the last checkpoint. Under least attained
service (`admission.preemption.least_attained`) it is the time of the save that the Workload is asked for.
This does not grow while the Workload runs, so an order by it stays valid as time passes. Times that a Job
declares count up to the policy's limit.
"""

from __future__ import annotations

from admission.snapshot.held_workload import HeldWorkload
from api.jobs.checkpoint_annotations import CheckpointFacts
from api.jobs.resource_requests import gpus_of
from api.policy import AdmissionPolicy, PreemptionRules
from queues.quota.resources import Quantities, by_resource


def eviction_cost(
    held: HeldWorkload, work_seconds: float, facts: CheckpointFacts, rules: PreemptionRules
) -> float:
    """Return the cost of stopping the Workload now and starting it again, in device-seconds.

    `work_seconds` is the work that has to be done again. A Workload without devices counts as one device.
    """
    return devices_of(held.usage) * (work_seconds + restart_seconds_of(facts, rules))


def cost_if_asked(held: HeldWorkload, policy: AdmissionPolicy) -> float:
    """Return the cost where the Workload saves a checkpoint on request, in device-seconds.

    Without a `preemption` section in the policy its defaults apply. Does not depend on the time.
    """
    rules = policy.preemption or PreemptionRules()
    facts = held.facts(with_aliases=policy.reads_aliases)
    return eviction_cost(held, save_seconds_of(facts, rules), facts, rules)


def save_seconds_of(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    """Return the seconds of a save: declared or measured, within the limit, else the policy's default.

    The limit is the policy's `maxDeclaredSeconds`, so that a Job cannot protect itself by declaring hours.
    """
    declared = facts.save_seconds
    return min(rules.default_save_seconds if declared is None else declared, rules.max_declared_seconds)


def restart_seconds_of(facts: CheckpointFacts, rules: PreemptionRules) -> float:
    """Return the seconds of a restart until work continues; sources and limit as in `save_seconds_of`."""
    declared = facts.restart_seconds
    return min(rules.default_restart_seconds if declared is None else declared, rules.max_declared_seconds)


def devices_of(usage: Quantities) -> int:
    """Return how many devices this usage has; at least 1, so that CPU jobs count too."""
    return max(1, gpus_of(by_resource(usage)))
