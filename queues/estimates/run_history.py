"""What ended runs have left behind, each counted once: how long they took, and how they went on their nodes.

Runs come from three sides: from watches, from the Workloads that a new process finds finished, and from the
store, which remembers those whose Workloads are deleted. So what is kept must not depend on how often or in
which order one is told of: entries stand in the order of their ends, and are known by their Workload's uid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar


class Run(NamedTuple):
    """A run that ended well `at` (Unix seconds) after so many seconds, of the Workload `uid`."""

    at: float
    uid: str
    seconds: float


class RunOutcome(NamedTuple):
    """How a run went on a node, from 0 (failed) to 1; it ended `at`, of the Workload `uid`."""

    at: float
    uid: str
    outcome: float


class _Entry(Protocol):
    @property
    def at(self) -> float: ...
    @property
    def uid(self) -> str: ...


EntryT = TypeVar("EntryT", bound=_Entry)


def merged(known: tuple[EntryT, ...], news: Iterable[EntryT], most: int) -> tuple[EntryT, ...]:
    """Return the latest `most` of both, the oldest first; of two with one uid the known one counts.

    `known` itself where nothing is new.
    """
    news = tuple(news)
    # One run that has just ended, told of as it did: by far the most.
    if len(news) == 1 and known and (news[0].at, news[0].uid) > (known[-1].at, known[-1].uid):
        is_known = any(one.uid == news[0].uid for one in known)
        return known if is_known else (*known, *news)[-most:]
    uids = {one.uid for one in known}
    fresh = [one for one in news if one.uid not in uids]
    if not fresh:
        # The same object, which spares callers a comparison and a store a write.
        return known
    # The uid settles ties: two runs that ended in one second must not change places from one
    # process to the next.
    latest = tuple(sorted((*known, *fresh), key=lambda one: (one.at, one.uid))[-most:])
    # What is older than all that is kept changes nothing, and says so.
    return known if latest == known else latest
