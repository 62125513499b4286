"""What happens in one run, as a value that is drawn from a seed: Jobs, faults, when or at which phase.

A schedule is drawn before the run and does not depend on what the controller does, so one that was shrunk
means the same after the code has changed. Swarm testing: each seed enables a random part of the faults,
because a run in which everything fails all the time never gets far enough to reach the rare states.

Most of the events are aimed: seven faults of each seed wait for four phases of the protocol each, and
consecutive seeds take turns, so that every fault waits for every phase equally often. Two more faults of each
seed wait for the phases that few runs reach in time. Those are also brought about: by Jobs that preempt, a
change of the leader, admissions that fail, and a store that is lost for a moment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.faults.phases import Phase

# Faults begin and Jobs arrive within this time.
HORIZON_SECONDS = 120.0
# How many faults of a seed are aimed.
_AIMED_FAULTS = 7
_PHASES = tuple(phase for phase in Phase if phase is not Phase.IDLE)
# The phases that one fault of a seed is aimed at. Those of the last rows are reached by fewer runs in time,
# so they are aimed at more often.
_AIMS = (
    (Phase.ACQUIRE, Phase.CREATE, Phase.EVICT, Phase.FENCE),
    (Phase.RENEW, Phase.RESERVE, Phase.STOP, Phase.WRITE_BACK),
    (Phase.LIST, Phase.ADMIT, Phase.RELEASE, Phase.FINISH),
    (Phase.RECOVER, Phase.CONFIRM, Phase.START, Phase.READ_AGAIN),
    (Phase.EVICT, Phase.RELEASE, Phase.FINISH, Phase.WRITE_BACK),
    (Phase.STOP, Phase.FENCE, Phase.START, Phase.READ_AGAIN),
    (Phase.STOP, Phase.CREATE, Phase.RECOVER, Phase.CONFIRM),
)
# A fault that waits for one of these meets it in a third of the runs, or less: later than others in a run,
# or often while something else is wrong already.
_RARE_PHASES = (
    (Phase.RESERVE, Phase.ADMIT, Phase.RELEASE, Phase.FENCE),
    (Phase.EVICT, Phase.STOP, Phase.RELEASE, Phase.FENCE),
)


class Fault(StrEnum):
    """What may go wrong. `Event.seconds` and `Event.count` say for how long and how often."""

    # The next writes on the way to the API server, `count` of them.
    LATE = "late write"
    VERY_LATE = "write after its sender gave up"
    LOST_ANSWER = "lost answer"
    ERROR_BEFORE = "error before the effect"
    ERROR_AFTER = "error after the effect"
    REFUSED = "refused write"
    THROTTLED = "429"
    # The API server and what it stores.
    OBJECT_FAILS = "one object fails"
    TOUCHED = "foreign change"
    WATCH_LAG = "watch lag"
    WATCH_CUT = "watch cut"
    COMPACTION = "compaction"
    SERVER_DOWN = "server down"
    SERVER_SLOW = "server slow"
    ISOLATED = "cut off the server"
    ETCD_RESTORED = "etcd restored"
    LEASE_DELETED = "lease deleted"
    LEASE_FAILS = "lease cannot be renewed"
    FOREIGN_ADMISSION = "admitted by another program"
    # Redis.
    REDIS_RESTARTED = "Redis loses its last second"
    REDIS_STALE = "stale Redis replica promoted"
    REDIS_FLUSHED = "Redis emptied"
    REDIS_LOST_BEFORE = "store call lost"
    REDIS_LOST_AFTER = "store answer lost"
    REDIS_FULL = "Redis out of memory"
    REDIS_READ_ONLY = "Redis read-only"
    REDIS_HUNG = "Redis hangs"
    REDIS_ISOLATED = "cut off Redis"
    # Processes and machines.
    FROZEN = "frozen"
    KILLED = "killed"
    STOPPED = "stopped in order"
    WALL_JUMP = "wall clock jumps"


# What ends the term of a leader, or its life.
DEPOSING = (Fault.KILLED, Fault.STOPPED, Fault.FROZEN, Fault.LEASE_FAILS, Fault.ISOLATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From which values a fault's seconds and count are drawn."""

    seconds: tuple[float, float] = (0.0, 0.0)
    count: tuple[int, int] = (1, 1)


