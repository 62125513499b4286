"""The model API server: a write is received, checked, committed and answered in four steps of their own.

Between two steps anything may happen. A client that gives a request up does not take it back: it is committed
when its time comes, up to a minute later, against the state of that moment. What goes wrong is said by
hitches, each for the next requests that it fits, and by states of the server that last for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from api.kube.embedded.apply.patches import merge_patch
from api.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from api.parsing.times import to_rfc3339
from tests.faults.etcd import Etcd, Key, Object
from tests.faults.loop import ShuffledLoop
from tests.faults.phases import Phase, phase_of_request

_READS = ("GET",)
# After this time the server ends a request. The real one takes three times as long, and a leader that waits
# for that would spend most of a run on it.
REQUEST_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: who sent it, and what for. `key.name` "" means the collection."""

    process: str
    method: str
    key: Key
    subresource: str
    body: Object
    sent_at: float
    phase: Phase | None

    @property
    def is_write(self) -> bool:
        """Whether it may change something."""
        return self.method not in _READS


class HitchKind(StrEnum):
    """What happens to a request."""

    LATE = "late"
    LOST_ANSWER = "lost answer"
    ERROR_BEFORE = "error before the effect"
    ERROR_AFTER = "error after the effect"
    REFUSED = "refused"
    THROTTLED = "throttled"


@dataclass(slots=True, kw_only=True)
class Hitch:
    """What the next `left` writes meet.

    `object_name`: only requests on that object, reads included if `with_reads`. `leases_of`: only those of
    that process on its lease.
    """

    kind: HitchKind
    left: int
    seconds: float = 0.0
    object_name: str = ""
    with_reads: bool = True
    leases_of: str = ""

    def meets(self, request: Request) -> bool:
        """Return whether a request meets this."""
        if self.left <= 0:
            return False
        if self.object_name:
            return request.key.name == self.object_name and (self.with_reads or request.is_write)
        if self.leases_of:
            return (request.process, request.key.plural) == (self.leases_of, "leases")
        return request.is_write


Commit = Callable[[Request], None]


