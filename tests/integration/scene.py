"""A scene: one namespace of a cluster with queues of its own, and the words in which tests speak of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.controlplane import Rest, RestError
from tests.integration.manifests import (
    KUEUE,
    POOL,
    Object,
    condition,
    is_true,
    kueue_object,
    make_job,
    make_workload,
    quota,
    said,
)
from tests.integration.waiting import PATIENCE_SECONDS, wait_for


class Scene:
    """Objects of one namespace. Those without one get its name as prefix, so that scenes do not meet."""

    def __init__(self, rest: Rest, namespace: str, *, pool: str) -> None:
        """`pool`: which nodes its flavors lead to by default."""
        self.rest = rest
        self.namespace = namespace
        self.pool = pool
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.workloads = f"/apis/{KUEUE}/namespaces/{namespace}/workloads"
        self.local_queues = f"/apis/{KUEUE}/namespaces/{namespace}/localqueues"
        self.events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"

    # --- setting it ---------------------------------------------------------------------------------

    def scoped(self, name: str) -> str:
        """Return the name of this scene's object `name` that has no namespace."""
        return f"{self.namespace}-{name}"

    def create_flavor(self, name: str = "flavor", *, pool: str | None = None) -> str:
        """Create a ResourceFlavor that leads to a pool of nodes; return its full name."""
        body = kueue_object(
            "ResourceFlavor", {"name": self.scoped(name)}, {"nodeLabels": {POOL: pool or self.pool}}
        )
        self.rest.create(f"/apis/{KUEUE}/resourceflavors", body)
        return self.scoped(name)

    def create_cluster_queue(self, name: str, *groups: Object, **spec: Any) -> str:
        """Create a ClusterQueue with these resource groups for all namespaces; return its full name."""
        fields = {"namespaceSelector": {}, "resourceGroups": list(groups), **spec}
        self.rest.create(
            f"/apis/{KUEUE}/clusterqueues", kueue_object("ClusterQueue", {"name": self.scoped(name)}, fields)
        )
        return self.scoped(name)

    def create_local_queue(self, name: str, cluster_queue: str) -> None:
        """Create a LocalQueue that leads to a ClusterQueue, given by its full name."""
        body = kueue_object("LocalQueue", {"name": name}, {"clusterQueue": cluster_queue})
        self.rest.create(self.local_queues, body)

    def create_queue(self, name: str = "main", *, cpus: int = 4, **spec: Any) -> str:
        """Create LocalQueue, ClusterQueue and flavor of `cpus` CPUs; return the ClusterQueue's full name."""
        flavor = self.create_flavor(f"{name}-flavor")
        cluster_queue = self.create_cluster_queue(name, quota(flavor, nominal=cpus), **spec)
        self.create_local_queue(name, cluster_queue)
        return cluster_queue

    def create_priority(self, name: str, value: int) -> str:
        """Create a WorkloadPriorityClass; return its full name."""
        body = {
            "apiVersion": KUEUE,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": self.scoped(name)},
            "value": value,
        }
        self.rest.create(f"/apis/{KUEUE}/workloadpriorityclasses", body)
        return self.scoped(name)

    def create_job(self, name: str, **fields: Any) -> None:
        """Create a Job: see `make_job`."""
        self.rest.create(self.jobs, make_job(name, **fields))

    def create_workload(self, name: str, **fields: Any) -> None:
        """Create a Workload without any Job: see `make_workload`."""
        self.rest.create(self.workloads, make_workload(name, **fields))

    def delete_job(self, name: str) -> None:
        """Delete a Job and what it owns, as kubectl does."""
        self.rest.delete(f"{self.jobs}/{name}", {"propagationPolicy": "Background"})

    def set_active(self, job: str, *, active: bool) -> None:
        """Let the Job's Workload queue, or not."""
        name = self.wait_workload(job)["metadata"]["name"]
        self.rest.patch(f"{self.workloads}/{name}", {"spec": {"active": active}})

    def write_status(self, workload: str, *conditions: Object, **fields: object) -> None:
        """Write conditions and fields of a Workload's status as its program, over the version it has now."""
        path = f"{self.workloads}/{workload}"

        def is_written() -> bool:
            now = self.rest.get(path)
            types = {one["type"] for one in conditions}
            kept = [one for one in now["status"].get("conditions", ()) if one["type"] not in types]
            status = {**now["status"], **fields, "conditions": [*kept, *conditions]}
            try:
                self.rest.request("PUT", f"{path}/status", {**now, "status": status})
            except RestError as error:
                if error.status != 409:
                    raise
                return False
            return True

        wait_for(is_written, f"the status of {path}")

    def release(self, workload: str) -> None:
        """Give the quota of an evicted Workload back, as its program does once the work has stopped."""
        self.write_status(
            workload,
            said("QuotaReserved", "Pending", "The work has stopped"),
            said("Admitted", "NoReservation", "The workload has no reservation"),
            admission=None,
        )

    # --- looking at it ------------------------------------------------------------------------------

    def job(self, name: str) -> Object:
        """Return a Job."""
        return dict(self.rest.get(f"{self.jobs}/{name}"))

    def pods_of(self, job: str) -> list[Object]:
        """Return the Pods that the Job owns."""
        return [pod for pod in self.rest.get(self.pods)["items"] if _owner(pod) == job]

    def workloads_of(self, job: str) -> list[Object]:
        """Return the Workloads that the Job owns."""
        return [workload for workload in self.rest.get(self.workloads)["items"] if _owner(workload) == job]

    def workload(self, name: str) -> Object:
        """Return a Workload by its own name."""
        return dict(self.rest.get(f"{self.workloads}/{name}"))

    def workload_of(self, job: str) -> Object | None:
        """Return the Job's only Workload, None where it has none yet."""
        found = self.workloads_of(job)
        assert len(found) < 2, f"{job} has {len(found)} Workloads"
        return found[0] if found else None

    def reasons_about(self, name: str) -> set[str]:
        """Return the reasons of all Events about an object of this name."""
        return {one["reason"] for one in self.rest.get(self.events)["items"] if _regarding(one) == name}

    def notes_about(self, name: str) -> list[str]:
        """Return the notes of all Events about an object of this name."""
        return [one["note"] for one in self.rest.get(self.events)["items"] if _regarding(one) == name]

    def cluster_queue(self, name: str) -> Object:
        """Return a ClusterQueue by its full name."""
        return dict(self.rest.get(f"/apis/{KUEUE}/clusterqueues/{name}"))

    def local_queue(self, name: str) -> Object:
        """Return a LocalQueue."""
        return dict(self.rest.get(f"{self.local_queues}/{name}"))

    # --- waiting for it -----------------------------------------------------------------------------

    def wait_workload(
        self,
        job: str,
        is_reached: Callable[[Object], bool] = lambda _: True,
        what: str = "there",
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> Object:
        """Return the Job's Workload once `is_reached` says so of it."""
        seen: list[Object | None] = [None]

        def probe() -> Object | None:
            seen[0] = found = self.workload_of(job)
            return found if found is not None and is_reached(found) else None

        try:
            return wait_for(self.patiently(probe), what, timeout_seconds=timeout_seconds)
        except AssertionError as error:
            raise AssertionError(f"Workload of {job}: {error}; it is {seen[0]}") from error

    def wait_true(self, job: str, *types: str, timeout_seconds: float = PATIENCE_SECONDS) -> Object:
        """Return the Job's Workload once these conditions are True."""
        return self.wait_workload(
            job,
            lambda workload: all(is_true(workload, type_) for type_ in types),
            " and ".join(types),
            timeout_seconds=timeout_seconds,
        )

    def wait_admitted(self, *jobs: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Return when these Jobs are admitted and no longer suspended."""
        for job in jobs:
            self.wait_true(job, "Admitted", timeout_seconds=timeout_seconds)
            wait_for(self.patiently(partial(self._is_started, job)), f"{job} started")

    def _is_started(self, job: str) -> bool:
        return not self.job(job)["spec"]["suspend"]

    def wait_pending(self, job: str, reason: str = "WaitingForQuota", says: str = "") -> Object:
        """Return QuotaReserved=False of the Job's Workload once it carries this reason and contains `says`.

        What is said first may go by less than all that the test has made: each kind comes by its own watch.
        """
        workload = self.wait_workload(
            job,
            lambda found: (
                (shown := condition(found, "QuotaReserved")).get("reason") == reason
                and says in shown["message"]
            ),
            f"{reason}: {says}" if says else reason,
        )
        return condition(workload, "QuotaReserved")

    def wait_finished(self, *jobs: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Return when these Jobs are complete and their Workloads finished."""
        for job in jobs:
            self.wait_true(job, "Finished", timeout_seconds=timeout_seconds)
            assert is_true(self.job(job), "Complete"), self.job(job)["status"]

    def wait_events(self, name: str, *reasons: str) -> None:
        """Return when there are Events about an object of this name with these reasons."""
        wait_for(lambda: self.reasons_about(name) >= set(reasons), f"Events {reasons} about {name}")

    def wait_active(self, cluster_queue: str, *, reason: str, says: str = "") -> Object:
        """Return a ClusterQueue's Active condition once it carries this reason and ends with `says`."""
        path = f"/apis/{KUEUE}/clusterqueues/{cluster_queue}"
        found = self.rest.wait(
            path,
            lambda queue: (
                (shown := condition(queue, "Active")).get("reason") == reason
                and shown["message"].endswith(says)
            ),
        )
        return condition(found, "Active")

    @staticmethod
    def patiently(probe: Callable[[], Any]) -> Callable[[], Any]:
        """Return a probe that takes a server's refusal or silence for not yet."""

        def patient() -> Any:
            try:
                return probe()
            except (RestError, OSError):
                return None

        return patient


def _owner(obj: Object) -> str:
    return next((one["name"] for one in obj["metadata"].get("ownerReferences") or ()), "")


def _regarding(event: Object) -> str:
    return str(event.get("regarding", {}).get("name", ""))
