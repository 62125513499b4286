"""What a Job tells of its checkpoints: when it saved last, how often it does, what saving and restarting
cost.

The facts stand in annotations of the Workload (which takes them over from its Job) or of its pod template.
They are claims of whoever wrote them: what cannot be read, or is out of all bounds, counts as not said and is
named by an Event on the Job; what is merely high is bounded by the policy where it is used
(`admission.preemption.lost_work`). Whether an instant lies in the future only that place can tell, since
nothing here knows the time.

What was measured counts more than what was declared: of the last few lengths that were reported the middle
one, once there are three. A single slow save (a full disk, a cold cache) is an exception and no rule, and the
middle of three is the first that one exception cannot move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median_low

import msgspec

from api import keys
from api.jobs.placement_annotations import Metadata, read_key
from api.workload import Workload, to_seconds

# A day. Nobody saves or restarts that long, so a larger number is in another unit.
MOST_SECONDS = 86_400.0
# Far beyond the steps of any training, and within what every language reads as a whole number.
MOST_STEPS = 2**53
# Clocks of nodes differ by less than this; what lies further ahead is wrong.
CLOCK_SKEW_SECONDS = 60.0
# How many measured lengths are kept, and from how many on they count.
KEPT_OBSERVATIONS = 5
FEWEST_OBSERVATIONS = 3
WORKLOAD_TYPES = ("training", "inference", "batch")
_DURATIONS = (
    keys.CHECKPOINT_SAVE_SECONDS,
    keys.CHECKPOINT_RESTART_SECONDS,
    keys.CHECKPOINT_INTERVAL_SECONDS,
)

# By which a Workload tells of its checkpoints, and `CheckpointFacts.takes_part`.
CHECKPOINT_KEYS = frozenset(
    (
        keys.CHECKPOINT_TIME,
        keys.CHECKPOINT_STEP,
        keys.CHECKPOINT_MEASURED,
        keys.CHECKPOINT_ON_SIGTERM,
        *_DURATIONS,
    )
)
_SWITCH = {"true": True, "false": False}


class MeasuredCosts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The annotation `berth.dev/checkpoint-measured`: seconds, the latest last.

    `restart_of`: the attempt whose restart was measured last, by its start; each is measured once.
    """

    # A Struct for its defaults: an annotation of an earlier version lacks fields and is read all the same.
    save: tuple[float, ...] = ()
    restart: tuple[float, ...] = ()
    restart_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """What is known of one Workload. None: it does not say, or says what cannot be believed.

    `saved_at` in Unix seconds, lengths in seconds. `workload_type` is empty where nobody says.
    `saves_on_sigterm`: its pods save when they are told to end, without being asked before.
    """

    workload_type: str = ""
    saved_at: float | None = None
    step: int | None = None
    save_seconds: float | None = None
    restart_seconds: float | None = None
    interval_seconds: float | None = None
    saves_on_sigterm: bool = False

    @property
    def takes_part(self) -> bool:
        """Whether it tells anything of its checkpoints, and so may be expected to answer a request."""
        told = (self.saved_at, self.step, self.save_seconds, self.restart_seconds, self.interval_seconds)
        return self.saves_on_sigterm or any(fact is not None for fact in told)

    @property
    def is_training(self) -> bool:
        """Whether it calls itself training."""
        return self.workload_type == "training"

    @property
    def is_inference(self) -> bool:
        """Whether it calls itself inference: it has no progress to lose."""
        return self.workload_type == "inference"


def checkpoint_facts(workload: Workload, *, with_aliases: bool = False) -> CheckpointFacts:
    """Return what the Workload, else the template of its first pod set, says of its checkpoints."""
    sources = _sources(workload)
    kind = read_key(keys.WORKLOAD_TYPE, sources, with_aliases=with_aliases).lower()
    save, restart, interval = (parse_duration(_read(key, sources)) for key in _DURATIONS)
    # What cannot be read counts as nothing measured: then what is declared stands.
    measured = parse_measured(_read(keys.CHECKPOINT_MEASURED, sources)) or MeasuredCosts()
    return CheckpointFacts(
        workload_type=kind if kind in WORKLOAD_TYPES else "",
        saved_at=parse_instant(_read(keys.CHECKPOINT_TIME, sources)),
        step=parse_step(_read(keys.CHECKPOINT_STEP, sources)),
        save_seconds=_learnt(measured.save, save),
        restart_seconds=_learnt(measured.restart, restart),
        # An interval of nothing would say that no work can ever be lost.
        interval_seconds=interval or None,
        saves_on_sigterm=parse_switch(_read(keys.CHECKPOINT_ON_SIGTERM, sources)) or False,
    )


