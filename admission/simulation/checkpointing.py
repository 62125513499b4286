"""Who is evicted for whom in a simulation, what its last checkpoint keeps, and what the engine is told of it.

A trace says nothing of checkpoints, so each Job draws how often it saves, by the seed and its own id alone:
the same Job saves at the same instants under every policy, and whether others are in the trace or not.
Intervals are drawn log-uniformly, as people's habits span an order of magnitude; a share of the Jobs
publishes, the others save as often and tell nobody. What a policy knows is what the cluster would show:
annotations of those that publish, brought up to date at each checkpoint of a running Job.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.simulation.settings import Checkpoints
from admission.simulation.traces import TraceJob
from api import keys
from api.workload import to_rfc3339

HIGH_PRIORITY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How one Job saves: every so many seconds, and whether it tells."""

    interval_seconds: float
    publishes: bool


@dataclass(slots=True)
class Habits:
    """The habits of all Jobs of a trace, drawn once each."""

    settings: Checkpoints
    seed: int
    _known: dict[str, Habit] = field(default_factory=dict)

    def of(self, job: TraceJob) -> Habit:
        """Return the Job's habit."""
        known = self._known.get(job.id)
        if known is None:
            chance = random.Random(f"{self.seed}/{job.id}")
            least, most = self.settings.least_interval_seconds, self.settings.most_interval_seconds
            interval = math.exp(chance.uniform(math.log(least), math.log(most)))
            publishes = chance.random() < self.settings.publishing_share
            known = self._known[job.id] = Habit(interval_seconds=interval, publishes=publishes)
        return known

    def saves_on_sigterm(self, job: TraceJob) -> bool:
        """Return whether the Job saves whenever it is told to end, whatever the policy."""
        return self.settings.on_sigterm and self.of(job).publishes

    def told(
        self, job: TraceJob, *, saved_at: float | None, restart_seconds: float, save_seconds: float
    ) -> Mapping[str, str]:
        """Return what the Workload's annotations say; nothing of a Job that does not publish."""
        habit = self.of(job)
        if not habit.publishes:
            return {}
        declared = {
            keys.WORKLOAD_TYPE: "training",
            keys.CHECKPOINT_INTERVAL_SECONDS: str(round(habit.interval_seconds)),
            keys.CHECKPOINT_RESTART_SECONDS: str(round(restart_seconds)),
        }
        if self.settings.on_sigterm:
            declared[keys.CHECKPOINT_ON_SIGTERM] = "true"
            declared[keys.CHECKPOINT_SAVE_SECONDS] = str(math.ceil(save_seconds))
        return declared if saved_at is None else {**declared, keys.CHECKPOINT_TIME: to_rfc3339(saved_at)}
