"""How work went on each node: the historical part of a domain's score.

    outcome    0 for a run that failed or lost its node; else usual time ÷ own time, halved and at most 1:
               0.5 in the usual time, 1 in half of it, less the longer it took
    score      (outcomes + 0.5 × 4) ÷ (number + 4) over the latest 20 of the node: one bad run says little

A slow network card or a throttled GPU shows in the times of whatever runs there, whoever wrote it; a program
that fails by its own fault does so everywhere, so that it moves no node against the others for long.

By node, although scores are of leaves: a node moves to another leaf with its label, and runs that ended
before this process began are counted before any node is known. What the cluster keeps of finished Workloads
gives the same scores again, as an average does not depend on their order; the store keeps the outcomes of
those that have been deleted since (`admission.controller.leadership.plan_writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from admission.placement.scoring import NEUTRAL_PERFORMANCE
from queues.estimates.run_history import RunOutcome, merged
from queues.tracked import Tracked

# Latest outcomes of a node that count. More would hide that it was mended.
_LATEST = 20
# How many outcomes the neutral score weighs.
_PRIOR = 4
FAILED = 0.0
# Hosts remembered; where nodes come and go with ever new names, the one without news for longest goes first.
_MOST_HOSTS = 25_000


def run_outcome(seconds: float, usual_seconds: float | None) -> float:
    """Return the outcome of a run that ended well. `usual_seconds` None: nothing to compare with."""
    if usual_seconds is None or usual_seconds <= 0:
        return NEUTRAL_PERFORMANCE
    # Half for the usual time, so that better than usual has room above it; a run of no length
    # counts as one second.
    return min(1.0, usual_seconds / max(seconds, 1.0) / 2)


class Performance:
    """Outcomes by host, and the scores that follow. One task owns it."""

    def __init__(self) -> None:
        #: The latest outcomes of each host, the oldest first; hosts in the order of their latest news.
        self.outcomes: Tracked[str, tuple[RunOutcome, ...]] = Tracked()
        self._scores: dict[str, float] = {}

    @property
    def scores(self) -> Mapping[str, float]:
        """The scores of the hosts that anything is known of, each from 0 to 1."""
        return self._scores

    def observe(self, hosts: Iterable[str], *, uid: str, at: float, outcome: float) -> None:
        """Count a run that ended `at` on these hosts; the same one again changes nothing."""
        for host in hosts:
            self.remember(host, (RunOutcome(at=at, uid=uid, outcome=outcome),))

    def remember(self, host: str, outcomes: Iterable[RunOutcome]) -> None:
        """Take in outcomes on a host; those that are known change nothing."""
        known = self.outcomes.get(host, ())
        latest = merged(known, outcomes, _LATEST)
        if latest is known:
            return
        # Taken out and put in again, as the youngest: what is forgotten first is what has not been
        # heard of for longest.
        self.outcomes.pop(host)
        while len(self.outcomes) >= _MOST_HOSTS:
            gone = next(iter(self.outcomes))
            del self.outcomes[gone]
            self._scores.pop(gone, None)
        self.outcomes[host] = latest
        total = sum(one.outcome for one in latest)
        # Pulled towards the middle by _PRIOR neutral outcomes.
        self._scores[host] = (total + NEUTRAL_PERFORMANCE * _PRIOR) / (len(latest) + _PRIOR)
