"""A resumable cycle: one scheduling cycle in small steps, so that its driver can do other work between them.

A thousand heads in one quota tree take seconds to decide, and the decisions depend on each other: the second
head is decided on top of what the first one took. So a cycle is not split into smaller ones; it pauses.

    step, step, step ─▶ pause: the trial is taken off ─▶ other work ─▶ step: it is put back and goes on

- A reader in a pause sees the state as it was before the cycle, since the trial is off the state then.
- A writer in a pause has to end the cycle first (`interrupt`): the heads return to their queues unchanged,
  and the next cycle starts from the new state. Once outcomes are being applied, `interrupt` applies the rest
  of them, since they were decided together. A driver that needs cycles to finish therefore defers changes
  until the cycle is over.

The invariant: between two calls of `step` either the whole trial is on the state or, after `pause`, none of
it; and every head is in exactly one place, in flight or in its queue. Going on with a snapshot that has
changed would be wrong, and copying the state for each cycle, as Kueue does, is what this design avoids.

A pause costs what it takes to take the trial off and put it back, O(changes tried so far), so a cycle should
pause only when there is other work. It ends because `schedule` ends and each outcome is applied once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from admission.decisions.decision import Decision, Evict
from admission.nomination.head_outcome import HeadOutcome
from admission.scheduler.scheduler import CycleRules, schedule
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from queues.pending.pending_queue import Pending, RequeueCause

Head = tuple[QueueState, Pending]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEffects:
    """How a cycle changes the state.

    `apply` applies one outcome and appends the decisions that follow from it. `finish` returns the decisions
    that report promises. `undo` takes back what backfill recorded in a cycle that came to nothing.
    """

    apply: Callable[[HeadOutcome, list[Decision]], None]
    finish: Callable[[], Sequence[Decision]]
    undo: Callable[[], None]


class Cycle:
    """The decisions on some heads, being made. `decisions` are complete once `step` has returned False."""

    def __init__(
        self,
        snapshot: Snapshot,
        heads: Sequence[Head],
        rules: CycleRules,
        *,
        evictions: Sequence[Evict],
        effects: CycleEffects,
    ) -> None:
        """`evictions` are those that time demands: expired leases, begun reservations.

        `heads` holds at most one Workload of each ClusterQueue, already taken out of it.
        """
        # Evictions that time demands come first: they do not depend on the heads.
        self.decisions: list[Decision] = [*evictions]
        self._effects = effects
        self._snapshot = snapshot
        # The heads whose outcomes have not been applied, by ClusterQueue.
        self._in_flight = {queue.name: (queue, pending) for queue, pending in heads}
        self._now = rules.now
        self._is_applying = False
        self._steps = self._run(rules) if heads else None
        if not heads:
            self.decisions += effects.finish()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self._steps is None

    def step(self) -> bool:
        """Nominate a head, process it, or apply its outcome. Return whether more is left.

        An exception in deciding is raised again after the trial was rolled back and all heads
        in flight were requeued.
        """
        if self._steps is None:
            return False
        # Put the trial back on the state, if a pause has taken it off.
        self._snapshot.trial.resume()
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except Exception:
            self._steps = None
            self._snapshot.rollback()
            self._effects.undo()
            for queue, pending in self._in_flight.values():
                # A generic failure is retried, so that one exception does not park a head for good.
                queue.pending.requeue(pending, RequeueCause.GENERIC, now=self._now)
            raise
        return self._steps is not None

    def pause(self) -> None:
        """Take the trial off the state until the next step."""
        if self._steps is not None:
            self._snapshot.trial.suspend()

    def interrupt(self) -> list[QueueState]:
        """End the cycle because the state is about to change.

        If outcomes are being applied, the rest is applied too, and no queue is returned. Otherwise nothing
        stays of the trial: the heads in flight are put back unchanged, and their ClusterQueues are returned.
        """
        # Outcomes were decided together, so they are applied together.
        if self._is_applying:
            while self.step():
                pass
        if self._steps is None:
            return []
        # Closing runs the `finally` clauses of pending searches, which must restore the
        # snapshot before the rollback.
        self._steps.close()
        self._steps = None
        self._snapshot.rollback()
        self._effects.undo()
        for queue, pending in self._in_flight.values():
            queue.pending.put_back(pending)
        return [queue for queue, _ in self._in_flight.values()]

    def _run(self, rules: CycleRules) -> Generator[None]:
        heads = tuple(self._in_flight.values())
        outcomes = yield from schedule(self._snapshot, heads, rules, pass_on=self._pass_on)
        self._is_applying = True
        for outcome in outcomes:
            # Its outcome is part of the state from here on, so `interrupt` must not requeue it.
            del self._in_flight[outcome.queue.name]
            self._effects.apply(outcome, self.decisions)
            yield
        self.decisions += self._effects.finish()

    def _pass_on(self, outcome: HeadOutcome) -> Pending | None:
        """Apply the outcome of a head that waits, and return the next of its queue, None if it is empty.

        A waiting head takes no quota, so its outcome can be applied before other heads are decided.
        """
        queue = outcome.queue
        del self._in_flight[queue.name]
        self._effects.apply(outcome, self.decisions)
        pending = queue.pending.pop()
        if pending is not None:
            self._in_flight[queue.name] = queue, pending
        return pending
