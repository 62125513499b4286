"""What another program writes into Redis admits nothing and stops nothing.

The real takeover in virtual time. The store is the one on Redis, with fakeredis behind it. `w` asks for all
of the cohort's quota, and the forger says otherwise. First without a signing key, as if the forger had it,
then with one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import fakeredis
import msgspec
import pytest

from admission.decisions.decision import Admit
from admission.reconcile.decision_writes import admit_write
from api.workload import Admission, PodSetAssignment, WorkloadKey
from queues.reservations.plan import PlanTable
from queues.reservations.reservations import CorruptValue, QuotaReservation
from queues.store import encoding
from queues.store.faults import StoreLocation
from queues.store.keys import Keys, to_field
from queues.store.plan_rows import RowFault, read_rows
from queues.store.redis_scripts import Execute
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import Seal
from tests.admission.controller.cluster import Object
from tests.admission.controller.replica import Replica
from tests.admission.controller.stage import ALL, Stage
from tests.admission.controller.virtualtime import end

KEYS = Keys("default")
W = WorkloadKey("team", "w")


class OneLife(RedisReservationStore):
    """The store on a Redis that never restarts; fakeredis knows no INFO."""

    async def present_life(self, _: Execute | None = None, /) -> str:
        """Return the only life."""
        return "1"


class Redis:
    """A Redis in this process, as the controller's client and the forger's see it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._client = fakeredis.FakeAsyncRedis()
        self.ignored: list[CorruptValue] = []
        self.store = OneLife(
            self._client, place=StoreLocation(address="this process"), on_corrupt=self.ignored.append
        )

    def run(self, *command: str | bytes) -> object:
        """Return Redis's answer to one command."""
        execute: Callable[..., Awaitable[object]] = self._client.execute_command
        return self._stage.loop.run_until_complete(execute(*command))

    def fields(self) -> object:
        """Return the fields of the reservations."""
        return self.run("HKEYS", KEYS.reservations)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and close its loop."""
    made = Stage()
    yield made
    end(made.loop)


@pytest.fixture
def redis(stage: Stage) -> Redis:
    """Give the Redis that all replicas of the stage use."""
    made = Redis(stage)
    stage.redis = made.store
    return made


def a_choice(**changes: Any) -> Admission:
    """Return an admission of `w` that charges nothing."""
    one = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": 0})
    return Admission(cluster_queue="a", pod_sets=(replace(one, **changes),))


def forge(stage: Stage, redis: Redis, admission: Admission, *, fence: int, seal: Seal | None = None) -> None:
    """Store a reservation of the Workload `w` with this admission, under a fence of the forger's."""
    obj = stage.workload("w")
    uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
    decision = Admit(key=W, uid=uid, resource_version=version, admission=admission, is_admitted=True)
    write = admit_write(decision, msgspec.json.encode(obj), now=stage.loop.now())
    reservation = QuotaReservation(
        key=W,
        uid=uid,
        resource_version=version,
        request_id="forged",
        fence=fence,
        reserved_at=0.0,
        verb="PUT",
        path="/",
        write=write.body,
    )
    field, seal = to_field(reservation.id), seal or Seal()
    value = seal.close(KEYS.reservation(field), encoding.encode(reservation))
    redis.run("HSET", KEYS.reservations, field, value)
    redis.run("SET", KEYS.fence, seal.close(KEYS.fence, b"%d" % fence))


def is_store_up(leader: Replica) -> float | None:
    """Return the gauge."""
    return leader.metrics.registry.get_sample_value("berth_store_up", {"replica_role": "leader"})


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(a_choice(), id="it charges nothing"),
        pytest.param(a_choice(flavors={}, usage={}), id="it names no flavor"),
        pytest.param(a_choice(count=0), id="it is for no pod"),
        pytest.param(a_choice(flavors={"cpu": "other"}), id="its flavor is of no queue"),
        pytest.param(replace(a_choice(), cluster_queue="b"), id="it is in another queue"),
        pytest.param(replace(a_choice(), pod_sets=()), id="it is for no pod set"),
    ],
)
def test_a_forged_reservation_takes_no_quota_that_is_in_use(
    forged: Admission, stage: Stage, redis: Redis
) -> None:
    first = stage.lead()
    stage.submit("holder")
    stage.wait(1.0)
    stage.submit("w")
    stage.wait(1.0)
    first.crash()
    forge(stage, redis, forged, fence=9)

    stage.start().lead(10)
    stage.wait(30.0)

    assert stage.admitted() == ["holder"]
    assert redis.fields() == []


