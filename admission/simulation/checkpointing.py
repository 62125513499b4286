"""Checkpoints of simulated Jobs: how often each Job saves, and what the engine knows about it.

A trace has no data on checkpoints, so each Job draws its interval from the seed and its own id only. The same
Job therefore saves at the same times under every policy, whichever other Jobs are in the trace. Intervals are
drawn log-uniformly, because real ones span an order of magnitude. A share of the Jobs reports its
checkpoints; the others save as often without reporting. A policy knows what a cluster would show: the
annotations of Jobs that report, updated at each checkpoint of a running Job.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.simulation.settings import Checkpoints
from admission.simulation.traces import TraceJob
from api import keys
from api.parsing.times import to_rfc3339

HIGH_PRIORITY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How one Job saves: its interval in seconds, and whether it reports its checkpoints."""

    interval_seconds: float
    publishes: bool


@dataclass(slots=True)
class Habits:
    """The habits of all Jobs of a trace. Each is drawn once."""

    settings: Checkpoints
    seed: int
    _known: dict[str, Habit] = field(default_factory=dict)

    def of(self, job: TraceJob) -> Habit:
        """Return the Job's habit, the same for every call and every policy."""
        known = self._known.get(job.id)
        if known is None:
            chance = random.Random(f"{self.seed}/{job.id}")
            least, most = self.settings.least_interval_seconds, self.settings.most_interval_seconds
            interval = math.exp(chance.uniform(math.log(least), math.log(most)))
            publishes = chance.random() < self.settings.publishing_share
            known = self._known[job.id] = Habit(interval_seconds=interval, publishes=publishes)
        return known

    def saves_on_sigterm(self, job: TraceJob) -> bool:
        """Return whether the Job saves at SIGTERM, under any policy."""
        return self.settings.on_sigterm and self.of(job).publishes

    def annotations(
        self, job: TraceJob, *, saved_at: float | None, restart_seconds: float, save_seconds: float
    ) -> Mapping[str, str]:
        """Return the Workload's checkpoint annotations, empty for a Job that does not report."""
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
