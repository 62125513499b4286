"""Run time estimates: their sources, what earlier runs teach, and how an exceeded estimate is raised.

Of the sources the first that exists is used. An enforced limit is an upper bound, a declared time is
a statement of the user, a learned time an observation, and the queue's default a last resort.
Estimate and limit are separate: no Workload is stopped because it exceeds an estimate, unless it
runs on promised capacity.

Learned run times are quantiles over the latest runs of the same namespace, name stem and shape. In production
traces most jobs repeat others whose name differs only by a number or a hash. A high quantile of a few recent
runs errs on the side that keeps promises.
Source: Tsafrir et al. 2007 (few recent runs, raising in steps); Weng et al. 2022 (recurrence by name).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

import msgspec

from queues.estimates.run_history import Run, merged
from queues.tracked import Tracked

# Runs remembered per key. Older runs say less about the next one than their number would suggest.
REMEMBERED_RUNS = 20
# Keys remembered: about 30 MB when all are full, as a rule a tenth. The key least
# recently updated is dropped.
REMEMBERED_KEYS = 10_000
# An exceeded estimate is raised by at least this many seconds, so that promises do not move every second.
_LEAST_RAISE_SECONDS = 60.0

_DIGEST_BYTES = 6
# A last part with a digit in it is a counter, a date or a hash: "train-7", "eval-2026-01-31", "job-x7f2k".
# One in five suffixes of `generateName` has no digit: "train-cddpl". Their alphabet has no vowels, so hardly
# any word is mistaken for one.
# Source: Kubernetes, apimachinery, pkg/util/rand.
_LAST_PARTS = re.compile(r"([-._](?=[a-z0-9]*[0-9])[a-z0-9]+)*(-[bcdfghjklmnpqrstvwxz2456789]{5})?$|[0-9]+$")


class Source(StrEnum):
    """The source of an estimate, the most trusted first."""

    EXECUTION_LIMIT = "ExecutionLimit"
    JOB_DEADLINE = "JobDeadline"
    COMPLETION_TIME = "CompletionTime"
    DECLARED = "Declared"
    LEARNED = "Learned"
    QUEUE_DEFAULT = "QueueDefault"


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A run time in seconds, counted from the start of the pods, and its source."""

    seconds: float
    source: Source

    @property
    def is_enforced(self) -> bool:
        """Whether the work is stopped at this time, so that it cannot run longer."""
        return self.source in (Source.EXECUTION_LIMIT, Source.JOB_DEADLINE)


class RunKey(NamedTuple):
    """Identifies runs that are alike: namespace, name stem, and a digest of the shape."""

    namespace: str
    stem: str
    shape: str


def run_key(namespace: str, name: str, shape: bytes) -> RunKey:
    """Return the key under which runs of an object with this name and shape are remembered."""
    digest = blake2b(shape, digest_size=_DIGEST_BYTES).hexdigest()
    return RunKey(namespace, name_stem(name), digest)


def name_stem(name: str) -> str:
    """Return the name without the parts that tell repeats apart; the whole name if nothing is left."""
    # Without `or name`, "2026-01-31" would leave nothing, and all such Jobs would share one key.
    return _LAST_PARTS.sub("", name) or name


def raised(seconds: float, elapsed: float, percent: int) -> float:
    """Return the estimate raised in steps of `percent` of itself until it exceeds `elapsed`, in seconds.

    In steps, because work that exceeded its estimate by a minute is likely to exceed it by much more: raising
    to the present instant would move promises each time it is checked.
    """
    # At least a minute per step, so that a short estimate is not raised each time it is checked.
    while seconds <= elapsed:
        seconds += max(_LEAST_RAISE_SECONDS, seconds * percent / 100)
    return seconds


class LearnedRuntimes:
    """Run times of successful runs, by key. Each run counts once. One task owns the object."""

    def __init__(self) -> None:
        #: The latest runs of each key, the oldest first. Keys are in the order of their latest update.
        self.runs: Tracked[RunKey, tuple[Run, ...]] = Tracked()

    def __len__(self) -> int:
        return len(self.runs)

    def observe(self, key: RunKey, *runs: Run) -> None:
        """Remember these runs. Drops the oldest runs of the key, and the key least recently updated."""
        known = self.runs.get(key, ())
        latest = merged(known, runs, REMEMBERED_RUNS)
        if latest is known:
            return
        # Removed and inserted again, which moves the key to the end: dicts keep the order of insertion.
        self.runs.pop(key)
        while len(self.runs) >= REMEMBERED_KEYS:
            del self.runs[next(iter(self.runs))]
        self.runs[key] = latest

    def count(self, key: RunKey) -> int:
        """Return how many runs are remembered for the key; 0 for an unknown key."""
        return len(self.runs.get(key, ()))

    def quantile(self, key: RunKey, share: float) -> float | None:
        """Return the time within which `share` (0 to 1) of the runs ended, None where none is remembered.

        The smallest observed time that at least that share of the runs did not exceed, without interpolation:
        a single run is its own quantile.
        """
        runs = self.runs.get(key)
        if not runs:
            return None
        # The nearest-rank definition. A share of 0 gives the shortest run.
        return sorted(run.seconds for run in runs)[max(0, ceil(share * len(runs)) - 1)]

    def items(self) -> Iterator[tuple[RunKey, tuple[Run, ...]]]:
        """Yield all keys in order, each with its runs, the oldest first."""
        return ((key, self.runs[key]) for key in sorted(self.runs))
