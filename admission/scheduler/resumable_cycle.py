"""One cycle under way: it is done in small steps, so that whoever drives it can do other things between them.

A thousand heads in one tree take seconds to decide on, and their decisions hang together: the second head is
decided on top of what the first one took. So the cycle is not cut into smaller ones; it pauses.

    step, step, step ─▶ pause: the trial is taken back ─▶ others have their turn ─▶ step: tried again, go on

- Who asks meanwhile sees the state as it was before the cycle, since the trial is out of sight in a pause.
- Who changes the state meanwhile ends the cycle (`interrupt`): the heads go back to their queues as they
  came, and the next cycle begins with what is known then. What has been carried into the state by then stays,
  with all that was decided together with it. A driver that wants to get on therefore keeps changes until the
  cycle is over. To go on with a picture that has changed would be wrong, and to copy it for each cycle is
  what this design avoids.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from admission.backfill.backfill_cycle import Backfill
from admission.decisions.decision import Decision, Evict
from admission.nomination.nominate import CyclePolicy
from admission.scheduler.outcomes import HeadOutcome
from admission.scheduler.scheduler import IsSpent, schedule
from admission.snapshot.capacity_holds import HoldClaims
from admission.snapshot.snapshot import QueueState, Snapshot
from queues.estimates.estimator import Estimator
from queues.pending.pending_queue import Pending, RequeueCause

Head = tuple[QueueState, Pending]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleTime:
    """What a cycle has to do with time: who gives way, and the judge of who may start; None without backfill.

    `estimator` knows what earlier runs took. `claims` are kept from those that are decided on, and what
    others leave for one of them from the rest, unless it `is_spent`. `undo` takes back what the judge noted
    of a cycle that came to nothing, `finish` returns what is to be told of promises.
    """

    evictions: Sequence[Evict]
    backfill: Backfill | None
    estimator: Estimator
    is_spent: IsSpent
    claims: HoldClaims
    undo: Callable[[], None]
    finish: Callable[[], Sequence[Decision]]


class Cycle:
    """The decisions on some heads in the making. `decisions` are complete once `step` has returned False."""

    def __init__(
        self,
        snapshot: Snapshot,
        heads: Sequence[Head],
        *,
        policy: CyclePolicy,
        apply: Callable[[HeadOutcome, list[Decision]], None],
        now: float,
        time: CycleTime,
    ) -> None:
        """`apply` carries one outcome into the state and adds what is to be done about it."""
        # Evictions that time demands come first: they hold whatever becomes of the heads.
        self.decisions: list[Decision] = [*time.evictions]
        self._time = time
        self._snapshot = snapshot
        # Those whose outcome has not been carried into the state.
        self._in_flight = {queue.name: (queue, pending) for queue, pending in heads}
        self._apply = apply
        self._now = now
        self._is_applying = False
        self._steps = self._run(policy) if heads else None
        if not heads:
            self.decisions += time.finish()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do."""
        return self._steps is None

    def step(self) -> bool:
        """Nominate a head, serve it, or carry its outcome into the state. Returns whether more is left.

        A fault in deciding is raised; it loses no head and leaves no trial behind.
        """
        if self._steps is None:
            return False
        # The trial is put back on the state, as it was taken off in the pause.
        self._snapshot.resume()
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except Exception:
            self._steps = None
            self._snapshot.rollback()
            self._time.undo()
            for queue, pending in self._in_flight.values():
                # As passing failures, so that one fault does not park a head for good.
                queue.pending.requeue(pending, RequeueCause.GENERIC, now=self._now)
            raise
        return self._steps is not None

    def pause(self) -> None:
        """Show the state without the trial until the next step."""
        if self._steps is not None:
            self._snapshot.suspend()

    def interrupt(self) -> list[QueueState]:
        """End the cycle before the state changes: undecided, or with all that was decided carried out.

        Returns the ClusterQueues whose heads were put back as they came.
        """
        # What is decided together is carried out together; there is no way back from a half.
        if self._is_applying:
            while self.step():
                pass
        if self._steps is None:
            return []
        # Closing lets `finally` clauses on the way put the picture right before the rollback.
        self._steps.close()
        self._steps = None
        self._snapshot.rollback()
        self._time.undo()
        for queue, pending in self._in_flight.values():
            queue.pending.put_back(pending)
        return [queue for queue, _ in self._in_flight.values()]

    def _run(self, policy: CyclePolicy) -> Generator[None]:
        heads = tuple(self._in_flight.values())
        outcomes = yield from schedule(
            self._snapshot,
            heads,
            policy=policy,
            now=self._now,
            backfill=self._time.backfill,
            estimator=self._time.estimator,
            claims=self._time.claims,
            pass_on=self._pass_on,
            is_spent=self._time.is_spent,
        )
        self._is_applying = True
        for outcome in outcomes:
            # From here on it is in the state; whoever interrupts must not put it back into its queue.
            del self._in_flight[outcome.queue.name]
            self._apply(outcome, self.decisions)
            yield
        self.decisions += self._time.finish()

    def _pass_on(self, outcome: HeadOutcome) -> Pending | None:
        """Carry into the state that a head waits, and return the next of its queue, None where there is none.

        A word on who waits charges nothing, so that it may come before the others are decided.
        """
        queue = outcome.queue
        del self._in_flight[queue.name]
        self._apply(outcome, self.decisions)
        pending = queue.pending.pop()
        if pending is not None:
            self._in_flight[queue.name] = queue, pending
        return pending
