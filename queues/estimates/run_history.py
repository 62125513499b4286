"""The results of finished runs, each counted once: run times, and how runs went on their nodes.

Runs are reported by watches, by the Workloads that a new process finds finished, and by the store, which
remembers runs of deleted Workloads. The result must therefore not depend on how often or in which order a run
is reported: entries are sorted by their end and identified by the uid of their Workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar


class Run(NamedTuple):
    """A successful run of the Workload `uid`: it ended `at` (Unix seconds) and took `seconds`."""

    at: float
    uid: str
    seconds: float


class RunOutcome(NamedTuple):
    """How a run of the Workload `uid` went on a node, from 0 (failed) to 1; it ended `at` (Unix seconds)."""

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
    """Return the latest `most` entries of both, the oldest first. For equal uids the known entry is kept.

    Returns `known` itself where nothing is new.
    """
    news = tuple(news)
    # The common case: one run that has just ended, reported right away.
    if len(news) == 1 and known and (news[0].at, news[0].uid) > (known[-1].at, known[-1].uid):
        is_known = any(one.uid == news[0].uid for one in known)
        return known if is_known else (*known, *news)[-most:]
    uids = {one.uid for one in known}
    fresh = [one for one in news if one.uid not in uids]
    if not fresh:
        # The same object, so that callers need no comparison and a store no write.
        return known
    # The uid breaks ties, so that two runs that ended in the same second have the same
    # order in every process.
    latest = tuple(sorted((*known, *fresh), key=lambda one: (one.at, one.uid))[-most:])
    # Where all new entries are older than those kept, nothing has changed.
    return known if latest == known else latest
