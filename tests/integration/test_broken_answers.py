"""Single answers of the API server fail, watches break, the server hangs: none of it loses a Job.

One controller behind a proxy that returns wrong answers goes through all of it, test after test: what one
leaves behind must not hurt the next either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from admission.controller.writer.in_flight_limit import FIRST_IN_FLIGHT
from tests.integration.conftest import Cluster
from tests.integration.manifests import is_true
from tests.integration.proxy import Proxy, Rule
from tests.integration.replica import SHORT_LEASE, Replica
from tests.integration.scene import Scene
from tests.integration.short_jobs import QUOTA, check_each_ran_once, create_jobs
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness

# In one process, for the sake of one controller.
pytestmark = pytest.mark.xdist_group("broken-answers")


@pytest.fixture(scope="module")
def replica(
    door: Proxy, embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Give the controller behind the door, leading."""
    folder = tmp_path_factory.mktemp("controller")
    flags = ("--namespace", embedded_cluster.new_scene().namespace)
    replica = Replica(door.write_kubeconfig(folder), folder, *flags, config=SHORT_LEASE)
    with replica.child:
        replica.wait_leading()
        yield replica


@pytest.fixture
def scene(embedded_scene: Scene) -> Scene:
    """Give a scene of the embedded cluster."""
    return embedded_scene


@pytest.mark.covers("004_25")
def test_admitting_lists_nothing_for_all_that_is_known_comes_by_watches(
    scene: Scene, proxy: Proxy, replica: Replica
) -> None:
    assert replica.child.is_running()
    scene.create_queue(cpus=4)
    scene.create_job("first", cpus=1)
    scene.wait_admitted("first")
    kinds = "clusterqueues|localqueues|resourceflavors|workloads|jobs|nodes|pods"
    # One object is read again where its write met a conflict; that is no list.
    lists = proxy.add("GET", rf"/({kinds})(\?(?!.*watch=)|$)")

    for number in range(3):
        scene.create_job(f"job-{number}", cpus=1)
    scene.wait_admitted("job-0", "job-1", "job-2")

    assert lists.seen == 0


# Where admissions are written, and where Jobs are started and stopped.
STATUS = r"/workloads/[^/]+/status"
JOB = r"/jobs/[^/?]+(\?|$)"


@pytest.mark.parametrize(
    "break_",
    [
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=409, times=4), id="admissions meet a conflict"
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=500, times=4), id="admissions meet an error"
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=429, times=2, headers={"Retry-After": "1"}),
            id="admissions meet a server that wants a pause",
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, is_answer_lost=True, times=4),
            id="answers to admissions get lost",
        ),
        pytest.param(
            lambda door: door.add("PATCH", JOB, is_answer_lost=True, times=4), id="answers to starts get lost"
        ),
        pytest.param(lambda door: door.add("PATCH", JOB, status=503, times=4), id="starts fail"),
        pytest.param(lambda door: door.add("PATCH", JOB, status=409, times=4), id="starts conflict"),
        pytest.param(
            lambda door: door.add("POST", r"/workloads(\?|$)", is_answer_lost=True, times=4),
            id="answers to creations get lost",
        ),
        pytest.param(lambda door: door.add("GET", "watch=", status=410, times=8), id="watches are too old"),
        pytest.param(lambda door: door.add("GET", "watch=", status=500, times=8), id="watches fail"),
    ],
)
def test_every_job_runs_once_though(
    break_: Callable[[Proxy], Rule], scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    scene.create_job("early", seconds=0.3)
    scene.wait_finished("early")

    broken = break_(proxy)
    proxy.cut_watches()
    jobs = create_jobs(scene, "job", 6)

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, ["early", *jobs])
    assert broken.seen > 0
    assert replica.child.is_running()


def test_objects_whose_reads_and_writes_all_fail_keep_no_other_job_waiting(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    """As many objects fail as writes may be in flight at first."""
    scene.create_queue(cpus=FIRST_IN_FLIGHT + QUOTA)
    failing = r"/workloads/job-bad-\d+-"
    rules = [
        proxy.add("PUT", failing + "[^/]+/status", status=500),
        proxy.add("GET", failing + r"[^/]+(\?|$)", status=503),
    ]
    bad = create_jobs(scene, "bad", FIRST_IN_FLIGHT)
    wait_for(lambda: rules[1].seen > 2 * FIRST_IN_FLIGHT, "reads that fail")

    good = create_jobs(scene, "good", 2 * QUOTA)
    scene.wait_finished(*good)
    assert not any(is_true(scene.workload_of(name), "Admitted") for name in bad)

    for rule in rules:
        proxy.remove(rule)
    scene.wait_finished(*bad)
    witness.catch_up()
    assert {job: witness.starts(job) for job in [*bad, *good]} == dict.fromkeys([*bad, *good], 1)
    assert replica.child.is_running()


def test_watches_that_break_again_and_again_lose_nothing(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    jobs: list[str] = []
    for turn in range(5):
        assert proxy.cut_watches() > 0
        jobs += create_jobs(scene, f"turn-{turn}", 2)
        scene.wait_workload(jobs[-1])

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    assert replica.child.is_running()


def test_a_server_that_hangs_costs_the_leader_its_lease_and_no_job(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    lost_before = replica.log().count("stopped_leading")
    gate = Event()
    held: list[Rule] = [proxy.add(method, "", gate=gate) for method in ("GET", "POST", "PUT", "PATCH")]
    proxy.cut_watches()
    jobs = create_jobs(scene, "job", 4)

    wait_for(lambda: replica.log().count("stopped_leading") > lost_before, "the lease lost")
    for rule in held:
        proxy.remove(rule)
    gate.set()

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)


def is_watching(replica: Replica, plural: str) -> bool:
    """Return whether the replica's watch of a kind is connected, by its log."""
    events = (line.split(" ", 3) for line in replica.log().splitlines() if f" resource={plural}" in line)
    last = [words[2] for words in events if words[2] in ("watch-failed", "informer_recovered")]
    return last[-1:] != ["watch-failed"]


def test_a_leader_that_wins_its_lease_back_lists_no_workload(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    scene.create_job("early", seconds=0.3)
    scene.wait_finished("early")
    # An earlier test may have broken it.
    wait_for(lambda: is_watching(replica, "workloads"), "the watch of Workloads")
    begun = replica.log().count(" deciding ")
    gate = Event()
    held = proxy.add("PUT", "/leases/", gate=gate)
    lists = proxy.add("GET", r"/workloads(\?(?!.*watch=)|$)")

    lost_before = replica.log().count("stopped_leading")
    wait_for(lambda: replica.log().count("stopped_leading") > lost_before, "the lease lost")
    proxy.remove(held)
    gate.set()
    jobs = create_jobs(scene, "late", 3)

    scene.wait_finished(*jobs)
    assert replica.log().count(" deciding ") > begun
    assert replica.has_logged("continuing")
    assert lists.seen == 0
    check_each_ran_once(witness, scene, ["early", *jobs])