def test_what_a_forged_reservation_admits_is_charged_as_the_spec_says(stage: Stage, redis: Redis) -> None:
    first = stage.lead()
    stage.submit("holder")
    stage.wait(1.0)
    stage.submit("w")
    stage.wait(1.0)
    first.crash()
    forge(stage, redis, a_choice(), fence=9)
    stage.cluster.delete(("Workload", "team", "holder"))

    stage.start().lead(10)
    stage.wait(30.0)

    assert stage.admitted() == ["w"]
    (assignment,) = stage.workload("w")["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {"cpu": str(ALL)}


def _require_a_check(obj: Object) -> None:
    obj["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}


def test_a_forged_reservation_skips_no_admission_check(stage: Stage, redis: Redis) -> None:
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "budget"}}
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    active["lastTransitionTime"] = "2027-01-15T08:00:00Z"
    stage.cluster.create({**check, "spec": {"controllerName": "c"}, "status": {"conditions": [active]}})
    stage.cluster.edit(("ClusterQueue", "", "a"), _require_a_check)
    stage.submit("w")
    forge(stage, redis, a_choice(), fence=9)

    stage.start().lead(10)
    stage.wait(30.0)

    status = stage.workload("w")["status"]
    assert [one["state"] for one in status["admissionChecks"]] == ["Pending"]
    assert ("Admitted", "True") not in [(one["type"], one["status"]) for one in status["conditions"]]


@pytest.mark.parametrize("fence", ["3000000000", "2147483647", "1e9", "-1", ""])
def test_a_fence_that_no_lease_can_have_stops_no_admission(fence: str, stage: Stage, redis: Redis) -> None:
    leader = stage.lead()
    stage.submit("before", cpus=1)
    stage.wait(1.0)
    redis.run("SET", KEYS.fence, fence)
    stage.submit("during", cpus=1)
    stage.wait(1.0)

    assert stage.admitted() == ["before", "during"]
    assert is_store_up(leader) == 0.0
    assert redis.run("GET", KEYS.fence) == fence.encode()

    redis.run("DEL", KEYS.fence)
    stage.submit("after", cpus=1)
    stage.wait(30.0)

    assert stage.admitted() == ["before", "during", "after"]
    assert is_store_up(leader) == 1.0


# --- with a signing key ------------------------------------------------------------------------------

OURS = Seal(["0" * 32], cluster="ours")


@pytest.fixture
def signed(redis: Redis) -> Redis:
    """Give the Redis of replicas that sign."""
    redis.store.seal = OURS
    return redis


@pytest.mark.parametrize(
    "seal",
    [
        pytest.param(Seal(), id="it is not signed"),
        pytest.param(Seal(["1" * 32], cluster="ours"), id="it is signed with another key"),
        pytest.param(Seal(["0" * 32], cluster="theirs"), id="it is of another cluster"),
    ],
)
def test_a_reservation_without_our_signature_is_named_and_never_replayed(
    seal: Seal, stage: Stage, signed: Redis
) -> None:
    first = stage.lead()
    stage.submit("w")
    stage.cluster.edit(("ClusterQueue", "", "a"), _stop)
    stage.wait(1.0)
    first.crash()
    stage.cluster.edit(("Workload", "team", "w"), lambda obj: obj["metadata"].update(annotations={"a": "b"}))
    forge(stage, signed, a_choice(), fence=1, seal=seal)

    stage.start().lead(2)
    # With a forged fence the store does not tell what the first leader was about to write.
    stage.wait(90.0)

    # No cycle would admit it: its queue is stopped. A replay would.
    assert stage.admitted() == []
    field = to_field((W, stage.workload("w")["metadata"]["uid"]))
    assert [(one.key, one.is_unsigned) for one in signed.ignored] == [(f"{KEYS.reservations}[{field}]", True)]
    assert signed.fields() == []


