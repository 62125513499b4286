"""How each fault of a schedule comes about, and how all of them end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from api.kube.errors import Unreachable
from tests.faults.apiserver import REQUEST_SECONDS, Hitch, HitchKind
from tests.faults.etcd import Key, Snapshot
from tests.faults.replica import Replica
from tests.faults.schedule import Event, Fault

if TYPE_CHECKING:
    from tests.faults.world import World

_HITCHES = {
    Fault.LATE: HitchKind.LATE,
    Fault.VERY_LATE: HitchKind.LATE,
    Fault.LOST_ANSWER: HitchKind.LOST_ANSWER,
    Fault.ERROR_BEFORE: HitchKind.ERROR_BEFORE,
    Fault.ERROR_AFTER: HitchKind.ERROR_AFTER,
    Fault.REFUSED: HitchKind.REFUSED,
    Fault.THROTTLED: HitchKind.THROTTLED,
}
# By the count of the event, less one: what an object that fails meets, and whether reads of it do too.
_OBJECT_FAILURES = (
    (HitchKind.ERROR_BEFORE, True),
    # A webhook that is down for this object, and one that refuses it.
    (HitchKind.ERROR_BEFORE, False),
    (HitchKind.REFUSED, False),
)
# How often a snapshot of etcd is taken, and how long one is kept.
_SNAPSHOT_SECONDS, _SNAPSHOTS = 1.0, 25


class Trouble:
    """Carries out the events of a schedule."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._snapshots: list[tuple[float, Snapshot]] = []
        # Machines whose process was killed or stopped and has yet to start again.
        self._missing: list[int] = []
        world.loop.later(0.0, self._take_snapshot)

    def strike(self, event: Event, process: str, key: Key | None) -> bool:
        """Let a fault happen, to `process` and the object at `key` if given; return whether it could."""
        if (kind := _HITCHES.get(event.fault)) is not None:
            seconds = min(event.seconds, REQUEST_SECONDS)
            self._world.server.hitches.append(Hitch(kind=kind, left=event.count, seconds=seconds))
            return True
        if (on_replica := self._on_replica.get(event.fault)) is not None:
            replica = self._replica(event, process)
            if replica is None:
                return False
            on_replica(self, replica, event)
            return True
        if (on_object := self._on_object.get(event.fault)) is not None:
            return on_object(self, event, key)
        return self._elsewhere[event.fault](self, event)

    def heal(self) -> None:
        """End all trouble, and start what was killed."""
        world = self._world
        world.server.heal()
        world.redis.heal()
        for replica in world.replicas:
            self._loop.thaw(replica.name)
            replica.client.watch_lag = 0.0
        for number in list(self._missing):
            self._start_again(number)

    def _replica(self, event: Event, process: str) -> Replica | None:
        alive = self._world.replicas
        if not alive:
            return None
        if process:
            return next((one for one in alive if one.name == process), None)
        # Half of the faults look for the leader, which has more to lose.
        leaders = [one for one in alive if one.is_leading and event.target % 2]
        return next(iter(leaders), alive[event.target // 2 % len(alive)])

    # --- processes and machines -------------------------------------------------------------------

    def _freeze(self, replica: Replica, event: Event) -> None:
        self._loop.freeze(replica.name)
        self._loop.later(event.seconds, self._loop.thaw, replica.name)

    def _kill(self, replica: Replica, event: Event) -> None:
        replica.kill()
        self._end(replica, event.seconds)

    def _stop(self, replica: Replica, event: Event) -> None:
        replica.stop()
        self._loop.later(1.0, self._await_stop, replica, event.seconds)

    def _await_stop(self, replica: Replica, seconds: float) -> None:
        if replica not in self._world.replicas:
            return
        if not replica.has_stopped:
            self._loop.later(1.0, self._await_stop, replica, seconds)
            return
        replica.kill()
        self._end(replica, seconds)

    def _end(self, replica: Replica, seconds: float) -> None:
        self._world.replicas.remove(replica)
        number = replica.machine
        self._missing.append(number)
        self._loop.later(seconds, self._start_again, number)

    def _start_again(self, number: int) -> None:
        if number in self._missing:
            self._missing.remove(number)
            self._world.add_replica(number)

    def _jump(self, replica: Replica, event: Event) -> None:
        replica.clock.wall_offset += event.seconds

    # --- between a process and its servers --------------------------------------------------------

    def _isolate(self, replica: Replica, event: Event) -> None:
        silent = self._world.server.silent
        silent.add(replica.name)
        replica.client.close_watches(Unreachable("the network is gone"))
        self._loop.later(event.seconds, silent.discard, replica.name)

    def _isolate_from_redis(self, replica: Replica, event: Event) -> None:
        silent = self._world.redis.silent
        silent.add(replica.name)
        self._loop.later(event.seconds, silent.discard, replica.name)

    def _lag(self, replica: Replica, event: Event) -> None:
        replica.client.watch_lag = event.seconds
        replica.client.lagging = ("", "workloads", "jobs")[event.count - 1]
        self._loop.later(2 * event.seconds, self._end_lag, replica)

    def _end_lag(self, replica: Replica) -> None:
        replica.client.watch_lag = 0.0

    def _cut(self, replica: Replica, _: Event) -> None:
        replica.client.close_watches(Unreachable("the connection broke"))

    def _fail_lease(self, replica: Replica, event: Event) -> None:
        hitch = Hitch(kind=HitchKind.ERROR_BEFORE, left=1_000_000, leases_of=replica.name)
        self._world.server.hitches.append(hitch)
        self._loop.later(event.seconds, _end_hitch, hitch)

    # --- servers ----------------------------------------------------------------------------------

    def _fail_object(self, event: Event, key: Key | None) -> bool:
        keys = sorted(one for one in self._world.etcd.objects if one.plural in ("workloads", "jobs"))
        if key is not None and key.name and key.plural in ("workloads", "jobs"):
            keys = [key]
        if not keys:
            return False
        name = keys[event.target % len(keys)].name
        kind, with_reads = _OBJECT_FAILURES[event.count - 1]
        hitch = Hitch(kind=kind, left=1_000_000, object_name=name, with_reads=with_reads)
        hitches = self._world.server.hitches
        hitches.append(hitch)
        self._loop.later(event.seconds, _end_hitch, hitch)
        return True

    def _touch(self, event: Event, key: Key | None) -> bool:
        self._world.stand_ins.touch(event.target, key, asks_otherwise=event.count == 2)
        return True

    def _admit(self, event: Event) -> bool:
        return self._world.stand_ins.admit(event.target)

    def _compact(self, _: Event) -> bool:
        self._world.etcd.compact()
        self._close_watches()
        return True

    def _down(self, event: Event) -> bool:
        self._world.server.down_until = self._loop.passed + event.seconds
        self._close_watches()
        return True

    def _slow(self, event: Event) -> bool:
        server = self._world.server
        # A slow server takes part of what the fault lasts for each way of a request.
        server.slow_until, server.slow_seconds = self._loop.passed + event.seconds, event.seconds / 8
        return True

    def _restore(self, event: Event) -> bool:
        wanted = self._loop.passed - event.seconds
        snapshots = [snapshot for at, snapshot in self._snapshots if at <= wanted]
        if not snapshots:
            return False
        self._world.etcd.restore(snapshots[-1])
        self._close_watches()
        self._world.stand_ins.look_again()
        return True

    def _delete_lease(self, _: Event) -> bool:
        etcd = self._world.etcd
        leases = [key for key in etcd.objects if key.plural == "leases"]
        for key in leases:
            etcd.delete(key, at="")
        return bool(leases)

    def _close_watches(self) -> None:
        for replica in self._world.replicas:
            replica.client.close_watches(Unreachable("the connection broke"))

    def _take_snapshot(self) -> None:
        self._snapshots.append((self._loop.passed, self._world.etcd.snapshot()))
        del self._snapshots[:-_SNAPSHOTS]
        self._loop.later(_SNAPSHOT_SECONDS, self._take_snapshot)

    # --- Redis ------------------------------------------------------------------------------------

    def _restart_redis(self, event: Event) -> bool:
        # A restart takes longer than what it loses: the file has to be read.
        self._world.redis.restart(loses_seconds=event.seconds, takes_seconds=0.3 + event.seconds)
        return True

    def _promote(self, event: Event) -> bool:
        self._world.redis.restart(loses_seconds=event.seconds, takes_seconds=0.05)
        return True

    def _flush(self, _: Event) -> bool:
        self._world.redis.restart(loses_seconds=self._loop.passed + 1.0, takes_seconds=0.0)
        return True

    def _lose_before(self, event: Event) -> bool:
        self._world.redis.lost_before += event.count
        return True

    def _lose_after(self, event: Event) -> bool:
        self._world.redis.lost_after += event.count
        return True

    def _fill(self, event: Event) -> bool:
        self._world.redis.full_until = self._loop.passed + event.seconds
        return True

    def _refuse_writes(self, event: Event) -> bool:
        self._world.redis.read_only_until = self._loop.passed + event.seconds
        return True

    def _hang(self, event: Event) -> bool:
        self._world.redis.hung_until = self._loop.passed + event.seconds
        return True

    _on_replica: ClassVar[dict[Fault, Callable[[Trouble, Replica, Event], None]]] = {
        Fault.FROZEN: _freeze,
        Fault.KILLED: _kill,
        Fault.STOPPED: _stop,
        Fault.WALL_JUMP: _jump,
        Fault.ISOLATED: _isolate,
        Fault.REDIS_ISOLATED: _isolate_from_redis,
        Fault.WATCH_LAG: _lag,
        Fault.WATCH_CUT: _cut,
        Fault.LEASE_FAILS: _fail_lease,
    }
    _on_object: ClassVar[dict[Fault, Callable[[Trouble, Event, Key | None], bool]]] = {
        Fault.OBJECT_FAILS: _fail_object,
        Fault.TOUCHED: _touch,
    }
    _elsewhere: ClassVar[dict[Fault, Callable[[Trouble, Event], bool]]] = {
        Fault.FOREIGN_ADMISSION: _admit,
        Fault.COMPACTION: _compact,
        Fault.SERVER_DOWN: _down,
        Fault.SERVER_SLOW: _slow,
        Fault.ETCD_RESTORED: _restore,
        Fault.LEASE_DELETED: _delete_lease,
        Fault.REDIS_RESTARTED: _restart_redis,
        Fault.REDIS_STALE: _promote,
        Fault.REDIS_FLUSHED: _flush,
        Fault.REDIS_LOST_BEFORE: _lose_before,
        Fault.REDIS_LOST_AFTER: _lose_after,
        Fault.REDIS_FULL: _fill,
        Fault.REDIS_READ_ONLY: _refuse_writes,
        Fault.REDIS_HUNG: _hang,
    }


def _end_hitch(hitch: Hitch) -> None:
    hitch.left = 0
