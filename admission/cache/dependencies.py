"""Dependencies: a Workload with `berth.dev/depends-on` waits until Jobs of its namespace have succeeded.

An item of the annotation is the name of a Job or another owner, or of a Workload, or a label `key=value` that
several Workloads share. Of an owner with several Workloads, as after a change of its size, the newest counts.
Only items that some Workload waits for are indexed, so that Workloads without dependencies cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from admission.cache.workload_record import WorkloadRecord
from api.keys import DEPENDS_ON, STEP
from api.reasons import ConditionType, FinishedReason
from api.workload import Workload, WorkloadKey

# How many dependencies are looked at for a ring: tenants write them.
_MOST_LINKS = 1_000
_Item = tuple[str, str]


def items_of(workload: Workload) -> tuple[str, ...]:
    """Return what the Workload depends on: names and labels, in the order of its annotation."""
    text = workload.annotations.get(DEPENDS_ON) if workload.annotations else None
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(","))))) if text else ()


class Dependencies:
    """Which Workloads wait for which others. `records` are all that are known, shared with the store."""

    def __init__(self, records: Mapping[WorkloadKey, WorkloadRecord]) -> None:
        self._records = records
        # Of each item that is waited for: the Workloads that it names, and those that wait.
        self._named: dict[_Item, dict[WorkloadKey, None]] = {}
        self._waiting: dict[_Item, dict[WorkloadKey, None]] = {}

    def note(self, before: Workload | None, after: Workload | None) -> tuple[WorkloadKey, ...]:
        """Take in a change of a Workload, None for one that is not there. Return which others it concerns."""
        self._enlist(before, after)
        if not self._named:
            return ()
        old, new = set(self._items_named_by(before)), set(self._items_named_by(after))
        key = _key_of(before, after)
        for item in old - new:
            self._named[item].pop(key, None)
        for item in new:
            self._named[item][key] = None
        # Most changes of a status change nothing for others.
        if old == new and _state(before) == _state(after) and _asked(before) == _asked(after):
            return ()
        return tuple(dict.fromkeys(one for item in old | new for one in self._waiting[item] if one != key))

    def unmet(self, workload: Workload) -> str | None:
        """Return what the Workload still waits for, as a sentence that names each; None if nothing."""
        items = items_of(workload)
        if not items or workload.is_finished:
            return None
        ring = self._ring(workload)
        if ring:
            names = " depends on ".join(ring)
            return f"Depends on itself: {names}; take one of them out of {DEPENDS_ON}"
        waits = [text for item in items for text in self._waits_for(workload, item)]
        return f"Depends on {'; '.join(waits)}" if waits else None

    def _enlist(self, before: Workload | None, after: Workload | None) -> None:
        """Record what the Workload waits for, and index what its items name when they are new."""
        old = set(_asked(before))
        new = set(_asked(after))
        key = _key_of(before, after)
        for name in old - new:
            item = (key.namespace, name)
            self._waiting[item].pop(key, None)
            if not self._waiting[item]:
                del self._waiting[item], self._named[item]
        for name in new - old:
            item = (key.namespace, name)
            if item not in self._named:
                self._named[item] = {
                    one: None for one, record in self._records.items() if item in _names(record.workload)
                }
            self._waiting.setdefault(item, {})[key] = None

    def _items_named_by(self, workload: Workload | None) -> Iterator[_Item]:
        return (
            (item for item in _names(workload) if item in self._named) if workload is not None else iter(())
        )

    def _waits_for(self, workload: Workload, item: str) -> Iterator[str]:
        found = self._newest((workload.key.namespace, item))
        if not found:
            how = "no Workload has this label" if "=" in item else "no such Job is in a queue"
            yield f"{item}: {how}; create it, or take it out of {DEPENDS_ON}"
        for one in found:
            state = _unfinished(one)
            if state is not None:
                yield f"{one.owner_name or one.key.name}{f' ({item})' if '=' in item else ''}: {state}"

    def _newest(self, item: _Item) -> list[Workload]:
        """Return the Workloads that an item names: of each owner the newest."""
        newest: dict[object, Workload] = {}
        for key in self._named.get(item, ()):
            one = self._records[key].workload
            # Names may be used again; labels are shared on purpose.
            owner = item if "=" not in item[1] else one.owner_uid or key
            known = newest.get(owner)
            if known is None or (one.created_at, one.key) > (known.created_at, known.key):
                newest[owner] = one
        return sorted(newest.values(), key=lambda one: one.key)

    def _ring(self, workload: Workload) -> list[str]:
        """Return the names of a ring of dependencies through the Workload, [] without one."""
        stack: list[tuple[Workload, list[str]]] = [(workload, [workload.owner_name or workload.key.name])]
        seen: set[WorkloadKey] = set()
        while stack and len(seen) < _MOST_LINKS:
            one, path = stack.pop()
            for item in items_of(one):
                for other in self._newest((one.key.namespace, item)):
                    name = other.owner_name or other.key.name
                    if other.key == workload.key:
                        return [*path, name]
                    if other.key not in seen and not other.is_finished:
                        seen.add(other.key)
                        stack.append((other, [*path, name]))
        return []


def _key_of(before: Workload | None, after: Workload | None) -> WorkloadKey:
    known = after if after is not None else before
    assert known is not None
    return known.key


def _asked(workload: Workload | None) -> tuple[str, ...]:
    """Return the items that a Workload waits for; a finished one waits for none."""
    return () if workload is None or workload.is_finished else items_of(workload)


def _names(workload: Workload) -> Iterable[_Item]:
    """Return by which items the Workload can be named."""
    namespace = workload.key.namespace
    yield namespace, workload.key.name
    if workload.owner_name:
        yield namespace, workload.owner_name
    if step := workload.annotations.get(STEP):
        yield namespace, f"{STEP}={step}"
    for key, value in (workload.labels or {}).items():
        yield namespace, f"{key}={value}"


def _state(workload: Workload | None) -> str | None:
    return None if workload is None else _unfinished(workload)


def _unfinished(workload: Workload) -> str | None:
    """Return what keeps a Workload from having succeeded; None if it has."""
    finished = workload.conditions.get(ConditionType.FINISHED)
    if finished is not None and finished.status:
        if finished.reason in (FinishedReason.SUCCEEDED, "JobFinished"):
            return None
        return f"has not succeeded ({finished.reason}); run it again, or take it out of {DEPENDS_ON}"
    return "runs" if workload.is_admitted else "waits"
