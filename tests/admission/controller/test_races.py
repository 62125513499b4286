"""The line under random interleavings: no quota exceeded, no Workload admitted twice, none forgotten.

Two replicas decide on one cluster while Workloads come, change and go, answers get lost, patches arrive late,
leaders stop, crash or sleep past their lease, and the store fails. After every change in the cluster the
quota must hold; when all is quiet, whatever fits runs, the store is empty and nothing more is written.

What the guards promise differs by what may fail together. A patch may arrive arbitrarily late while the store
is there: it knows what was under way. While the store is away a patch is guarded by its time-out alone, so in
that world a request that its sender has given up no longer arrives.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admission.controller.runtime import yield_budget
from api.kube.errors import Forbidden, KubeError, ServerError, TooManyRequests
from api.parsing.times import to_rfc3339
from queues.reservations.memory_reservations import InMemoryReservationStore
from tests.admission.controller.cluster import FakeCluster, Key, Object
from tests.admission.controller.replica import LEASE_SECONDS, Lease, Replica
from tests.admission.controller.tenancy import (
    LAWS,
    QUOTAS,
    cpus_of,
    holds_quota,
    is_let_go,
    is_true,
    make_queues,
    make_workload,
    run_programs,
    usage_of,
)
from tests.admission.controller.virtualtime import VirtualLoop, end
from tests.examples import trying

# Longer than the longest rest after a refused write, so that the last try has been made.
QUIET_SECONDS = 1000.0

_ERRORS: dict[str, Callable[[], KubeError]] = {
    "refused": lambda: Forbidden("no", status=403),
    "broken": lambda: ServerError("boom", status=500),
    "busy": lambda: TooManyRequests("later", status=429, retry_after_seconds=1.0),
}


NAMES = st.integers(0, 7)
SECONDS = st.floats(0.0, 3.0)


class Line(RuleBasedStateMachine):
    """What may happen in both worlds."""

    arrives_late = True

    @initialize(seed=st.integers(0, 1000), pauses=st.booleans())
    def begin(self, seed: int, pauses: bool) -> None:
        """Make the cluster, the store, and two replicas, of which the first leads.

        With `pauses` every cycle yields to all else after every step.
        """
        self.patch = pytest.MonkeyPatch()
        if pauses:
            self.patch.setattr(yield_budget, "SLICE_SECONDS", -1.0)
        self.loop = VirtualLoop()
        self.cluster = FakeCluster(self.loop)
        self.cluster.laws += LAWS
        self.store = InMemoryReservationStore()
        self.lease = Lease()
        self.seed, self.born, self.made = seed, 0, 0
        make_queues(self.cluster)
        run_programs(self.cluster, self.loop)
        self.replicas = [self._make(), self._make()]
        self.leader: Replica | None = None
        # Who led last.
        self.last: Replica | None = None
        self.sleepers: list[Replica] = []
        self.lease_free_at = 0.0
        self.elect(0)

    def _make(self) -> Replica:
        self.born += 1
        name = f"replica-{self.born}"
        replica = Replica(name, self.cluster, self.store, self.lease, self.loop, seed=self.seed)
        replica.line.faults.arrives_late = self.arrives_late
        replica.start()
        return replica

    # --- users ---

    @rule(queue=st.sampled_from(sorted(QUOTAS)), cpus=st.integers(1, 4), priority=st.integers(0, 2))
    def submit(self, queue: str, cpus: int, priority: int) -> None:
        """Create a Workload."""
        if len(self._workloads()) < 8:
            self.made += 1
            self.cluster.create(make_workload(f"w{self.made}", queue, cpus, priority))

    @rule(index=NAMES)
    def finish(self, index: int) -> None:
        """End a running Workload."""
        running = [key for key in self._workloads() if is_true(self.cluster.objects[key], "Admitted")]
        if running:
            self.cluster.edit(running[index % len(running)], self._finish)

    @rule(index=NAMES)
    def delete(self, index: int) -> None:
        """Delete a Workload."""
        if key := self._any(index):
            self.cluster.delete(key)

    @rule(index=NAMES, queue=st.sampled_from(sorted(QUOTAS)), cpus=st.integers(1, 4))
    def replace(self, index: int, queue: str, cpus: int) -> None:
        """Delete a Workload and make another of its name at once."""
        if key := self._any(index):
            self.cluster.delete(key)
            self.cluster.create(make_workload(key[2], queue, cpus, 0))

    @rule(index=NAMES, queue=st.sampled_from(sorted(QUOTAS)), cpus=st.integers(1, 4))
    def rewrite(self, index: int, queue: str, cpus: int) -> None:
        """Change what a Workload without quota asks for, and where; with quota the server forbids it."""
        key = self._any(index)
        if key and not self.cluster.objects[key].get("status", {}).get("admission"):
            spec = make_workload(key[2], queue, cpus, 0)["spec"]
            self._edit(index, lambda obj: obj["spec"].update(podSets=spec["podSets"], queueName=queue))

    @rule(index=NAMES)
    def annotate(self, index: int) -> None:
        """Change what does not matter: only the version moves."""
        self._edit(index, lambda obj: obj["metadata"].update(annotations={"seen": str(self.loop.time())}))

    @rule(index=NAMES, priority=st.integers(0, 2))
    def prioritise(self, index: int, priority: int) -> None:
        """Change the priority, and with it the generation."""
        self._edit(index, lambda obj: obj["spec"].update(priority=priority))

    @rule(index=NAMES, active=st.booleans())
    def switch(self, index: int, active: bool) -> None:
        """Deactivate, or reactivate once the program has released it: its quota may be that of others now."""
        key = self._any(index)
        if key and not (
            active and is_let_go(self.cluster.objects[key]) and holds_quota(self.cluster.objects[key])
        ):
            self._edit(index, lambda obj: obj["spec"].update(active=active))

    # --- time and network ---

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_for(seconds)

    @rule(index=NAMES, count=st.integers(1, 3), seconds=SECONDS)
    def delay_writes(self, index: int, count: int, seconds: float) -> None:
        """Let the next writes of a replica arrive late: perhaps after it has given them up, or stopped."""
        self._replica(index).line.faults.late_seconds += [4 * seconds] * count

    @rule(index=NAMES, count=st.integers(1, 3))
    def lose_answers(self, index: int, count: int) -> None:
        """Let the next writes of a replica arrive, and their answers not."""
        self._replica(index).line.faults.lost += count

    @rule(index=NAMES, word=st.sampled_from(sorted(_ERRORS)), count=st.integers(1, 6))
    def answer_errors(self, index: int, word: str, count: int) -> None:
        """Let the next writes of a replica fail."""
        self._replica(index).line.faults.errors += [_ERRORS[word]() for _ in range(count)]

    @rule(index=NAMES, seconds=SECONDS)
    def lag_watch(self, index: int, seconds: float) -> None:
        """Make a replica's watch lag from now on."""
        self._replica(index).line.hears_after_seconds = seconds

    # --- leaders ---

    @precondition(lambda self: self.leader is None)
    @rule(index=NAMES)
    def elect(self, index: int) -> None:
        """Let a replica that is awake lead, once the lease has run out."""
        self.loop.run_for(max(0.0, self.lease_free_at - self.loop.time()))
        awake = [replica for replica in self.replicas if replica not in self.sleepers]
        self.leader = awake[index % len(awake)]
        known = 0 if self.leader.store.is_away else self.store.fence or 0
        self.leader.lead(max(self.lease.number, known) + 1, continues=self.leader is self.last)
        self.last = self.leader

    @precondition(lambda self: self.leader is not None)
    @rule()
    def stop_leader(self) -> None:
        """Stop the leader in order: the lease is free at once."""
        assert self.leader is not None
        self.leader.stop_leading()
        self.leader = None

    @precondition(lambda self: self.leader is not None)
    @rule()
    def crash_leader(self) -> None:
        """Kill the leader; another process starts in its place."""
        assert self.leader is not None
        self.lease_free_at = self.loop.time() + LEASE_SECONDS
        self.leader.crash()
        self.replicas.remove(self.leader)
        self.replicas.append(self._make())
        self.leader = None

    @precondition(lambda self: self.leader is not None and not self.sleepers)
    @rule()
    def sleep_leader(self) -> None:
        """Let the leader sleep past its lease, and wake believing that it leads."""
        assert self.leader is not None
        assert self.leader.leadership is not None
        self.lease_free_at = self.loop.time() + LEASE_SECONDS
        self.leader.leadership.is_over = True
        self.sleepers.append(self.leader)
        self.leader = None

    @precondition(lambda self: self.sleepers)
    @rule()
    def wake_sleeper(self) -> None:
        """Let the former leader find out that it is one no more."""
        self.sleepers.pop().stop_leading()

    # --- laws ---

    @invariant()
    def laws_hold(self) -> None:
        """No law was broken by any change since the beginning; no replica has broken down."""
        assert self.cluster.broken == []
        for replica in self.replicas:
            replica.check()

    def teardown(self) -> None:
        """Mend everything, wait, and look at what is left."""
        if not hasattr(self, "loop"):
            return
        try:
            self._mend()
            self.loop.run_for(QUIET_SECONDS)
            written = len(self.cluster.written)
            self.loop.run_for(QUIET_SECONDS)
            assert len(self.cluster.written) == written, f"no rest: {self.cluster.written[written:]}"
            self.laws_hold()
            self._check_end()
        finally:
            self.patch.undo()
            end(self.loop)

    def _mend(self) -> None:
        for replica in self.replicas:
            faults = replica.line.faults
            faults.lost, replica.line.hears_after_seconds = 0, 0.0
            faults.errors.clear()
            faults.late_seconds.clear()
            replica.store.is_away, replica.store.lost = False, 0
        while self.sleepers:
            self.wake_sleeper()
        if self.leader is None:
            self.elect(0)

    def _check_end(self) -> None:
        used = usage_of(self.cluster.objects)
        free = sum(nominal for nominal, _ in QUOTAS.values()) - sum(used.values())
        for key in self._workloads():
            obj = self.cluster.objects[key]
            if holds_quota(obj) or is_true(obj, "Finished") or not obj["spec"]["active"]:
                continue
            nominal, borrowing = QUOTAS[obj["spec"]["queueName"]]
            room = min(free, nominal + borrowing - used[obj["spec"]["queueName"]])
            assert cpus_of(obj) > room, f"{key[2]} fits and waits: {obj}"
            assert any(c["type"] == "QuotaReserved" for c in obj["status"]["conditions"]), f"untold: {obj}"
        assert self.store.reservations == {}
        for replica in self.replicas:
            self._check_books(replica)
        self._check_statuses(used)

    def _check_books(self, replica: Replica) -> None:
        """What a replica believes is what the cluster shows."""
        statistics = replica.cluster_state.engine.statistics()
        assert statistics.assumed == 0, f"{replica.name} still assumes what is not written"
        held = {key.name for key, _ in replica.cluster_state.engine.workloads.admissions()}
        assert held == {key[2] for key in self._workloads() if holds_quota(self.cluster.objects[key])}

    def _check_statuses(self, used: dict[str, int]) -> None:
        for name in QUOTAS:
            status = self.cluster.objects["ClusterQueue", "", name]["status"]
            (flavor,) = status["flavorsReservation"]
            assert flavor["resources"][0]["total"] == str(used[name]), f"{name} shows {status}"

    # --- within ---

    def _workloads(self) -> list[Key]:
        return sorted(key for key in self.cluster.objects if key[0] == "Workload")

    def _any(self, index: int) -> Key | None:
        keys = self._workloads()
        return keys[index % len(keys)] if keys else None

    def _edit(self, index: int, change: Callable[[Object], None]) -> None:
        if key := self._any(index):
            self.cluster.edit(key, change)

    def _replica(self, index: int) -> Replica:
        return self.replicas[index % len(self.replicas)]

    def _finish(self, obj: Object) -> None:
        obj["status"]["conditions"].append(
            {
                "type": "Finished",
                "status": "True",
                "reason": "Succeeded",
                "message": "done",
                "lastTransitionTime": to_rfc3339(self.loop.now()),
            }
        )


class LatePatches(Line):
    """The store is always there; patches arrive whenever they like."""


class LostStore(Line):
    """The store fails; a request that was given up does not arrive any more."""

    arrives_late = False

    @rule(index=NAMES, is_away=st.booleans())
    def cut_store(self, index: int, is_away: bool) -> None:
        """Cut a replica off the store, or let it back."""
        self._replica(index).store.is_away = is_away

    @rule(index=NAMES)
    def lose_store_answers(self, index: int) -> None:
        """Let a replica's next call of the store take effect without an answer."""
        self._replica(index).store.lost += 1

    @rule()
    def flush_store(self) -> None:
        """Empty the store, as after a fail-over to a replica that knew nothing."""
        self.store.flush()


_SETTINGS = trying(25, steps=30, is_hard_to_draw=True)
LatePatches.TestCase.settings = _SETTINGS
LostStore.TestCase.settings = _SETTINGS
TestLatePatches = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")(
    LatePatches.TestCase
)
TestLostStore = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")(
    LostStore.TestCase
)