def tells_of_checkpoints(workload: Workload) -> bool:
    """Return whether anything of its checkpoints may be said, believable or not: a cheap question."""
    return any(source and not CHECKPOINT_KEYS.isdisjoint(source) for source in _sources(workload))


def checkpoint_faults(sources: Metadata) -> Iterator[str]:
    """Yield a sentence for each value that cannot be believed; the key then counts as absent."""
    checks = (
        (keys.CHECKPOINT_TIME, parse_instant, "an RFC 3339 time such as 2026-01-31T12:00:00Z"),
        (keys.CHECKPOINT_STEP, parse_step, "a whole number of steps"),
        *((key, parse_duration, f"seconds from 0 to {MOST_SECONDS:.0f}") for key in _DURATIONS),
        (keys.CHECKPOINT_ON_SIGTERM, parse_switch, "true or false"),
        (keys.CHECKPOINT_MEASURED, parse_measured, "what Berth itself has written; take it off"),
    )
    for key, parse, expected in checks:
        text = _read(key, sources)
        # Empty counts as absent, so that a template which fills keys from unset values warns nobody.
        if text and parse(text) is None:
            yield f"{key} is {text!r}, but must be {expected}; it is passed over"
    kind = _read(keys.WORKLOAD_TYPE, sources)
    if kind and kind.lower() not in WORKLOAD_TYPES:
        yield f"{keys.WORKLOAD_TYPE} is {kind!r}, but must be training, inference or batch; it is passed over"


def parse_instant(text: str) -> float | None:
    """Return an RFC 3339 instant in Unix seconds, None for what is none."""
    try:
        # The epoch itself reads as none: it is what a missing time becomes elsewhere.
        return to_seconds(text) or None
    except (ValueError, OverflowError):
        return None


def parse_step(text: str) -> int | None:
    """Return a number of steps, None for what is none."""
    # `isdecimal` alone is true of digits of every script; 16 digits reach beyond MOST_STEPS.
    if not (text.isascii() and text.isdecimal()) or len(text) > 16:
        return None
    return int(text) if int(text) <= MOST_STEPS else None


def parse_duration(text: str) -> float | None:
    """Return seconds, None for what is no such number or longer than a day."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    # Not a number compares false with everything.
    return seconds if 0 <= seconds <= MOST_SECONDS else None


def parse_switch(text: str) -> bool | None:
    """Return a switch, None for what is neither true nor false."""
    return _SWITCH.get(text.lower())


def parse_measured(text: str) -> MeasuredCosts | None:
    """Return what was measured; None for what Berth would not have written."""
    try:
        measured = msgspec.json.decode(text, type=MeasuredCosts)
    # An annotation has room for JSON nested deeper than the reader follows, and anybody may write one: raised
    # from here it would end every search that looks at this Workload.
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    lengths = (*measured.save, *measured.restart)
    is_believed = all(0 <= seconds <= MOST_SECONDS for seconds in lengths)
    # Two lists of at most KEPT_OBSERVATIONS; more of them Berth would not have written.
    return measured if is_believed and len(lengths) <= 2 * KEPT_OBSERVATIONS else None


def _learnt(measured: tuple[float, ...], declared: float | None) -> float | None:
    # The lower of the two in the middle, a length that was really seen, instead of a mean of two.
    return median_low(measured) if len(measured) >= FEWEST_OBSERVATIONS else declared


def _read(key: str, sources: Metadata) -> str:
    return read_key(key, sources, with_aliases=False)


def _sources(workload: Workload) -> Metadata:
    metadata = workload.pod_sets[0].template.metadata if workload.pod_sets else None
    own = (metadata.annotations, metadata.labels) if metadata is not None else ()
    return (workload.annotations, *own)
