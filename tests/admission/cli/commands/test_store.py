"""`berth store`: what Redis holds is shown, checked and rebuilt."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import redis

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.resources import LEASES, NAMESPACES, WORKLOADS
from api.parsing.times import to_rfc3339
from api.workload import Admission, PodSetAssignment, WorkloadKey
from queues.estimates.run_history import Run
from queues.estimates.runtime_estimate import RunKey
from queues.profile.holds import Hold, Move
from queues.profile.planned_start import BackfillLease, PlannedStart, Rank
from queues.reservations.plan import PlanTable, PlanVersion, PlanWrite
from queues.reservations.usage_rows import UsageKey, UsageRow
from queues.store.keys import Keys
from queues.store.plan_rows import to_field, to_row
from queues.store.redis_store import RedisReservationStore
from tests.queues.reservation_builders import make_entry, make_reservation
from tests.redisserver import RedisServer

KEYS = Keys("default")
RANK = Rank(0, 0, 0, 1.0, "uid")


def make_promise(name: str) -> PlannedStart:
    pod_set = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": 4000})
    return PlannedStart(
        key=WorkloadKey("team", name),
        uid=f"uid-{name}",
        cluster_queue="queue",
        rank=RANK,
        start_at=1_800_000_000.0,
        seconds=60.0,
        admission=Admission(cluster_queue="queue", pod_sets=(pod_set,)),
        made_at=1.0,
        first_start_at=1_800_000_000.0,
    )


def make_lease(name: str) -> BackfillLease:
    return BackfillLease(
        key=WorkloadKey("team", name),
        uid=f"uid-{name}",
        cluster_queue="queue",
        rank=RANK,
        started_at=1.0,
        eviction_seconds=35.0,
        promised=WorkloadKey("team", "gang"),
    )


def make_hold(name: str) -> Hold:
    return Hold(
        key=WorkloadKey("team", name),
        uid=f"uid-{name}",
        cluster_queue="queue",
        priority=5,
        admission=Admission(cluster_queue="queue", pod_sets=()),
        victims=(WorkloadKey("team", "victim"),),
        until=1_800_000_000.0,
    )


async def fill(url: str) -> None:
    """Put a reservation, a decision, and a row of most tables of the plan into the store."""
    store = RedisReservationStore.from_url(url, call_seconds=10.0)
    await store.seed_fence(5)
    await store.commit([make_reservation("a")], fence=5, request_id="r1", log=[make_entry("a")])
    kind = RunKey("team", "train", "00")
    day = UsageKey(20_000, "queue", "team", "https://login.example.com/ada")
    rows: dict[PlanTable, dict[str, bytes | None]] = {
        PlanTable.PROMISES: {"team/gang": to_row(make_promise("gang"))},
        PlanTable.LEASES: {"team/small": to_row(make_lease("small"))},
        PlanTable.HOLDS: {"team/large": to_row(make_hold("large"))},
        PlanTable.MOVES: {"team/moved": to_row(Move(at=1_800_000_000.0, policy="packing"))},
        PlanTable.RUNS: {to_field(PlanTable.RUNS, kind): to_row((Run(at=1.0, uid="u", seconds=7.0),))},
        PlanTable.USAGE: {to_field(PlanTable.USAGE, day): to_row(UsageRow(workloads=2, used=5400.0))},
    }
    write = PlanWrite(version=PlanVersion(5, 1), after=None, rows=rows)
    assert await store.write_plan(write, fence=5)
    await store.close()


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    """Give the URL of a store that a leader has used."""
    asyncio.run(fill(redis_server.url))
    return redis_server.url


def spoil(url: str) -> None:
    """Put what Berth cannot read, or does not know, into the store."""
    with redis.Redis.from_url(url) as client:
        client.hset(KEYS.reservations, "team/bad/uid", b"garbage")
        client.hset(KEYS.table(PlanTable.PROMISES), "team/other", b"2\n\x80")
        client.hset(KEYS.table(PlanTable.LEASES), b"\xff", b"garbage")
        client.set(KEYS.table(PlanTable.NODES), "x")
        client.set("berth:{default}:mine", "x")
        client.xadd(KEYS.log, {"entry": "no entry"})


def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_dump_decodes_every_value(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "dump", "--redis", url]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert "starts 2027-01-15T08:00:00Z in ClusterQueue queue" in text
    assert "before team/gang" in text
    assert "Admit team/a" in text
    assert "capacity of 1 evicted Workloads in ClusterQueue queue until 2027-01-15T08:00:00Z" in text
    assert "moved 2027-01-15T08:00:00Z under AdmissionPolicy packing" in text
    assert "2 deleted Workloads: 1.5 GPU-hours used" in text

    assert main(["store", "dump", "--redis", url, "--only", "runs,plan", "-o", "json"]) == ExitCode.DONE
    plan, run = shown(capsys)
    assert (plan["value"], run["field"]) == ("1 5 1", "team/train/00")
    assert run["value"] == [[1.0, "u", 7.0]]


def test_a_store_in_order_is_said_to_be(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", "--redis", url]) == ExitCode.DONE
    assert "all 11 values can be read" in capsys.readouterr().out


def test_a_check_names_what_cannot_be_read(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(url)

    assert main(["store", "check", "--redis", url, "-o", "json"]) == ExitCode.DOES_NOT_HOLD

    found = {
        (one["kind"], one["field"] if one["kind"] != "log" else ""): one["fault"] for one in shown(capsys)
    }
    assert found == {
        ("reservations", "team/bad/uid"): "Corrupt",
        ("promises", "team/other"): "OtherSchema",
        ("leases", "\\xff"): "Corrupt",
        ("nodes", ""): "Foreign",
        ("mine", ""): "Foreign",
        ("log", ""): "Corrupt",
    }
    assert main(["store", "check", "--redis", url]) == ExitCode.DOES_NOT_HOLD
    assert "expected a planned start in schema 1, found schema 2" in capsys.readouterr().out


async def _make_workloads(kubeconfig: str) -> str:
    """Make the cluster of a waiting Workload and a finished one; return the waiting one's uid."""
    now = to_rfc3339(time.time())
    async with await KubeClient.connect(kubeconfig) as client:
        await install_kinds(client)
        await create(client, NAMESPACES, _object("v1", "Namespace", "team"))
        for name in ("gang", "done-1"):
            container = {"name": "main", "image": "x"}
            pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            obj = _object("kueue.x-k8s.io/v1beta2", "Workload", name, namespace="team")
            await create(client, WORKLOADS, {**obj, "spec": {"queueName": "q", "podSets": [pod_set]}})
        met = {"status": "True", "message": "", "lastTransitionTime": now}
        conditions = [
            {**met, "type": "Admitted", "reason": "Admitted"},
            {**met, "type": "Finished", "reason": "Succeeded"},
        ]
        body = json.dumps({"status": {"conditions": conditions}}).encode()
        await client.merge_patch(WORKLOADS, "done-1", body, "team", subresource="status")
        found: dict[str, Any] = json.loads(await client.get(WORKLOADS, "gang", "team"))
        return str(found["metadata"]["uid"])


