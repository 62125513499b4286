"""How long a Workload will run: what somebody said, what earlier runs took, and what an outrun guess becomes.

Of the sources the first that exists counts: a limit that is enforced is an upper bound, a declared time is a
promise of the user's, a learned one an observation, the queue's default a last resort. The estimate is kept
apart from the limit: nobody is stopped for outrunning a guess (only for outrunning it on promised capacity).

Learned runtimes are quantiles over the latest runs of the same namespace, name stem and shape: in production
traces most jobs are repeats of others with the same name but for a number or a hash, and of a few recent runs
a high quantile errs on the side that breaks no promise.
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

# Runs remembered for one key. Older ones say less about the next than their number would suggest.
REMEMBERED_RUNS = 20
# Keys remembered: with all their runs some 30 MB, as a rule a tenth. The one without news for longest goes.
REMEMBERED_KEYS = 10_000
# An outrun estimate is raised by this much at least, in seconds: promises are not moved every second.
_LEAST_RAISE_SECONDS = 60.0

_DIGEST_BYTES = 6
# A last part with a digit in it is a counter, a date or a hash: "train-7", "eval-2026-01-31", "job-x7f2k".
# What `generateName` puts behind it has none in one of five cases: "train-cddpl". Its alphabet has no vowels,
# so that hardly a word is taken for it. Source: Kubernetes, apimachinery, pkg/util/rand.
_LAST_PARTS = re.compile(r"([-._](?=[a-z0-9]*[0-9])[a-z0-9]+)*(-[bcdfghjklmnpqrstvwxz2456789]{5})?$|[0-9]+$")


class Source(StrEnum):
    """Where an estimate comes from, the most trusted first."""

    EXECUTION_LIMIT = "ExecutionLimit"
    JOB_DEADLINE = "JobDeadline"
    COMPLETION_TIME = "CompletionTime"
    DECLARED = "Declared"
    LEARNED = "Learned"
    QUEUE_DEFAULT = "QueueDefault"


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A run time in seconds, from the start of its pods, and who says so."""

    seconds: float
    source: Source

    @property
    def is_enforced(self) -> bool:
        """Whether it cannot be outrun: at the limit the work is stopped."""
        return self.source in (Source.EXECUTION_LIMIT, Source.JOB_DEADLINE)


class RunKey(NamedTuple):
    """Which runs are alike: of one namespace, one name stem, one shape (a digest)."""

    namespace: str
    stem: str
    shape: str


def run_key(namespace: str, name: str, shape: bytes) -> RunKey:
    """Return under which key the run of an object of that name and shape is remembered."""
    digest = blake2b(shape, digest_size=_DIGEST_BYTES).hexdigest()
    return RunKey(namespace, name_stem(name), digest)


# `or name`: "2026-01-31" would leave nothing, and all such Jobs would be one kind.
def name_stem(name: str) -> str:
    """Return the name without the parts that tell repeats apart; a name of such parts alone stays."""
    return _LAST_PARTS.sub("", name) or name


def raised(seconds: float, elapsed: float, percent: int) -> float:
    """Return the estimate raised in steps of `percent` of itself until it exceeds `elapsed`, in seconds.

    Steps, since work that has outrun a guess by a minute is likely to outrun it by much more: raising to the
    present instant would move a promise at every look.
    """
    # At least a minute a step, so that an estimate of seconds is not raised at every look.
    while seconds <= elapsed:
        seconds += max(_LEAST_RAISE_SECONDS, seconds * percent / 100)
    return seconds


class LearnedRuntimes:
    """Run times of work that has ended well, by key; each run once, whoever tells of it. One task owns it."""

    def __init__(self) -> None:
        #: The latest runs of each key, the oldest first; keys in the order of their latest news.
        self.runs: Tracked[RunKey, tuple[Run, ...]] = Tracked()

    def __len__(self) -> int:
        return len(self.runs)

    def observe(self, key: RunKey, *runs: Run) -> None:
        """Remember these runs; the oldest of the key, or the key without news for longest, is forgotten."""
        known = self.runs.get(key, ())
        latest = merged(known, runs, REMEMBERED_RUNS)
        if latest is known:
            return
        # Taken out and put in again, which makes it the youngest key: dicts keep the order of insertion.
        self.runs.pop(key)
        while len(self.runs) >= REMEMBERED_KEYS:
            del self.runs[next(iter(self.runs))]
        self.runs[key] = latest

    def count(self, key: RunKey) -> int:
        """Return how many runs are remembered for the key."""
        return len(self.runs.get(key, ()))

    def quantile(self, key: RunKey, share: float) -> float | None:
        """Return the time within which this share of the runs ended, None where none is remembered.

        The smallest observed time that at least that share of the runs did not exceed: no interpolation, so
        that one run is its own quantile.
        """
        runs = self.runs.get(key)
        if not runs:
            return None
        # The nearest-rank definition; a share of 0 means the shortest.
        return sorted(run.seconds for run in runs)[max(0, ceil(share * len(runs)) - 1)]

    def items(self) -> Iterator[tuple[RunKey, tuple[Run, ...]]]:
        """Return all keys in order, with their runs, the oldest first."""
        return ((key, self.runs[key]) for key in sorted(self.runs))
