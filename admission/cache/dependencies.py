"""Dependencies: a Workload with `berth.dev/depends-on` waits until Jobs of its namespace have succeeded.

An item of the annotation is the name of a Job or another owner, or of a Workload, or a label `key=value` that
several Workloads share. Of an owner with several Workloads, as after a change of its size, the newest counts.
Only namespaces in which a Workload waits for another are indexed, so that all others cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from admission.cache.workload_record import WorkloadRecord
from api.keys import DEPENDS_ON, STEP
from api.parsing.dependency_items import MOST_ITEMS, NO_ITEMS, DependencyItems, read_items
from api.reasons import FinishedReason
from api.workload import Workload, WorkloadKey

# How many dependencies are looked at for a ring: tenants write them.
_MOST_LINKS = 1_000
# How many unfinished Workloads an item may name so that the last end among them is looked for.
MOST_AWAITED = 100
# How many of those that it waits for a message names.
_MOST_NAMED = 10
_Item = tuple[str, str]


def items_of(workload: Workload) -> tuple[str, ...]:
    """Return what the Workload depends on: names and labels, in the order of its annotation."""
    return _read(workload).items


def _read(workload: Workload) -> DependencyItems:
    text = workload.annotations.get(DEPENDS_ON) if workload.annotations else None
    return read_items(text) if text else NO_ITEMS


class _Found(NamedTuple):
    """What an item names. It is kept until one of these Workloads changes, since many may wait for an item.

    `keys`: of the newest Workload of each owner. `waits`: a sentence for each of the first that have not
    succeeded, of `total`. `links`: what these depend on in turn, each with the name of one that does.
    `awaited`: those that have not ended; None if one has failed, there are none, or there are too many.
    """

    keys: frozenset[WorkloadKey]
    waits: tuple[str, ...]
    total: int
    links: Mapping[str, str]
    awaited: tuple[WorkloadKey, ...] | None


class Dependencies:
    """Which Workloads wait for which others. `records` are all that are known, shared with the store."""

    def __init__(self, records: Mapping[WorkloadKey, WorkloadRecord]) -> None:
        self._records = records
        # The namespaces in which a Workload has depended on another, and all that items there can name.
        self._namespaces: set[str] = set()
        self._named: dict[_Item, dict[WorkloadKey, None]] = {}
        self._waiting: dict[_Item, dict[WorkloadKey, None]] = {}
        self._found: dict[_Item, _Found] = {}

    def note(self, before: Workload | None, after: Workload | None) -> tuple[WorkloadKey, ...]:
        """Take in a change of a Workload, None for one that is not there. Return which others it concerns."""
        key = _key_of(before, after)
        self._enlist(key, before, after)
        if key.namespace not in self._namespaces:
            return ()
        old, new = set(_names(before)), set(_names(after))
        for item in old - new:
            self._forget(self._named, item, key)
        for item in new - old:
            self._named.setdefault(item, {})[key] = None
        for item in old | new:
            self._found.pop(item, None)
        # Most changes of a status change nothing for others.
        if old == new and _state(before) == _state(after) and _asked(before) == _asked(after):
            return ()
        return tuple(
            dict.fromkeys(one for item in old | new for one in self._waiting.get(item, ()) if one != key)
        )

    def unmet(self, workload: Workload) -> str | None:
        """Return what the Workload still waits for, as a sentence that names the first; None if nothing."""
        items, has_more = _read(workload)
        if not (items or has_more) or workload.is_finished:
            return None
        if has_more:
            return f"Depends on more than {MOST_ITEMS} names and labels; name fewer in {DEPENDS_ON}"
        ring = self._ring(workload)
        if ring:
            names = " depends on ".join(ring)
            return f"Depends on itself: {names}; take one of them out of {DEPENDS_ON}"
        found = [self._find((workload.key.namespace, item)) for item in items]
        waits = [text for one in found for text in one.waits][:_MOST_NAMED]
        more = sum(one.total for one in found) - len(waits)
        return f"Depends on {'; '.join(waits)}{f'; and {more} more' if more else ''}" if waits else None

    def awaited(self, workload: Workload) -> tuple[Workload, ...]:
        """Return the Workloads that one that waits waits for; () if one is missing or has failed.

        Then no end of its wait is known, and it is not looked for among more than `MOST_AWAITED` of an item.
        """
        items, has_more = _read(workload)
        waits: dict[WorkloadKey, Workload] = {}
        for item in items:
            awaited = self._find((workload.key.namespace, item)).awaited
            if awaited is None or has_more:
                return ()
            waits.update({key: self._records[key].workload for key in awaited})
        return tuple(waits.values())

    def _enlist(self, key: WorkloadKey, before: Workload | None, after: Workload | None) -> None:
        """Record what the Workload waits for. The first of its namespace that waits has all there indexed."""
        old, new = _asked(before), _asked(after)
        for name in old:
            item = (key.namespace, name)
            if name not in new:
                self._forget(self._waiting, item, key)
                if item not in self._waiting:
                    self._found.pop(item, None)
        for name in new:
            self._waiting.setdefault((key.namespace, name), {})[key] = None
        if new and key.namespace not in self._namespaces:
            self._namespaces.add(key.namespace)
            for one, record in self._records.items():
                if one.namespace == key.namespace and one != key:
                    for item in _names(record.workload):
                        self._named.setdefault(item, {})[one] = None
            for item in _names(before):
                self._named.setdefault(item, {})[key] = None

    @staticmethod
    def _forget(index: dict[_Item, dict[WorkloadKey, None]], item: _Item, key: WorkloadKey) -> None:
        keys = index.get(item, {})
        keys.pop(key, None)
        if not keys:
            index.pop(item, None)

    def _find(self, item: _Item) -> _Found:
        found = self._found.get(item)
        if found is None:
            newest = self._newest(item)
            waits = list(_waits(item[1], newest))
            links = {
                name: one.owner_name or one.key.name
                for one in reversed(newest)
                if not one.is_finished
                for name in items_of(one)
            }
            keys = frozenset(one.key for one in newest)
            found = _Found(keys, tuple(waits[:_MOST_NAMED]), len(waits), links, _awaited(newest))
            self._found[item] = found
        return found

    def _newest(self, item: _Item) -> list[Workload]:
        """Return the Workloads that an item names: of each owner the newest.

        A slice that has ended while its elastic Job goes on says nothing about the Job.
        """
        newest: dict[object, Workload] = {}
        for key in self._named.get(item, ()):
            one = self._records[key].workload
            if one.is_superseded:
                continue
            # Names may be used again; labels are shared on purpose.
            owner = item if "=" not in item[1] else one.owner_uid or key
            known = newest.get(owner)
            if known is None or (one.created_at, one.key) > (known.created_at, known.key):
                newest[owner] = one
        return sorted(newest.values(), key=lambda one: one.key)

    def _ring(self, workload: Workload) -> list[str]:
        """Return the names of a ring of dependencies through the Workload, [] without one."""
        own, namespace = workload.owner_name or workload.key.name, workload.key.namespace
        # Each item is followed once, however many Workloads it names.
        paths = {item: [own] for item in reversed(items_of(workload))}
        stack = list(paths)
        while stack and len(paths) < _MOST_LINKS:
            item = stack.pop()
            found = self._find((namespace, item))
            if workload.key in found.keys:
                return [*paths[item], own]
            for name, other in found.links.items():
                if name not in paths:
                    paths[name] = [*paths[item], other]
                    stack.append(name)
        return []


def _key_of(before: Workload | None, after: Workload | None) -> WorkloadKey:
    known = after if after is not None else before
    assert known is not None
    return known.key


def _asked(workload: Workload | None) -> tuple[str, ...]:
    """Return the items that a Workload waits for; a finished one waits for none."""
    return () if workload is None or workload.is_finished else items_of(workload)


def _names(workload: Workload | None) -> Iterator[_Item]:
    """Yield by which items the Workload can be named."""
    if workload is None:
        return
    namespace = workload.key.namespace
    yield namespace, workload.key.name
    if workload.owner_name:
        yield namespace, workload.owner_name
    if step := workload.annotations.get(STEP):
        yield namespace, f"{STEP}={step}"
    for key, value in (workload.labels or {}).items():
        yield namespace, f"{key}={value}"


def _waits(item: str, found: list[Workload]) -> Iterator[str]:
    """Yield a sentence for each Workload that an item names and that has not succeeded."""
    if not found:
        how = "no Workload has this label" if "=" in item else "no such Job is in a queue"
        yield f"{item}: {how}; create it, or take it out of {DEPENDS_ON}"
    for one in found:
        state = _unfinished(one)
        if state is not None:
            yield f"{one.owner_name or one.key.name}{f' ({item})' if '=' in item else ''}: {state}"


def _awaited(found: list[Workload]) -> tuple[WorkloadKey, ...] | None:
    """Return those that have yet to end; None if their last end cannot be known, or is not looked for."""
    waits = [one for one in found if _unfinished(one) is not None]
    is_known = found and len(waits) <= MOST_AWAITED and not any(one.is_finished for one in waits)
    return tuple(one.key for one in waits) if is_known else None


def _state(workload: Workload | None) -> str | None:
    return None if workload is None else _unfinished(workload)


def _unfinished(workload: Workload) -> str | None:
    """Return what keeps a Workload from having succeeded; None if it has."""
    end = workload.end
    if end is not None:
        if end.reason in (FinishedReason.SUCCEEDED, "JobFinished"):
            return None
        return f"has not succeeded ({end.reason}); run it again, or take it out of {DEPENDS_ON}"
    return "runs" if workload.is_admitted else "waits"