async def _lead(kubeconfig: str) -> None:
    lease = _object("coordination.k8s.io/v1", "Lease", "berth-default", namespace="team")
    renewed = to_rfc3339(time.time()).replace("Z", ".000000Z")
    spec = {"holderIdentity": "leader", "leaseDurationSeconds": 600, "renewTime": renewed}
    async with await KubeClient.connect(kubeconfig) as client:
        await create(client, LEASES, {**lease, "spec": {**spec, "leaseTransitions": 5}})


def _object(version: str, kind: str, name: str, **metadata: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


def test_a_rebuild_keeps_what_is_true_and_learns_from_the_cluster(
    url: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uid = asyncio.run(_make_workloads(bare_server))
    spoil(url)
    with redis.Redis.from_url(url) as client:
        row = to_row(make_promise("gang")).replace(b"uid-gang", uid.encode()[:8])
        client.hset(KEYS.table(PlanTable.PROMISES), "team/gang", row)

    arguments = ["store", "rebuild", "--redis", url, "--kubeconfig", bare_server, "-o", "json"]
    assert main(arguments) == ExitCode.DONE

    # The promise is of another life of its Workload, lease and hold have no owner; a move counts anyhow.
    assert shown(capsys) == {"unreadable": 6, "untrue": 3, "kept": 4, "learned": 1}
    assert main(["store", "check", "--redis", url]) == ExitCode.DONE
    capsys.readouterr()
    assert (
        main(["store", "dump", "--redis", url, "--only", "runs,reservations", "-o", "json"]) == ExitCode.DONE
    )
    assert [one["field"].rpartition("/")[0] for one in shown(capsys)] == ["team/a", "team/done", "team/train"]


def test_beside_a_live_leader_a_rebuild_wants_to_be_forced(
    url: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_make_workloads(bare_server))
    asyncio.run(_lead(bare_server))
    arguments = ["store", "rebuild", "--redis", url, "--kubeconfig", bare_server, "--namespace", "team"]

    assert main(arguments) == ExitCode.DOES_NOT_HOLD
    assert "leader leads: it renewed the Lease team/berth-default" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == ExitCode.DONE


@pytest.mark.parametrize(
    ("arguments", "code", "want"),
    [
        pytest.param(
            ["burn", "--redis", "redis://x"], 2, "is not an action of berth store", id="an unknown action"
        ),
        pytest.param(["dump"], 2, "--redis", id="no store named"),
        pytest.param(["dump", "--redis", "ftp://x"], 2, "is no store's URL", id="no URL"),
        pytest.param(
            ["dump", "--redis", "redis://x", "--only", "quota"],
            2,
            "'quota' is not one of",
            id="an unknown kind",
        ),
        pytest.param(["check", "--redis", "redis://127.0.0.1:1"], 3, "does not answer", id="no server there"),
    ],
)
def test_wrong_usage_and_a_store_that_is_not_there(
    arguments: list[str], code: int, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", *arguments]) == code
    assert want in capsys.readouterr().err
