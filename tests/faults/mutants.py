"""Mistakes in the protocol that the simulation has to find: each takes one guard out of the code of Berth.

They show what a clean run means: a guard whose loss no seed notices is not tested. `python -m tests.faults
--mutants` checks the seeds that are known to notice; with --seeds it looks for the first. `test_mutants.py`
has short schedules for those that need an interleaving which few seeds draw.

Guards whose loss breaks no law, because another one is behind them, are not in the table:

- `recover_reservations.is_known`: what is replayed is counted first (`Engine.adopt`), beside all that the
  list shows, and a leader that follows one without the store lists only when nothing is in flight any more.
  Without it an old decision may come before a more urgent one, which the laws allow.
- `Leadership.wait_renewed_after` before the store gets a fence: a leader past its lease sends no write to the
  cluster and is cancelled in the turn in which it wakes, and the one that leads corrects at its next look
  what the store holds.
- `Informer._drop_all_but`: Workloads and Jobs are compared with each list a second time, in `ClusterState`,
  and objects of other kinds are not deleted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.leadership import recover_reservations, takeover
from admission.controller.leadership.recover_reservations import ReservationRecovery
from admission.controller.leadership.term_runner import TermRunner
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.writer import leader_term
from admission.controller.writer.delivery import Attempts
from admission.controller.writer.executor import Executor
from admission.controller.writer.leader_term import LeaderTerm
from admission.controller.writer.requests import KubeSender
from admission.decisions.api_writes import Purpose, Write
from admission.engine.engine import Engine
from admission.reconcile.job import reconcile
from admission.reconcile.job.writes import job_patch
from admission.reconcile.reservation_recovery import RecoveryVerdict
from api.kube.errors import Gone, KubeError
from api.kube.informer import Informer
from api.kube.leadership import Leadership
from api.kube.lease import Elector
from api.kube.lease_record import Observation
from queues.reservations.reservations import Reserved
from queues.store.failover_store import FailoverStore
from queues.store.redis_store import RedisReservationStore
from queues.store.write_back import WriteBack
from tests.faults.replica import TIMING
from tests.faults.schedule import Fault


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: in `owner`, `name` is replaced by what `make` makes of it.

    `faults`: those under which the guard matters. Schedules of these alone find its loss in fewer seeds.
    `at_once`: they strike together. `seed`: one that does; None if none is known.
    """

    title: str
    owner: Any
    name: str
    make: Callable[[Any], Any]
    faults: tuple[Fault, ...]
    at_once: bool = False
    seed: int | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the mistake for a while."""
        with mock.patch.object(self.owner, self.name, self.make(getattr(self.owner, self.name))):
            yield


def _always(answer: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: answer


def _later(answer: Any) -> Callable[[Any], Any]:
    """Return what makes a coroutine that only returns this."""

    async def do(*_: Any, **__: Any) -> Any:
        return answer

    return lambda _: do


def _without_version(send: Any) -> Any:
    async def do(self: KubeSender, write: Write, *, timeout_seconds: float) -> bytes:
        if write.purpose is Purpose.ADMIT:
            body = msgspec.json.decode(write.body)
            body["metadata"].pop("resourceVersion", None)
            write = replace(write, body=msgspec.json.encode(body))
        return bytes(await send(self, write, timeout_seconds=timeout_seconds))

    return do


def _unreserved(_: Any) -> Any:
    async def commit(
        self: RedisReservationStore, reservations: Sequence[Any], *, request_id: str, **__: Any
    ) -> Any:
        return tuple(Reserved(request_id=request_id, is_duplicate=False) for _ in reservations)

    return commit


def _given_back_unfenced(_: Any) -> Any:
    def fence_off(self: LeaderTerm, decision: Any, may_land_on: str, raw: bytes | None = None) -> None:
        self._give_back(decision, self._hooks.forget_later)

    return fence_off


def _confirmed_when_sent(submit: Any) -> Any:
    def do(self: LeaderTerm, prepared: Any) -> None:
        self._reservations.confirm(prepared.decision.id)
        submit(self, prepared)

    return do


def _nothing_may_land(note: Any) -> Any:
    def do(self: Attempts, delivery: Any, error: Any) -> None:
        note(self, delivery, error)
        delivery.may_land_on = ""

    return do


def _taken_early(seconds_until_free: Any) -> Any:
    def do(self: Observation, now: float) -> float:
        return max(0.0, float(seconds_until_free(self, now)) - 0.6 * TIMING.duration_seconds)

    return do


def _without_listing(learn: Any) -> Any:
    async def do(self: TermRunner, executor: Executor, unknown: Any, leadership: Any) -> None:
        await learn(self, executor, frozenset(), leadership)

    return do


def _unchecked_adoption(adopt: Any) -> Any:
    def do(self: Engine, workload: Any, *, now: float, always: bool = False) -> Any:
        return adopt(self, workload, now=now, always=True)

    return do


def _dropped_in_recovery(_: Any) -> Any:
    def verdict(reservation: Any, workload: Any, *, is_known: bool = True) -> RecoveryVerdict:
        return RecoveryVerdict.DROP

    return verdict


def _released_while_running(stop: Any) -> Any:
    # Of an evicted Workload, which is the only caller with an admission.
    def do(view: Any, source: Any, note: str = "") -> Any:
        is_evicted = source is not None and source.workload.eviction is not None
        return None if is_evicted and source.workload.admission is not None else stop(view, source, note)

    return do


def _started_unadmitted(steps: Any) -> Any:
    def start(view: Any) -> Any:
        is_waiting = view.match is not None and view.match.workload.admission is None
        if not (is_waiting and view.job.is_suspended):
            return None
        return (job_patch(view, {"spec": {"suspend": False}}, Purpose.START_JOB),)

    return (*steps[:-1], start, steps[-1])


def _never_listed_again(pause_after: Any) -> Any:
    def do(self: Informer[Any], error: KubeError) -> float:
        # Tried again at the same version, at a pace that leaves the others time.
        return 5.0 if isinstance(error, Gone) else float(pause_after(self, error))

    return do


def _kept_decisions(_: Any) -> Any:
    def do(self: ControlLoop, decision: Any, call: Any, *, is_admission: bool = True) -> None:
        return None

    return do


def _fence_kept(write: Any) -> Any:
    async def do(self: Elector, record: Any, fence: int, **options: Any) -> Any:
        known = self._observation.record
        return await write(self, record, known.transitions if known is not None else fence, **options)

    return do


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "no lease check before a write",
        Leadership,
        "write_seconds",
        _always(5.0),
        (
            Fault.FROZEN,
            Fault.LEASE_FAILS,
            Fault.SERVER_SLOW,
        ),
        seed=14,
    ),
    Mutant(
        "lease taken before it has run out",
        Observation,
        "seconds_until_free",
        _taken_early,
        (Fault.LEASE_FAILS,),
        seed=7,
    ),
    Mutant("fence not raised at an election", Elector, "_write", _fence_kept, (Fault.STOPPED,), seed=0),
    Mutant(
        "every term continues the last one",
        Leadership,
        "continues",
        lambda _: property(lambda _: True),
        (
            Fault.WATCH_LAG,
            Fault.STOPPED,
            Fault.LEASE_FAILS,
        ),
    ),
    Mutant(
        "no list at the start of a term",
        TermRunner,
        "_learn",
        _without_listing,
        (
            Fault.WATCH_LAG,
            Fault.STOPPED,
            Fault.KILLED,
        ),
    ),
    Mutant(
        "no resourceVersion in an admission",
        KubeSender,
        "send",
        _without_version,
        (
            Fault.VERY_LATE,
            Fault.TOUCHED,
            Fault.KILLED,
        ),
        seed=0,
    ),
    Mutant(
        "admission written onto any spec",
        leader_term,
        "_is_as_decided",
        _always(True),
        (Fault.TOUCHED,),
        seed=0,
    ),
    Mutant(
        "no reservation before the write",
        RedisReservationStore,
        "commit",
        _unreserved,
        (
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
        at_once=True,
        seed=178,
    ),
    Mutant(
        "reservation confirmed when sent",
        LeaderTerm,
        "_submit_admission",
        _confirmed_when_sent,
        (
            Fault.VERY_LATE,
            Fault.KILLED,
        ),
    ),
    Mutant(
        "no fencing before a term's release",
        LeaderTerm,
        "fence_off",
        _given_back_unfenced,
        (
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
        ),
        at_once=True,
        seed=7,
    ),
    Mutant(
        "no fencing before a successor's release",
        ReservationRecovery,
        "_fence_off",
        _later(None),
        (
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
        at_once=True,
        seed=178,
    ),
    Mutant(
        "an unanswered write cannot land",
        Attempts,
        "_note_no_answer",
        _nothing_may_land,
        (
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
        ),
        at_once=True,
        seed=7,
    ),
    Mutant(
        "reservations dropped at takeover",
        recover_reservations,
        "verdict_of",
        _dropped_in_recovery,
        (
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
        at_once=True,
        seed=178,
    ),
    Mutant(
        "replayed without looking for room",
        Engine,
        "adopt",
        _unchecked_adoption,
        (
            Fault.REDIS_ISOLATED,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
    ),
    Mutant(
        "never blind",
        takeover,
        "is_blind",
        _later(False),
        (
            Fault.REDIS_FLUSHED,
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
        at_once=True,
        seed=24,
    ),
    Mutant(
        "decisions without the store not told",
        takeover.Takeover,
        "_may_decide_alone",
        _always(True),
        (
            Fault.REDIS_ISOLATED,
            Fault.VERY_LATE,
            Fault.OBJECT_FAILS,
            Fault.KILLED,
        ),
    ),
    Mutant(
        "release before the Job has stopped",
        reconcile,
        "stop",
        _released_while_running,
        (Fault.TOUCHED,),
        seed=0,
    ),
    Mutant(
        "Job started without admission", reconcile, "_STEPS", _started_unadmitted, (Fault.TOUCHED,), seed=0
    ),
    Mutant(
        "refused decisions are kept", ControlLoop, "call_later", _kept_decisions, (Fault.REFUSED,), seed=0
    ),
    Mutant("no list after 410", Informer, "_pause_after", _never_listed_again, (Fault.COMPACTION,), seed=0),
    Mutant(
        "what the watch never showed is kept",
        ClusterState,
        "drop_unlisted_workloads",
        _always(None),
        (
            Fault.COMPACTION,
            Fault.WATCH_CUT,
            Fault.WATCH_LAG,
        ),
    ),
    Mutant(
        "nothing written back to Redis",
        WriteBack,
        "write",
        _later(None),
        (
            Fault.REDIS_ISOLATED,
            Fault.REDIS_FULL,
        ),
        seed=0,
    ),
    Mutant(
        "store never checked when idle",
        FailoverStore,
        "_check",
        _later(None),
        (
            Fault.REDIS_FLUSHED,
            Fault.REDIS_LOST_AFTER,
            Fault.REDIS_STALE,
        ),
        seed=26,
    ),
)
