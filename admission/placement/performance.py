"""The performance of nodes in earlier runs: the historical part of a domain's score.

    outcome    0 for a run that failed or lost its node; else usual time ÷ own time, halved and at most 1:
               0.5 in the usual time, 1 in half of it, less the longer it took
    score      (outcomes + 0.5 × 4) ÷ (number + 4) over the latest 20 of the node: one bad run weighs little

A slow network card or a throttled GPU shows in the run times of all work on the node. A program
that fails through its own fault does so on every node, so it does not lower one node's score
against the others for long.

Outcomes are kept by node, although scores are of leaves: a node moves to another leaf with its label, and
runs that ended before this process started are counted before any node is known. Finished Workloads in the
cluster give the same scores again, because an average does not depend on order. The store keeps the outcomes
of Workloads deleted since (`admission.controller.leadership.plan_writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from admission.placement.scoring import NEUTRAL_PERFORMANCE
from queues.estimates.run_history import RunOutcome, merged
from queues.tracked import Tracked

# Outcomes of a node that count. More would hide that the node was repaired.
_LATEST = 20
# The weight of the neutral score, in outcomes.
_PRIOR = 4
FAILED = 0.0
# Hosts remembered. Beyond that the host least recently updated is dropped.
_MOST_HOSTS = 25_000


def run_outcome(seconds: float, usual_seconds: float | None) -> float:
    """Return the outcome of a successful run; neutral where `usual_seconds` is unknown.

    From 0 to 1, 0.5 for a run of the usual length. Failed runs are not passed here.
    """
    if usual_seconds is None or usual_seconds <= 0:
        return NEUTRAL_PERFORMANCE
    # 0.5 for the usual time leaves room for faster runs. A run shorter than a second counts as one second.
    return min(1.0, usual_seconds / max(seconds, 1.0) / 2)


class Performance:
    """Outcomes by host, and the resulting scores. One task owns it."""

    def __init__(self) -> None:
        #: The latest outcomes of each host, the oldest first. Hosts are in the order of their latest update.
        self.outcomes: Tracked[str, tuple[RunOutcome, ...]] = Tracked()
        self._scores: dict[str, float] = {}

    @property
    def scores(self) -> Mapping[str, float]:
        """The scores, from 0 to 1, of the hosts with any known outcome."""
        return self._scores

    def observe(self, hosts: Iterable[str], *, uid: str, at: float, outcome: float) -> None:
        """Record a run that ended `at` (Unix seconds) on these hosts. A run counts once per host.

        Equal runs that are reported twice, by a relist or by two leaders, are told apart by their `uid`.
        """
        for host in hosts:
            self.remember(host, (RunOutcome(at=at, uid=uid, outcome=outcome),))

    def remember(self, host: str, outcomes: Iterable[RunOutcome]) -> None:
        """Add outcomes of a host. Known ones change nothing.

        At most `_LATEST` outcomes are kept for a host, and at most `_MOST_HOSTS` hosts; those updated longest
        ago are dropped.
        """
        known = self.outcomes.get(host, ())
        latest = merged(known, outcomes, _LATEST)
        if latest is known:
            return
        # Removed and inserted again as the most recently updated; the first host is dropped first.
        self.outcomes.pop(host)
        while len(self.outcomes) >= _MOST_HOSTS:
            gone = next(iter(self.outcomes))
            del self.outcomes[gone]
            self._scores.pop(gone, None)
        self.outcomes[host] = latest
        total = sum(one.outcome for one in latest)
        # Pulled towards the middle by _PRIOR neutral outcomes.
        self._scores[host] = (total + NEUTRAL_PERFORMANCE * _PRIOR) / (len(latest) + _PRIOR)