def _stop(obj: Object) -> None:
    obj["spec"]["stopPolicy"] = "Hold"


def test_our_own_reservation_is_replayed(stage: Stage, signed: Redis) -> None:
    stage.submit("w")
    forge(stage, signed, a_choice(), fence=1, seal=OURS)

    stage.start().lead(2)
    stage.wait(30.0)

    assert stage.admitted() == ["w"]
    assert signed.ignored == []


def test_a_fence_without_our_signature_stops_no_admission_and_is_raised_by_no_lease(
    stage: Stage, signed: Redis
) -> None:
    leader = stage.lead()
    stage.submit("before", cpus=1)
    stage.wait(1.0)
    signed.run("SET", KEYS.fence, "41")
    stage.submit("during", cpus=1)
    stage.wait(10.0)

    assert stage.admitted() == ["before", "during"]
    assert is_store_up(leader) == 0.0
    assert leader.leadership is not None
    assert leader.leadership.fence == 1


def test_a_row_of_the_plan_without_our_signature_is_ignored(stage: Stage, signed: Redis) -> None:
    row = b"1\n" + msgspec.msgpack.encode(3600.0)
    signed.run("HSET", KEYS.table(PlanTable.OUTRUN), "team/w/uid-w", row)

    stored = stage.loop.run_until_complete(signed.store.read_plan([PlanTable.OUTRUN]))
    values, bad = read_rows(stored)

    assert values.outrun == {}
    assert [(one.field, one.fault) for one in bad] == [("team/w/uid-w", RowFault.UNSIGNED)]


LONG = b"9" * 5_000
HEADS = {
    "of another request": b"1 5 forged\n",
    "with a fence of more digits than Python converts": b"1 %s forged\n" % LONG,
    "with a fence that no lease can have": b"1 3000000000 forged\n",
    "without a first line": b"\xff\x00",
}


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed values", "no signing key"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_value_that_is_put_where_a_reservation_will_be_keeps_no_workload_waiting(
    stage: Stage, redis: Redis, head: bytes, is_signed: bool
) -> None:
    if is_signed:
        redis.store.seal = OURS
    leader = stage.lead()
    # What is there when a term begins is judged and removed, and so it is every five seconds.
    stage.submit("before", cpus=1)
    stage.wait(1.0)
    assert stage.admitted() == ["before"]
    # Objects are numbered, so the forger can guess the uid of the next one.
    guesses = (part for number in range(100, 160) for part in (f"team/w/uid-{number}", head + b"junk"))
    redis.run("HSET", KEYS.reservations, *guesses)
    stage.submit("w", cpus=1)
    stage.submit("other", cpus=1)
    stage.wait(1.0)

    assert sorted(stage.admitted()) == ["before", "other", "w"]
    assert leader.leadership is not None


@pytest.mark.parametrize(
    "version",
    [b"1 %s 1" % LONG, b"1 1 " + LONG, "1 ٣ 1".encode(), b"1 -1 1", b"\xff", b""],
    ids=["a long fence", "a long number", "other digits", "a sign", "bytes", "nothing"],
)
def test_a_version_of_the_plan_that_cannot_be_read_ends_no_term(
    stage: Stage, redis: Redis, version: bytes
) -> None:
    redis.run("SET", KEYS.plan, version)
    leader = stage.lead()
    stage.submit("w", cpus=1)
    stage.wait(5.0)
    redis.run("SET", KEYS.plan, version)
    stage.submit("x", cpus=1)
    stage.wait(30.0)

    assert stage.admitted() == ["w", "x"]
    assert leader.leadership is not None
