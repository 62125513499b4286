"""An API server in memory, and lines to it that are slow, lose answers and deliver late.

It holds to what the guards of Berth rest on: a resourceVersion for every change, 409 for a write that saw
another one or another uid, status apart from spec, generations. `laws` are asked at every change.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from admission.decisions.api_writes import Verb, Write
from api.kube.embedded.apply.patches import merge_patch
from api.kube.errors import Conflict, KubeError, NotFound, Timeout, Unreachable
from api.kube.informer import ChangeType
from api.parsing.times import to_rfc3339
from tests import rights
from tests.admission.controller.virtualtime import VirtualLoop

Object = dict[str, Any]
Key = tuple[str, str, str]
Watcher = Callable[[ChangeType, Object], None]
Law = Callable[[Mapping[Key, Object], Object | None, Object | None], None]


class FakeCluster:
    """Objects by kind, namespace and name."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.objects: dict[Key, Object] = {}
        self.watchers: list[Watcher] = []
        self.laws: list[Law] = []
        self.broken: list[str] = []
        self.written: list[Write] = []
        self._loop = loop
        self._version = 100

    # --- what users and other controllers do ---

    def create(self, obj: Object) -> None:
        """Make an object; uid, version and time are given here."""
        obj = copy.deepcopy(obj)
        metadata = obj["metadata"]
        key = obj["kind"], metadata.get("namespace", ""), metadata["name"]
        assert key not in self.objects
        metadata["uid"] = f"uid-{self._version + 1}"
        metadata["creationTimestamp"] = to_rfc3339(self._loop.now())
        self._put(key, obj)

    def edit(self, key: Key, change: Callable[[Object], None]) -> None:
        """Change an object."""
        obj = copy.deepcopy(self.objects[key])
        change(obj)
        self._put(key, obj)

    def delete(self, key: Key) -> None:
        """Delete an object."""
        gone = self.objects.pop(key)
        self._version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(ChangeType.DELETED, gone, None, gone)

    # --- what Berth does ---

    def apply(self, write: Write) -> bytes:
        """Carry out one write and return the object; raises what an API server answers."""
        rights.check(write)
        self.written.append(write)
        key = write.kind, write.namespace, write.name
        current = self.objects.get(key)
        if current is None:
            raise NotFound(f"{key} not found", status=404)
        body = msgspec.json.decode(write.body)
        _check_preconditions(current["metadata"], body.get("preconditions") or body.get("metadata", {}))
        if write.verb is Verb.DELETE:
            self.delete(key)
            return b""
        changed = merge_patch(current, body) if write.verb is Verb.MERGE_PATCH else body
        if write.subresource == "status":
            changed = {**current, "status": changed.get("status", {})}
        else:
            changed = {**changed, "status": current.get("status", {})}
        changed["metadata"] = {**changed["metadata"], "uid": current["metadata"]["uid"]}
        self._put(key, changed)
        return msgspec.json.encode(self.objects[key])

    def read(self, key: Key) -> bytes:
        """Return the object; raises NotFound."""
        if key not in self.objects:
            raise NotFound(f"{key} not found", status=404)
        return msgspec.json.encode(self.objects[key])

    def list(self, kind: str) -> bytes:
        """Return all objects of a kind, in one page."""
        items = [obj for (of, _, _), obj in sorted(self.objects.items()) if of == kind]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _put(self, key: Key, obj: Object) -> None:
        before = self.objects.get(key)
        if before is not None and _is_same(before, obj):
            return
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        is_new_spec = before is None or before.get("spec") != obj.get("spec")
        metadata["generation"] = metadata.get("generation", 0) + is_new_spec
        self.objects[key] = stored = {**obj, "metadata": metadata}
        type_ = ChangeType.ADDED if before is None else ChangeType.MODIFIED
        self._tell(type_, stored, before, stored)

    def _tell(self, type_: ChangeType, shown: Object, before: Object | None, after: Object) -> None:
        for law in self.laws:
            try:
                law(self.objects, before, None if type_ is ChangeType.DELETED else after)
            except AssertionError as error:
                self.broken.append(str(error))
        for watcher in self.watchers:
            watcher(type_, shown)


def _check_preconditions(metadata: Object, seen: Object) -> None:
    for field_ in ("uid", "resourceVersion"):
        if seen.get(field_) not in (None, metadata[field_]):
            raise Conflict(f"{field_} is {metadata[field_]}, not {seen[field_]}", status=409)


