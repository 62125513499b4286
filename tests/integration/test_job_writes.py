"""The writes about Jobs and Workloads, accepted by a real API server in the order they are asked for.

The Job controller is played by hand, so that both kinds of servers can be shown: from 1.36 on a suspended
Job's template may change again by itself; before, its start time has to be cleared first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from admission.controller.writer.requests import request_of
from admission.decisions.api_writes import Purpose, Write
from admission.decisions.decision import Admit, Evict
from admission.reconcile.decision_writes import admit_write, evict_write
from admission.reconcile.job.reconcile import reconcile_job
from admission.reconcile.workload.context import LifecycleContext, Owner
from admission.reconcile.workload.reconcile import reconcile_workload
from api.parsing.times import to_rfc3339
from api.reasons import EvictionReason
from api.workload import Admission, PodSetAssignment, Workload
from tests import parts
from tests.admission.world import START, Object, context, encode, read_job, read_workload
from tests.controlplane import ControlPlane, find_assets
from tests.controlplane.definitions import install_definitions

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("job-writes")]

STATUS_TIME = to_rfc3339(START)
OLDER = "--feature-gates=MutableSchedulingDirectivesForSuspendedJobs=false"


class Cluster:
    """One Job and its Workload on a real server; the test is user, cycle and Job controller."""

    def __init__(self, plane: ControlPlane, *, is_modern: bool) -> None:
        self.rest = plane.rest
        self.is_modern = is_modern
        self.namespace = plane.create_namespace()
        self.jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        self.workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{self.namespace}/workloads"

    def job(self) -> Object:
        """Return the Job as it is stored."""
        found: Object = self.rest.get(f"{self.jobs}/j")
        return found

    def workload(self) -> tuple[Workload, bytes]:
        """Return the only Workload as it is stored."""
        (found,) = self.rest.get(self.workloads)["items"]
        return read_workload({"kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta2", **found})

    def send(self, write: Write | None) -> None:
        """Carry out one write."""
        assert write is not None
        method, path, content_type = request_of(write)
        self.rest.request(method, path, json.loads(write.body), content_type=content_type)

    def settle(self) -> list[Purpose]:
        """Carry out what is asked for until nothing is; return why each write was made."""
        done: list[Purpose] = []
        while len(done) < 20:
            writes = [action for action in self._look() if isinstance(action, Write)]
            if not writes:
                return done
            self.send(writes[0])
            done.append(writes[0].purpose)
        raise AssertionError(f"no rest: {done}")

    def _look(self) -> Iterator[Any]:
        job = {"kind": "Job", **self.job()}
        items = self.rest.get(self.workloads)["items"]
        pairs = [read_workload(item) for item in items]
        yield from reconcile_job(read_job(job), encode(job), pairs, context(), now=START)
        for workload, raw in pairs:
            lifecycle = LifecycleContext(owner=Owner.JOB)
            yield from reconcile_workload(workload, raw, lifecycle, now=START).actions

    def admit(self) -> None:
        """Give the Workload quota."""
        workload, raw = self.workload()
        assignment = PodSetAssignment(name="main", count=2, flavors={"cpu": "f"}, usage={"cpu": 2000})
        decision = Admit(
            key=workload.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
            is_admitted=True,
        )
        self.send(admit_write(decision, raw, now=START, awaits_pods=True))

    def evict(self) -> None:
        """Take the Workload's quota back."""
        workload, raw = self.workload()
        decision = Evict(
            key=workload.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            reason=EvictionReason.PREEMPTED,
            message="for another",
        )
        self.send(evict_write(decision, raw, now=START))

    def run_job_controller(self) -> None:
        """Report on the Job's pods as the Job controller would."""
        is_suspended = self.job()["spec"]["suspend"]
        condition = {
            "type": "Suspended",
            "status": "True" if is_suspended else "False",
            "lastTransitionTime": STATUS_TIME,
        }
        status: Object = {"conditions": [condition], "active": 0 if is_suspended else 2}
        status["ready"] = status["active"]
        if not is_suspended:
            status["startTime"] = STATUS_TIME
        elif self.is_modern:
            status["startTime"] = None
        self.rest.patch(f"{self.jobs}/j/status", {"status": status})

    def end_job(self) -> None:
        """Finish the Job as the Job controller would."""
        kinds = ("SuccessCriteriaMet", "Complete")
        conditions = [{"type": k, "status": "True", "lastTransitionTime": STATUS_TIME} for k in kinds]
        ended = {"conditions": conditions, "completionTime": STATUS_TIME, "succeeded": 2}
        self.rest.patch(f"{self.jobs}/j/status", {"status": {**ended, "active": 0, "ready": 0}})


@pytest.fixture(scope="module")
def older_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Give a server that keeps the template of a suspended Job that has started."""
    parts.need("controlplane")
    with ControlPlane(find_assets(), tmp_path_factory.mktemp("older"), apiserver_flags=(OLDER,)) as plane:
        yield plane


@pytest.fixture(params=["a server that thaws templates itself", "an older server"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Give a namespace of a cluster without a Job controller, of either kind."""
    is_modern = "older" not in request.param
    plane = request.getfixturevalue("bare_control_plane" if is_modern else "older_control_plane")
    install_definitions(plane.rest)
    return Cluster(plane, is_modern=is_modern)


def make_job() -> Object:
    """Return a Job with what makes comparing hard: defaults, doubled variables, quantities in other words."""
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 2}},
    }
    spec = {"restartPolicy": "Never", "containers": [container], "nodeSelector": {"gpu": "h100"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "completions": 2,
            "template": {"metadata": {"labels": {"team": "a"}}, "spec": spec},
        },
    }


def test_a_job_is_started_stopped_restored_started_again_and_finished(cluster: Cluster) -> None:
    cluster.rest.create(cluster.jobs, make_job())
    assert cluster.settle() == [Purpose.CREATE_WORKLOAD, Purpose.WAIT]
    original = cluster.job()["spec"]["template"]

    cluster.admit()
    assert cluster.settle() == [Purpose.START_JOB]
    assert cluster.job()["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "h100", "zone": "a"}
    cluster.run_job_controller()
    assert cluster.settle() == [Purpose.SYNC_PODS]

    cluster.evict()
    assert cluster.settle() == [Purpose.STOP_JOB]
    cluster.run_job_controller()
    thaw = [] if cluster.is_modern else [Purpose.CLEAR_START_TIME]
    assert cluster.settle() == [*thaw, Purpose.RESTORE_JOB, Purpose.RELEASE]
    assert cluster.job()["spec"]["template"] == original

    cluster.admit()
    assert cluster.settle() == [Purpose.START_JOB]
    cluster.run_job_controller()
    cluster.settle()
    cluster.end_job()
    assert cluster.settle() == [Purpose.FINISH, Purpose.REMOVE_FINALIZER]

    workload, _ = cluster.workload()
    assert workload.is_finished
    assert not workload.has_finalizer


def test_a_waiting_job_that_is_edited_updates_its_workload_once(cluster: Cluster) -> None:
    cluster.rest.create(cluster.jobs, make_job())
    cluster.settle()

    edit = {"spec": {"parallelism": 1, "template": {"metadata": {"annotations": {"note": "x"}}}}}
    cluster.rest.patch(f"{cluster.jobs}/j", edit)

    assert cluster.settle() == [Purpose.UPDATE_WORKLOAD]
    assert cluster.workload()[0].pod_sets[0].count == 1
