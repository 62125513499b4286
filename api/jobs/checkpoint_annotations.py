"""Checkpoint annotations of a Job: its last checkpoint, and the cost and interval of checkpoints.

The facts are annotations of the Workload (which copies them from its Job) or of its pod template. All but
`checkpoint-measured`, which Berth writes to the Workload alone, are claims of the Job's author: a value that
cannot be parsed or is out of range counts as absent and is reported by an Event on the Job; a value that is
merely high is capped by the policy where it is used (`admission.preemption.lost_work`). That module also
checks whether a time is in the future, since this one has no clock.

Measured values take precedence over declared ones: once at least three lengths are reported, the median of
the last few is used. A single slow save (a full disk, a cold cache) is an outlier, and three is the smallest
number whose median one outlier cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median_low

import msgspec

from api import keys
from api.jobs.placement_annotations import Metadata, read_key, sources_of
from api.parsing.decimals import finite_number
from api.parsing.times import to_seconds
from api.workload import Workload

# One day. No save or restart takes that long, so a larger number is in another unit.
MOST_SECONDS = 86_400.0
# Far more than the steps of any training, and within the range of integers that every
# JSON parser reads exactly.
MOST_STEPS = 2**53
# Clocks of nodes differ by less than this; a time further in the future is wrong.
CLOCK_SKEW_SECONDS = 60.0
# How many measured lengths are kept, and how many are needed before they are used.
KEPT_OBSERVATIONS = 5
FEWEST_OBSERVATIONS = 3
WORKLOAD_TYPES = ("training", "inference", "batch")
_DURATIONS = (
    keys.CHECKPOINT_SAVE_SECONDS,
    keys.CHECKPOINT_RESTART_SECONDS,
    keys.CHECKPOINT_INTERVAL_SECONDS,
)

# Annotations with which a Workload reports its checkpoints; any of them sets `CheckpointFacts.takes_part`.
CHECKPOINT_KEYS = frozenset(
    (
        keys.CHECKPOINT_TIME,
        keys.CHECKPOINT_STEP,
        keys.CHECKPOINT_MEASURED,
        keys.CHECKPOINT_ON_SIGTERM,
        *_DURATIONS,
    )
)
# Annotations that `CheckpointFacts` are read from.
_FACT_KEYS = CHECKPOINT_KEYS | {keys.WORKLOAD_TYPE, keys.ALIASES[keys.WORKLOAD_TYPE]}
_SWITCH = {"true": True, "false": False}


class MeasuredCosts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The value of the annotation `berth.dev/checkpoint-measured`: lengths in seconds, the latest last.

    `restart_of` is the start time of the attempt whose restart was measured last; each
    attempt is measured once.
    """

    # A Struct with defaults, because an annotation written by an earlier version may lack fields.
    save: tuple[float, ...] = ()
    restart: tuple[float, ...] = ()
    restart_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """The checkpoint facts of one Workload. None means that a value is absent or not credible.

    `saved_at` is in Unix seconds, lengths are in seconds. `workload_type` is empty if it is not declared.
    `saves_on_sigterm`: its pods save a checkpoint on SIGTERM, without an earlier request.
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
        """Whether it reports anything about checkpoints, and so can be asked to save one."""
        facts = (self.saved_at, self.step, self.save_seconds, self.restart_seconds, self.interval_seconds)
        return self.saves_on_sigterm or any(fact is not None for fact in facts)

    @property
    def is_training(self) -> bool:
        """Whether it declares itself as training."""
        return self.workload_type == "training"

    @property
    def is_inference(self) -> bool:
        """Whether it declares itself as inference, which has no progress to lose."""
        return self.workload_type == "inference"


_NO_FACTS = CheckpointFacts()


def checkpoint_facts(workload: Workload, *, with_aliases: bool = False) -> CheckpointFacts:
    """Return the checkpoint facts of the Workload, or else of the template of its first pod set."""
    sources = _sources(workload)
    # Most Workloads report nothing, and a search asks this of each candidate.
    if not any(source and not _FACT_KEYS.isdisjoint(source) for source in sources):
        return _NO_FACTS
    kind = read_key(keys.WORKLOAD_TYPE, sources, with_aliases=with_aliases).lower()
    save, restart, interval = (parse_duration(_read(key, sources)) for key in _DURATIONS)
    # An unreadable value counts as nothing measured, so that the declared values are used.
    # Of the Workload alone: the author of the Job writes the template.
    measured = parse_measured(workload.annotations.get(keys.CHECKPOINT_MEASURED, "")) or MeasuredCosts()
    return CheckpointFacts(
        workload_type=kind if kind in WORKLOAD_TYPES else "",
        saved_at=parse_instant(_read(keys.CHECKPOINT_TIME, sources)),
        step=parse_step(_read(keys.CHECKPOINT_STEP, sources)),
        save_seconds=_learnt(measured.save, save),
        restart_seconds=_learnt(measured.restart, restart),
        # An interval of 0 would mean that no work can ever be lost.
        interval_seconds=interval or None,
        saves_on_sigterm=parse_switch(_read(keys.CHECKPOINT_ON_SIGTERM, sources)) or False,
    )


def reports_checkpoints(workload: Workload) -> bool:
    """Return whether any checkpoint annotation is present, credible or not.

    Cheaper than `checkpoint_facts`.
    """
    return any(source and not CHECKPOINT_KEYS.isdisjoint(source) for source in _sources(workload))


def checkpoint_faults(sources: Metadata) -> Iterator[str]:
    """Yield a sentence for each value that is not credible; the annotation then counts as absent."""
    checks = (
        (keys.CHECKPOINT_TIME, parse_instant, "an RFC 3339 time such as 2026-01-31T12:00:00Z"),
        (keys.CHECKPOINT_STEP, parse_step, "a whole number of steps"),
        *((key, parse_duration, f"seconds from 0 to {MOST_SECONDS:.0f}") for key in _DURATIONS),
        (keys.CHECKPOINT_ON_SIGTERM, parse_switch, "true or false"),
    )
    for key, parse, expected in checks:
        text = _read(key, sources)
        # Empty counts as absent, so that a template which fills annotations from unset
        # values gives no warning.
        if text and parse(text) is None:
            yield f"{key} is {text!r}, but must be {expected}; it is ignored"
    if _read(keys.CHECKPOINT_MEASURED, sources):
        yield f"{keys.CHECKPOINT_MEASURED} has an effect only where Berth has written it, on the Workload"
    kind = _read(keys.WORKLOAD_TYPE, sources)
    if kind and kind.lower() not in WORKLOAD_TYPES:
        yield f"{keys.WORKLOAD_TYPE} is {kind!r}, but must be training, inference or batch; it is ignored"


def parse_instant(text: str) -> float | None:
    """Return an RFC 3339 time in Unix seconds, or None if the text is not one."""
    try:
        # The epoch counts as absent, because other programs write a missing time that way.
        return to_seconds(text) or None
    except (ValueError, OverflowError):
        return None


def parse_step(text: str) -> int | None:
    """Return a number of steps from 0 to MOST_STEPS, or None if the text is not one."""
    # `isdecimal` alone accepts digits of every script; 16 digits are enough for MOST_STEPS.
    if not (text.isascii() and text.isdecimal()) or len(text) > 16:
        return None
    return int(text) if int(text) <= MOST_STEPS else None


def parse_duration(text: str) -> float | None:
    """Return a number of seconds from 0 to MOST_SECONDS, or None if the text is not one."""
    seconds = finite_number(text)
    return seconds if seconds is not None and 0 <= seconds <= MOST_SECONDS else None


def parse_switch(text: str) -> bool | None:
    """Return the boolean that "true" or "false" in any case represents, or None for any other text."""
    return _SWITCH.get(text.lower())


def parse_measured(text: str) -> MeasuredCosts | None:
    """Return the measured values, or None if the text is not one that Berth writes."""
    try:
        measured = msgspec.json.decode(text, type=MeasuredCosts)
    # Anyone may write the annotation, and it is large enough for JSON nested deeper than the parser can
    # follow. An exception raised here would abort every search that considers this Workload.
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    lengths = (*measured.save, *measured.restart)
    is_believed = all(0 <= seconds <= MOST_SECONDS for seconds in lengths)
    # Berth writes two lists of at most KEPT_OBSERVATIONS values.
    return measured if is_believed and len(lengths) <= 2 * KEPT_OBSERVATIONS else None


def _learnt(measured: tuple[float, ...], declared: float | None) -> float | None:
    # The low median is a length that was really measured, unlike the mean of the two in the middle.
    return median_low(measured) if len(measured) >= FEWEST_OBSERVATIONS else declared


def _read(key: str, sources: Metadata) -> str:
    return read_key(key, sources, with_aliases=False)


def _sources(workload: Workload) -> Metadata:
    return sources_of(workload, workload.pod_sets[0] if workload.pod_sets else None)