def _is_same(before: Object, after: Object) -> bool:
    def without_version(obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}

    return without_version(before) == without_version(after)


@dataclass
class Faults:
    """What the next requests meet. `late_seconds`: how long after sending the next ones arrive, each once.

    `errors` answer the next ones without an effect, `errors_after_late` those that come when none is to be
    late any more; `lost` answers of the next ones never come back.
    """

    errors: list[KubeError] = field(default_factory=list)
    late_seconds: list[float] = field(default_factory=list)
    errors_after_late: list[KubeError] = field(default_factory=list)
    lost: int = 0
    is_cut: bool = False
    # Asked at each request; the error that it returns is the answer.
    refuses: Callable[[], KubeError | None] = lambda: None
    # Whether a request may arrive after its sender has given it up.
    arrives_late: bool = True
    # Which writes meet them; by default all.
    meets: Callable[[Write], bool] = lambda _: True


class Line:
    """One client's way to the cluster: sends, reads, lists, and receives changes in order."""

    def __init__(self, cluster: FakeCluster, loop: VirtualLoop, chance: random.Random) -> None:
        self.faults = Faults()
        self.hears_after_seconds = 0.0
        # Kinds whose changes arrive before anything else that happens later.
        self.hears_at_once: set[str] = set()
        self.answers_after_seconds = 0.0
        # How often it has listed, and the names of the Workloads that it has read.
        self.lists = 0
        self.reads: list[str] = []
        self._cluster = cluster
        self._loop = loop
        self._chance = chance

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write. What is on its way arrives, whatever becomes of the sender."""
        is_met = self.faults.meets(write)
        return await self._exchange(lambda: self._cluster.apply(write), timeout_seconds, is_write=is_met)

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Read one object."""
        if kind == "Workload":
            self.reads.append(name)
        return await self._exchange(lambda: self._cluster.read((kind, namespace, name)), timeout_seconds)

    async def list_all(self, kind: str) -> list[bytes]:
        """List the objects of a kind."""
        self.lists += 1
        body = await self._exchange(lambda: self._cluster.list(kind), 30.0)
        return [msgspec.json.encode(item) for item in msgspec.json.decode(body)["items"]]

    def watch(self, hear: Watcher) -> None:
        """Receive every change in order, some time after it happened."""
        last = [0.0]

        def on_change(type_: ChangeType, obj: Object) -> None:
            delay = self._chance.uniform(0.001, 0.02) + self.hears_after_seconds
            if obj["kind"] in self.hears_at_once:
                self._loop.call_soon(hear, type_, obj)
                return
            last[0] = max(last[0], self._loop.time() + delay)
            self._loop.call_at(last[0], hear, type_, obj)

        self._cluster.watchers.append(on_change)

    async def _exchange(
        self, serve: Callable[[], bytes], timeout_seconds: float, *, is_write: bool = False
    ) -> bytes:
        if self.faults.is_cut:
            await asyncio.sleep(0.01)
            raise Unreachable("the line is cut")
        if (refusal := self.faults.refuses()) is not None:
            await asyncio.sleep(0.002)
            raise refusal
        if is_write and self.faults.errors:
            # Taken before the wait: another request may take the next one meanwhile.
            error = self.faults.errors.pop(0)
            await asyncio.sleep(0.002)
            raise error
        if is_write and self.faults.errors_after_late and not self.faults.late_seconds:
            error = self.faults.errors_after_late.pop(0)
            await asyncio.sleep(0.002)
            raise error
        there = self._chance.uniform(0.001, 0.01) + self.answers_after_seconds
        if is_write and self.faults.late_seconds:
            there = self.faults.late_seconds.pop(0)
        is_lost = is_write and self.faults.lost > 0
        self.faults.lost -= is_lost
        answered: asyncio.Future[bytes] = self._loop.create_future()
        if there < timeout_seconds or self.faults.arrives_late:
            self._loop.call_later(there, self._arrive, serve, answered, is_lost)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await answered
        except TimeoutError as silence:
            raise Timeout("no answer") from silence

    def _arrive(self, serve: Callable[[], bytes], answered: asyncio.Future[bytes], is_lost: bool) -> None:
        try:
            answer: bytes | KubeError = serve()
        except KubeError as error:
            answer = error
        if not is_lost:
            self._loop.call_later(self._chance.uniform(0.001, 0.01), _answer, answered, answer)


def _answer(answered: asyncio.Future[bytes], answer: bytes | KubeError) -> None:
    if answered.done():
        return
    if isinstance(answer, KubeError):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)