class ApiServer:
    """Serves requests from `etcd`.

    `on_send` is called with each request that a process hands to the network, `on_commit` right before a
    write takes effect. `silent` are processes whose requests get lost on the way.
    """

    def __init__(
        self, etcd: Etcd, loop: ShuffledLoop, chance: random.Random, *, on_send: Commit, on_commit: Commit
    ) -> None:
        self.etcd = etcd
        self.hitches: list[Hitch] = []
        self.silent: set[str] = set()
        self.down_until = 0.0
        self.slow_until, self.slow_seconds = 0.0, 0.0
        #: The request whose write takes effect now.
        self.committing: Request | None = None
        self._loop = loop
        self._chance = chance
        self._on_send = on_send
        self._on_commit = on_commit

    def heal(self) -> None:
        """End all trouble; what is late stays late."""
        self.hitches.clear()
        self.silent.clear()
        self.down_until = self.slow_until = 0.0

    def send(
        self, process: str, method: str, key: Key, subresource: str, body: bytes
    ) -> asyncio.Future[bytes]:
        """Take one request from the network; the future gets the answer, or a KubeError, or nothing."""
        item: Object = msgspec.json.decode(body) if body else {}
        before = self.etcd.find(key) if key.name else None
        phase = phase_of_request(method, key.plural, is_named=bool(key.name), body=item, before=before)
        request = Request(
            process=process,
            method=method,
            key=key,
            subresource=subresource,
            body=item,
            sent_at=self._loop.time(),
            phase=phase,
        )
        self._on_send(request)
        answered: asyncio.Future[bytes] = self._loop.create_future()
        if process not in self.silent:
            hitch = next((one for one in self.hitches if one.meets(request)), None)
            if hitch is not None:
                hitch.left -= 1
            self._loop.later(self._way(), self._receive, request, hitch, answered)
        return answered

    def _way(self) -> float:
        slow = self.slow_seconds if self._loop.time() < self.slow_until else 0.0
        return self._chance.uniform(0.0005, 0.004) + slow

    def _receive(self, request: Request, hitch: Hitch | None, answered: asyncio.Future[bytes]) -> None:
        if self._loop.time() < self.down_until:
            self._answer(request, answered, Unreachable("the server is down"))
            return
        try:
            # Checked against the state of now, and again at the commit.
            self._check(request)
        except KubeError as error:
            self._answer(request, answered, error)
            return
        kind = hitch.kind if hitch is not None else None
        match kind:
            case HitchKind.ERROR_BEFORE:
                self._answer(request, answered, ServerError("etcd has no leader", status=500))
            case HitchKind.REFUSED if request.is_write:
                self._answer(request, answered, Forbidden("a webhook refuses this", status=403))
            case HitchKind.THROTTLED:
                seconds = hitch.seconds if hitch is not None else 1.0
                busy = TooManyRequests("busy", status=429, retry_after_seconds=seconds)
                self._answer(request, answered, busy)
            case _:
                late = hitch.seconds if hitch is not None and kind is HitchKind.LATE else 0.0
                thinking = self._chance.uniform(0.0002, 0.002) + late
                self._loop.later(thinking, self._commit, request, kind, answered)

    def _commit(self, request: Request, kind: HitchKind | None, answered: asyncio.Future[bytes]) -> None:
        answer: bytes | KubeError
        try:
            answer = self._serve(request)
        except KubeError as error:
            answer = error
        if kind is HitchKind.ERROR_AFTER:
            answer = ServerError("the connection to etcd broke", status=504)
        if kind is not HitchKind.LOST_ANSWER:
            self._answer(request, answered, answer)

    def _answer(self, request: Request, answered: asyncio.Future[bytes], answer: bytes | KubeError) -> None:
        if self._loop.time() < self.down_until and not isinstance(answer, KubeError):
            answer = Unreachable("the connection broke")
        if request.process not in self.silent:
            self._loop.later(self._way(), _set, answered, answer)

    # --- what a request does ----------------------------------------------------------------------

    def _serve(self, request: Request) -> bytes:
        self._check(request)
        key = request.key
        if request.method == "GET":
            return self.etcd.objects[key].raw if key.name else self._list(key)
        self._on_commit(request)
        self.committing = request
        try:
            return self._write(request)
        finally:
            self.committing = None

    def _write(self, request: Request) -> bytes:
        key, body = request.key, request.body
        now = to_rfc3339(self._loop.now())
        if request.method == "POST":
            return self.etcd.create(_named(request), body, at=now).raw
        if request.method == "DELETE":
            return self.etcd.delete(key, at=now).raw
        current = self.etcd.objects[key].item
        changed = merge_patch(current, body) if request.method == "PATCH" else body
        fixed = {name: current["metadata"][name] for name in _FIXED if name in current["metadata"]}
        if request.subresource == "status":
            changed = {**current, "status": changed.get("status", {})}
        else:
            changed = {**changed, "metadata": {**changed["metadata"], **fixed}}
            changed.pop("status", None)
            if "status" in current:
                changed["status"] = current["status"]
        return self.etcd.update(key, changed).raw

    def _check(self, request: Request) -> None:
        key = request.key
        if not key.name and request.method == "GET":
            return
        if request.method == "POST":
            if _named(request) in self.etcd.objects:
                raise AlreadyExists("it is there", status=409)
            return
        current = self.etcd.find(key)
        if current is None:
            raise NotFound(f"{key.plural} {key.name!r} not found", status=404)
        seen = request.body.get("preconditions") or request.body.get("metadata") or {}
        for name in ("uid", "resourceVersion"):
            if seen.get(name) not in (None, "", current["metadata"][name]):
                raise Conflict(f"{name} is {current['metadata'][name]}, not {seen[name]}", status=409)

    def _list(self, key: Key) -> bytes:
        found = (
            stored.item
            for stored in self.etcd.of(key.plural)
            if not key.namespace or stored.item["metadata"].get("namespace") == key.namespace
        )
        return msgspec.json.encode(
            {"metadata": {"resourceVersion": str(self.etcd.version)}, "items": list(found)}
        )


_FIXED = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")


def _named(request: Request) -> Key:
    return request.key._replace(name=request.body["metadata"]["name"])


def _set(answered: asyncio.Future[bytes], answer: bytes | KubeError) -> None:
    if answered.done():
        return
    if isinstance(answer, KubeError):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)
