"""The status writer: which queue's status is due to be written, and when.

Statuses change with every admission, and each write costs the API server as much as an admission does, so
they are collected. In quiet times a changed status is written at once. Under load all objects share a budget
(`api.kube.report_budget`), and the one that has waited longest is written first. The first status of a queue
is not held back: until then it does not show whether it is active, and each has only one. A status that
would not change is not written. One that another writer replaces again and again is written once a second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf

import msgspec

from admission.decisions.api_writes import Event, ObjectVersion, Purpose, Write, policy_ref, queue_ref
from admission.engine.engine import Engine
from admission.status.check_status import check_status
from admission.status.policy_status import policy_events, policy_status
from admission.status.queue_status import (
    cluster_queue_status,
    cohort_status,
    local_queue_status,
    over_quota_event,
)
from api.kube.report_budget import ReportBudget, WriteLoad
from api.objects.common import Meta, NamedObject
from api.objects.policies import AdmissionPolicyObject
from api.objects.queues import AdmissionCheckObject, ClusterQueueObject, CohortObject, LocalQueueObject

BoardKey = tuple[str, str, str]

# Status writes per second in quiet times, and how many may be written at once.
WRITES_PER_SECOND = 10.0
BURST = 40.0
# Once nothing was decided for QUIET_SECONDS, and there are many objects, more are written, so that each is
# after ROUND_SECONDS, but no more than Kueue sends by default. Before that they would soon be outdated.
QUIET_SECONDS = 2.0
ROUND_SECONDS = 20.0
MOST_WRITES_PER_SECOND = 50.0
# Two leaders may be at work at once while the first does not know yet that its Lease was deleted.
AGAIN_SECONDS = 1.0
# Statuses that are looked up before the budget is asked again.
_LOOKED_AT_ONCE = 64

KINDS: dict[str, type[msgspec.Struct]] = {
    "ClusterQueue": ClusterQueueObject,
    "LocalQueue": LocalQueueObject,
    "Cohort": CohortObject,
    "AdmissionPolicy": AdmissionPolicyObject,
    "AdmissionCheck": AdmissionCheckObject,
}
# Those whose status says from the start whether they are active.
_QUEUES = ("ClusterQueue", "LocalQueue")


class StatusWriter:
    """Keeps the bytes of queues, cohorts and policies and builds their status writes."""

    def __init__(
        self,
        engine: Engine,
        load: WriteLoad,
        *,
        with_share: bool,
        with_checks: bool = False,
        is_busy: Callable[[BoardKey], bool],
        fault_of: Callable[[str, str, str], str | None] = lambda *_: None,
    ) -> None:
        """`fault_of` returns, for kind, namespace and name, which rules an object breaks; None: none.

        `with_checks`: whether this controller answers the checks that ask the cluster's autoscaler for nodes.
        """
        self._engine = engine
        self._with_share = with_share
        self._with_checks = with_checks
        self._is_busy = is_busy
        self._fault_of = fault_of
        self._raw: dict[BoardKey, tuple[Meta, bytes]] = {}
        self._due: OrderedDict[BoardKey, None] = OrderedDict()
        # Queues that show no status yet, due or not.
        self._new: dict[BoardKey, None] = {}
        # The version that resulted from our last status write, and the status that it wrote.
        self._written: dict[BoardKey, tuple[str, object]] = {}
        # Over which version a status was last written again, since another writer had replaced it, and when
        # (monotonic).
        self._repeated: dict[BoardKey, tuple[str, float]] = {}
        # By ClusterQueue: what was said last about usage beyond its quota.
        self._over_quota: dict[str, str | None] = {}
        self._budget = ReportBudget(load, per_second=WRITES_PER_SECOND, burst=BURST)
        self._load = load
        # How much was decided when that was last looked at, and since when it is so much.
        self._decided, self._quiet_since = load.decided, float("-inf")

    def see(self, kind: str, metadata: Meta, raw: bytes) -> None:
        """Take the object as it is now and mark its status to be checked.

        This does not depend on which client changed it: the status of another writer may be late and wrong,
        and our own may be outdated by the time it is answered.
        """
        key = (kind, metadata.namespace, metadata.name)
        known = self._raw.get(key)
        # An older version of the same object: the watch lags behind the answer to our own write.
        if known is not None and known[0].uid == metadata.uid and _older(metadata, known[0]):
            return
        self._raw[key] = (metadata, raw)
        self._due[key] = None
        if key[0] in _QUEUES and key not in self._written and b'"Active"' not in raw:
            self._new[key] = None
        else:
            self._new.pop(key, None)

    def see_raw(self, kind: str, raw: bytes) -> None:
        """Take an object's bytes from the answer to a write, or from the read after a conflict."""
        if kind in KINDS:
            self.see(kind, msgspec.json.decode(raw, type=NamedObject).metadata, raw)

    def note_written(self, write: Write, raw: bytes) -> None:
        """Record that the server stored a write of ours and answered with the object `raw`."""
        if write.purpose is Purpose.QUEUE_STATUS:
            metadata = msgspec.json.decode(raw, type=NamedObject).metadata
            key = (write.kind, write.namespace, write.name)
            self._written[key] = metadata.resource_version, _status_in(write.body)

    def forget(self, kind: str, metadata: Meta) -> None:
        """Drop an object that is gone, unless another of the same name has replaced it."""
        key = (kind, metadata.namespace, metadata.name)
        known = self._raw.get(key)
        if known is not None and known[0].uid == metadata.uid:
            del self._raw[key]
            self._due.pop(key, None)
            self._new.pop(key, None)
            self._written.pop(key, None)
            self._repeated.pop(key, None)
            if kind == "ClusterQueue":
                self._over_quota.pop(metadata.name, None)

    def mark(self, kind: str, namespace: str, name: str) -> None:
        """Mark this status to be checked."""
        key = (kind, namespace, name)
        if key in self._raw:
            self._due[key] = None

    def mark_all(self) -> None:
        """Mark all statuses to be checked."""
        self._due.update(dict.fromkeys(self._raw))

    def due(self, *, now: float, monotonic: float) -> Iterator[Write | None]:
        """Yield the status writes that the budget allows now, the longest waiting first.

        None means a check that found nothing to write: with thousands of queues the checks alone take long,
        so the caller may yield the event loop after each. Changes made meanwhile are respected.
        """
        # Objects that decisions touched since the last call are due as well.
        self._note_touched()
        self._set_rate(monotonic)
        # The first status of a queue needs no budget.
        yield from self._writes_of(list(self._new), now, monotonic)
        looked_at: set[BoardKey] = set()
        # In slices: under load thousands are due for many seconds, and few of them are written at a time.
        while self._budget.seconds_to_next(monotonic) <= 0:
            rest = (key for key in self._due if key not in looked_at)
            if not (next_ones := list(islice(rest, _LOOKED_AT_ONCE))):
                return
            looked_at.update(next_ones)
            yield from self._writes_of(next_ones, now, monotonic)

    def _writes_of(self, keys: Iterable[BoardKey], now: float, monotonic: float) -> Iterator[Write | None]:
        """Yield the writes of these statuses for as long as the budget lasts, None for each without one."""
        for key in keys:
            if key not in self._new and self._budget.seconds_to_next(monotonic) > 0:
                return
            # Skip an object whose write is in flight: the answer marks it again.
            if key not in self._due or self._is_busy(key):
                continue
            del self._due[key]
            write = self._write(key, now, monotonic)
            # Only a write uses the budget; a check is free.
            if write is not None:
                self._new.pop(key, None)
                self._budget.take(monotonic)
            yield write

    def seconds_to_next(self, monotonic: float) -> float | None:
        """Return in how many seconds `due` may yield a write; None while nothing is marked."""
        self._note_touched()
        if not self._due:
            return None
        is_free = any(key in self._due for key in self._new)
        wait = 0.0 if is_free else self._budget.seconds_to_next(monotonic)
        # Not at once even if the budget allows it, so that the changes of one busy moment are collected.
        return max(0.1, wait)

    def _set_rate(self, monotonic: float) -> None:
        if self._load.decided != self._decided:
            self._decided, self._quiet_since = self._load.decided, monotonic
        is_quiet = monotonic >= self._quiet_since + QUIET_SECONDS
        wanted = len(self._raw) / ROUND_SECONDS if is_quiet else 0.0
        self._budget.per_second = min(MOST_WRITES_PER_SECOND, max(WRITES_PER_SECOND, wanted))

    def _note_touched(self) -> None:
        touched = self._engine.drain_touched()
        keys: list[BoardKey] = [("ClusterQueue", "", name) for name in sorted(touched.cluster_queues)]
        keys += [("LocalQueue", namespace, name) for namespace, name in sorted(touched.local_queues)]
        if self._with_share:
            keys += [("Cohort", "", name) for name in sorted(touched.cohorts)]
        keys += [("AdmissionPolicy", "", name) for name in sorted(touched.policies)]
        if self._with_checks:
            keys += [("AdmissionCheck", "", name) for name in sorted(touched.checks)]
        # An object that is due already keeps its position.
        self._due.update((key, None) for key in keys if key in self._raw and key not in self._due)

    def _write(self, key: BoardKey, now: float, monotonic: float) -> Write | None:
        metadata, raw = self._raw[key]
        body = self._body(key, raw, now)
        if body is None:
            return None
        # CRDs older than this Berth drop unknown fields. A status that was written and resulted in the
        # version that we see is not written again, unless it says something else or the object changes.
        written_version, written = self._written.get(key, ("", None))
        if written is not None and written == _status_in(body):
            if written_version == metadata.resource_version:
                return None
            over, at = self._repeated.get(key, ("", -inf))
            # Over the same version it was refused, and nothing was replaced.
            if over != metadata.resource_version and monotonic < at + AGAIN_SECONDS:
                self._due[key] = None
                return None
            self._repeated[key] = metadata.resource_version, monotonic
        version, events = ObjectVersion.of(key[0], metadata), self._events(key, metadata, raw)
        return version.status_update(body, Purpose.QUEUE_STATUS, *events)

    def _events(self, key: BoardKey, metadata: Meta, raw: bytes) -> tuple[Event, ...]:
        """Return the Events to be emitted once the status has been written."""
        if key[0] == "ClusterQueue":
            return self._over_quota_events(key[2], metadata)
        view = self._engine.queues.policy_view(key[2]) if key[0] == "AdmissionPolicy" else None
        return policy_events(raw, view, policy_ref(key[2], metadata.uid)) if view is not None else ()

    def _over_quota_events(self, name: str, metadata: Meta) -> tuple[Event, ...]:
        """Return the Warning that a queue uses more than its quota allows, once for each amount."""
        view = self._engine.queues.cluster_queue_view(name)
        event = over_quota_event(view, queue_ref(name, metadata.uid)) if view is not None else None
        said, self._over_quota[name] = self._over_quota.get(name), event.note if event is not None else None
        return () if event is None or event.note == said else (event,)

    def _body(self, key: BoardKey, raw: bytes, now: float) -> bytes | None:
        kind, namespace, name = key
        if kind == "ClusterQueue":
            queue = self._engine.queues.cluster_queue_view(name)
            if queue is None:
                return None
            share, fault = self._with_share, self._fault_of(*key)
            return cluster_queue_status(raw, queue, now=now, with_share=share, fault=fault)
        if kind == "LocalQueue":
            local = self._engine.queues.local_queue_view(namespace, name)
            if local is None:
                return None
            return local_queue_status(raw, local, now=now, fault=self._fault_of(*key))
        if kind == "AdmissionPolicy":
            policy = self._engine.queues.policy_view(name)
            return policy_status(raw, policy, now=now) if policy is not None else None
        if kind == "AdmissionCheck":
            check = self._engine.queues.provisioning_check(name) if self._with_checks else None
            return check_status(raw, check, now=now) if check is not None else None
        cohort = self._engine.queues.cohort_view(name)
        return cohort_status(raw, cohort, now=now) if cohort is not None else None


def _older(new: Meta, known: Meta) -> bool:
    return (
        # Not every API server uses numbers for versions; without them no version is known to be older.
        new.resource_version.isdigit()
        and known.resource_version.isdigit()
        and int(new.resource_version) <= int(known.resource_version)
    )


def _status_in(body: bytes) -> object:
    return msgspec.json.decode(body).get("status")