RANGES: dict[Fault, Range] = {
    # A write that its sender still awaits: shorter than the time that any lease leaves to a successor.
    Fault.LATE: Range(seconds=(0.1, 9.0), count=(1, 6)),
    Fault.VERY_LATE: Range(seconds=(12.0, 20.0), count=(1, 3)),
    Fault.LOST_ANSWER: Range(count=(1, 6)),
    Fault.ERROR_BEFORE: Range(count=(1, 12)),
    Fault.ERROR_AFTER: Range(count=(1, 6)),
    Fault.REFUSED: Range(count=(1, 6)),
    Fault.THROTTLED: Range(seconds=(0.5, 5.0), count=(1, 12)),
    # The count chooses what fails: all requests on the object, its writes, or its writes for good.
    Fault.OBJECT_FAILS: Range(seconds=(1.0, 30.0), count=(1, 3)),
    # The count chooses what is changed: an annotation, or what a Workload that waits asks for.
    Fault.TOUCHED: Range(count=(1, 2)),
    # The count chooses what lags: all kinds, Workloads or Jobs alone.
    Fault.WATCH_LAG: Range(seconds=(0.5, 20.0), count=(1, 3)),
    Fault.SERVER_DOWN: Range(seconds=(0.2, 25.0)),
    Fault.SERVER_SLOW: Range(seconds=(1.0, 20.0)),
    Fault.ISOLATED: Range(seconds=(0.5, 40.0)),
    Fault.LEASE_FAILS: Range(seconds=(2.0, 30.0)),
    Fault.ETCD_RESTORED: Range(seconds=(0.5, 20.0)),
    Fault.REDIS_RESTARTED: Range(seconds=(0.0, 1.0)),
    Fault.REDIS_STALE: Range(seconds=(1.0, 20.0)),
    Fault.REDIS_LOST_BEFORE: Range(count=(1, 6)),
    Fault.REDIS_LOST_AFTER: Range(count=(1, 6)),
    Fault.REDIS_FULL: Range(seconds=(0.5, 20.0)),
    Fault.REDIS_READ_ONLY: Range(seconds=(0.5, 20.0)),
    Fault.REDIS_HUNG: Range(seconds=(0.05, 10.0)),
    Fault.REDIS_ISOLATED: Range(seconds=(0.5, 30.0)),
    Fault.FROZEN: Range(seconds=(0.2, 40.0)),
    Fault.KILLED: Range(seconds=(0.5, 20.0)),
    Fault.STOPPED: Range(seconds=(0.5, 20.0)),
    Fault.WALL_JUMP: Range(seconds=(-120.0, 120.0)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fault. With a phase it waits, from `at` on, until that is reached the `nth` time.

    `target` is the number of a replica or object, as far as the fault needs one and no phase names it.
    """

    at: float
    fault: Fault
    seconds: float = 0.0
    count: int = 1
    target: int = 0
    phase: Phase | None = None
    nth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One Job of a user. `deleted_after` None: it stays. `edited_after`: when it asks for other CPUs."""

    at: float
    queue: str
    cpus: int
    is_urgent: bool
    seconds: float
    deleted_after: float | None = None
    edited_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One run. `skews`: how far the wall clocks of the replicas are off; `rates` of their monotonic ones."""

    seed: int
    is_shuffled: bool
    skews: tuple[float, ...]
    rates: tuple[float, ...]
    jobs: tuple[JobPlan, ...]
    events: tuple[Event, ...]

    @property
    def size(self) -> int:
        """Return how many things happen in it."""
        return len(self.jobs) + len(self.events)


def draw(
    seed: int,
    *,
    apart: tuple[frozenset[Fault], ...] = (),
    among: tuple[Fault, ...] = (),
    at_once: bool = False,
) -> Schedule:
    """Return the schedule of a seed. Of each set in `apart`, at least one fault does not occur in it.

    `among`: these faults alone are enabled, and all of them. `at_once`: they strike together, at one moment.
    """
    chance = random.Random(f"schedule {seed}")
    # Each of them may strike alone, if it is not apart from all others.
    alone = list(among) or [fault for fault in Fault if frozenset({fault}) not in apart]
    replicas = chance.choice((1, 2, 2, 2, 3))
    events = [*_events(chance, list(among) or _enabled(chance, apart, alone))]
    events += [event for event in _aimed(chance, seed, alone) if not _are_apart(event, events, apart)]
    if not among:
        events += [event for event in _aimed_at_rare(seed, alone) if not _are_apart(event, events, apart)]
    events += () if among else _provoking_events(chance)
    if at_once:
        events = [*_meeting(seed, among)]
    has_skews = chance.random() < 0.4
    return Schedule(
        seed=seed,
        is_shuffled=chance.random() < 0.8,
        skews=tuple(chance.uniform(-60, 60) if has_skews else 0.0 for _ in range(replicas)),
        rates=tuple(chance.uniform(0.995, 1.005) if has_skews else 1.0 for _ in range(replicas)),
        jobs=(*(_job(chance) for _ in range(chance.randint(1, 6))), *_preempting_jobs(chance)),
        events=tuple(sorted(events, key=lambda event: event.at)),
    )


def _enabled(chance: random.Random, apart: tuple[frozenset[Fault], ...], alone: list[Fault]) -> list[Fault]:
    share = chance.choice((0.1, 0.2, 0.4))
    faults = [fault for fault in Fault if chance.random() < share]
    # Most of what the protocol guards against needs a change of the leader.
    if chance.random() < 0.6:
        faults += [chance.choice(DEPOSING)] * (1 + len(faults) // 3)
    for group in apart:
        if group <= set(faults):
            dropped = chance.choice(sorted(group))
            faults = [fault for fault in faults if fault is not dropped]
    return faults or [chance.choice(alone)]


def _are_apart(event: Event, others: list[Event], apart: tuple[frozenset[Fault], ...]) -> bool:
    faults = {event.fault, *(other.fault for other in others)}
    return any(group <= faults for group in apart)


def _events(chance: random.Random, faults: list[Fault]) -> Iterator[Event]:
    last: Event | None = None
    for _ in range(chance.randint(1, 6)):
        phase = chance.choice(_PHASES) if chance.random() < 0.3 else None
        event = _event(chance, chance.choice(faults), phase, nth=chance.choice((1, 1, 2, 3)))
        # What breaks a protocol is often two faults at the same moment.
        if last is not None and last.phase is not None and chance.random() < 0.3:
            event = replace(event, at=last.at, phase=last.phase, nth=last.nth)
        yield event
        last = event


def _aimed(chance: random.Random, seed: int, faults: list[Fault]) -> Iterator[Event]:
    """Yield events of some faults. In as many seeds as there are faults and more, all meet every phase."""
    # Not in the order of the table above, in which each fault has its like beside it.
    mixed = random.Random("aims").sample(faults, len(faults))
    for turn in range(_AIMED_FAULTS * seed, _AIMED_FAULTS * (seed + 1)):
        row, column = divmod(turn, len(mixed))
        for phase in _AIMS[(row + column) % len(_AIMS)]:
            yield _mostly_short(chance, _event(chance, mixed[column], phase))


def _aimed_at_rare(seed: int, faults: list[Fault]) -> Iterator[Event]:
    """Yield events of one fault for each row of _RARE_PHASES; consecutive seeds take turns."""
    chance = random.Random(f"rare {seed}")
    mixed = random.Random("rare").sample(faults, len(faults))
    for row, phases in enumerate(_RARE_PHASES):
        fault = mixed[(len(_RARE_PHASES) * seed + row + seed // len(mixed)) % len(mixed)]
        for phase in phases:
            yield _mostly_short(chance, _event(chance, fault, phase))


def _meeting(seed: int, faults: Sequence[Fault]) -> Iterator[Event]:
    """Yield one event of each fault, all at one moment, in most seeds that of an admission.

    One fault alone leaves the other guards in place. What breaks a protocol is, for example, an admission
    that hangs, on an object that cannot be written, by a leader that dies.
    """
    chance = random.Random(f"meeting {seed}")
    phase = Phase.ADMIT if chance.random() < 0.6 else chance.choice(_PHASES)
    at, nth = _late(chance), chance.randint(1, 3)
    for fault in chance.sample(faults, len(faults)):
        _, longest = RANGES.get(fault, Range()).seconds
        # Long enough to outlast a lease, which is when a successor decides beside what is still under way.
        seconds = round(longest * chance.uniform(0.8, 1.0), 3)
        yield replace(_event(chance, fault, phase, nth=nth), at=at, seconds=seconds)


def _mostly_short(chance: random.Random, event: Event) -> Event:
    """Return the event with another duration in most cases: long ones leave the rest of the run no time."""
    if event.fault is Fault.WALL_JUMP or chance.random() >= 0.8:
        return event
    least, _ = RANGES.get(event.fault, Range()).seconds
    return replace(event, seconds=round(least + (event.seconds - least) * chance.random() ** 2, 3))


def _event(chance: random.Random, fault: Fault, phase: Phase | None, *, nth: int = 1) -> Event:
    drawn_from = RANGES.get(fault, Range())
    return Event(
        # One that waits for a phase needs time to meet it.
        at=round(chance.uniform(0.0, (1.0 if phase is None else 0.6) * HORIZON_SECONDS), 3),
        fault=fault,
        seconds=round(chance.uniform(*drawn_from.seconds), 3),
        count=chance.randint(*drawn_from.count),
        target=chance.randint(0, 5),
        phase=phase,
        nth=nth,
    )


def _provoking_events(chance: random.Random) -> Iterator[Event]:
    """Bring about a new leader, an admission without an answer, and a store that is lost for a moment."""
    seconds = chance.uniform(0.5, 5.0)
    yield Event(at=_late(chance), fault=Fault.STOPPED, seconds=round(seconds, 3), target=1)
    for _ in range(3):
        # The admission may have been stored or not, and the writes that fence it off fail for a while too.
        seconds = round(chance.uniform(1.0, 4.0), 3)
        yield Event(at=_late(chance), fault=Fault.OBJECT_FAILS, seconds=seconds, count=2, phase=Phase.ADMIT)
    for _ in range(2):
        # A call is sent twice before the store counts as lost.
        yield Event(at=_late(chance), fault=Fault.REDIS_LOST_BEFORE, count=2, phase=Phase.RESERVE)


def _preempting_jobs(chance: random.Random) -> Iterator[JobPlan]:
    """Yield a Job that fills its queue, and urgent ones that preempt it whenever they find it running."""
    filling = JobPlan(at=round(chance.uniform(0.0, 5.0), 3), queue="a", cpus=4, is_urgent=False, seconds=20.0)
    yield filling
    for number in range(1, 12):
        at = round(10.0 * number + chance.uniform(-4.0, 4.0), 3)
        yield replace(filling, at=at, is_urgent=True, seconds=2.0)


def _late(chance: random.Random) -> float:
    """Return a time at which most of what is aimed waits for its phase, and which leaves time to meet it."""
    return round(chance.uniform(0.2, 0.9) * HORIZON_SECONDS, 3)


def _job(chance: random.Random) -> JobPlan:
    return JobPlan(
        at=round(chance.uniform(0.0, 0.8 * HORIZON_SECONDS), 3),
        queue=chance.choice("ab"),
        cpus=chance.randint(1, 4),
        is_urgent=chance.random() < 0.3,
        seconds=round(chance.choice((2.0, 8.0, 20.0)) * chance.uniform(0.5, 1.5), 3),
        deleted_after=round(chance.uniform(1.0, 30.0), 3) if chance.random() < 0.15 else None,
        # Most edits come while the Job is being queued, or waits.
        edited_after=round(chance.choice((0.02, 2.0, 20.0)) * chance.random(), 3)
        if chance.random() < 0.2
        else None,
    )
