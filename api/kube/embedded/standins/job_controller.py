"""A simulated Job controller, which creates the pods of Jobs and maintains their status.

Embedded server only.

A real control plane has its own Job controller, and a second one would interfere with it.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from api.keys import COMPLETION_INDEX
from api.kube.client import KubeClient
from api.kube.embedded.standins.job_plan import JobPlan, Tally, plan_job
from api.kube.embedded.standins.mirror import StandInCache
from api.kube.embedded.standins.objects import Job, Pod
from api.kube.embedded.standins.work import WorkQueue
from api.kube.errors import KubeError, NotFound
from api.kube.informer import Change, ChangeType
from api.kube.listing import Key
from api.kube.resources import JOBS, PODS

_NAME_SIGNS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
# A pod's name is also its host name, with at most 63 characters, so the Job's part of it is truncated.
_MAX_BASE: Final = 63 - _SUFFIX_LENGTH - 1
# Changes of pods within this time cause a single sync of their Job, so that a gang does not cause a status
# write for each member. The real controller waits one second.
_BATCH_SECONDS: Final = 0.05
_CONTROLLER: Final = "kubernetes.io/job-controller"


class JobController:
    """Watches Jobs and their pods and executes each Job's plan.

    The plan must take into account writes that the watch has not returned yet: created pods are kept in
    `_unseen` until the watch shows them, stopped ones in their Tally.
    """

    def __init__(self, client: KubeClient, mirror: StandInCache, *, speed: float = 1.0) -> None:
        self._client = client
        self._mirror = mirror
        self._speed = speed
        self._queue = WorkQueue("job controller", self._sync)
        self._tallies: dict[str, Tally] = {}
        self._unseen: dict[str, dict[Key, Pod]] = {}
        self._keys: dict[str, Key] = {}
        self._pod_decoder = msgspec.json.Decoder(Pod)
        mirror.job_listeners.append(self._job_changed)
        mirror.pod_listeners.append(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    def _job_changed(self, change: Change[Job]) -> None:
        metadata = change.object.metadata
        key = (metadata.namespace, metadata.name)
        if change.type is ChangeType.DELETED:
            # By uid, so that a new Job of the same name starts without state.
            for memory in (self._tallies, self._unseen, self._keys):
                memory.pop(metadata.uid, None)
            return
        self._keys[metadata.uid] = key
        self._queue.add(key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        owner = pod.owner_uid
        key = self._keys.get(owner)
        self._unseen.get(owner, {}).pop((pod.metadata.namespace, pod.metadata.name), None)
        if key is None:
            return
        tally = self._tallies.setdefault(owner, Tally())
        tally.seen.add(pod.metadata.uid)
        if _has_just_failed(change, tally):
            tally.last_failure = datetime.now(UTC)
        if change.type is ChangeType.DELETED:
            _remember_gone(tally, pod)
        self._queue.add_after(key, _BATCH_SECONDS)

    async def _sync(self, key: Key) -> float | None:
        job = self._mirror.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or _is_anothers(job):
            return None
        uid = job.metadata.uid
        tally = self._tallies.setdefault(uid, Tally())
        now = datetime.now(UTC)
        # The watch shows newer states than the responses to creations.
        pods = {**self._unseen.get(uid, {}), **self._mirror.pods_by_owner.get(uid, {})}
        plan = plan_job(job, pods.values(), tally, now=now, speed=self._speed)
        await self._carry_out(job, plan, tally)
        if job.is_finished:
            return await self._expire(job, now)
        return plan.look_again_seconds

    async def _carry_out(self, job: Job, plan: JobPlan, tally: Tally) -> None:
        for pod in plan.stop:
            await self._stop(pod, tally)
        for index in plan.create:
            await self._make(job, index, tally)
        if plan.status is not None:
            await self._write_status(job, plan.status)

    async def _stop(self, pod: Pod, tally: Tally) -> None:
        metadata = pod.metadata
        # Before the request, because the watch may report the deletion before the response arrives.
        tally.released.add(metadata.uid)
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace)
        except NotFound:
            return
        except KubeError:
            tally.released.discard(metadata.uid)
            raise

    async def _make(self, job: Job, index: int | None, tally: Tally) -> None:
        namespace = job.metadata.namespace
        body = msgspec.json.encode(pod_of(job, index))
        pod = self._pod_decoder.decode(await self._client.create(PODS, body, namespace))
        if pod.metadata.uid not in tally.seen:
            self._unseen.setdefault(job.metadata.uid, {})[namespace, pod.metadata.name] = pod

    async def _write_status(self, job: Job, status: dict[str, Any]) -> None:
        metadata = job.metadata
        # With the version that the plan is based on: if the Job was resumed or suspended meanwhile,
        # it is planned again.
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": status}
        await self._client.merge_patch(
            JOBS, metadata.name, msgspec.json.encode(body), metadata.namespace, subresource="status"
        )

    async def _expire(self, job: Job, now: datetime) -> float | None:
        """Delete a finished Job when its TTL has expired; return the remaining seconds if it has not."""
        seconds = job.spec.ttl_seconds_after_finished
        finished = job.condition("Complete") or job.condition("Failed")
        if seconds is None or finished is None or finished.last_transition_time is None:
            return None
        due = datetime.fromisoformat(finished.last_transition_time) + timedelta(seconds=seconds)
        left = (due - now).total_seconds()
        if left > 0:
            return left
        await self._client.delete(JOBS, job.metadata.name, job.metadata.namespace)
        return None


def _is_anothers(job: Job) -> bool:
    return job.spec.managed_by not in (None, _CONTROLLER)


def _has_just_failed(change: Change[Pod], tally: Tally) -> bool:
    pod, before = change.object, change.previous
    if pod.metadata.uid in tally.released or pod.status.phase == "Succeeded":
        return False
    is_failed = pod.status.phase == "Failed" or pod.is_leaving
    return is_failed and not (before and (before.status.phase == "Failed" or before.is_leaving))


def _remember_gone(tally: Tally, pod: Pod) -> None:
    if pod.metadata.uid in tally.released:
        tally.released.discard(pod.metadata.uid)
    elif pod.status.phase != "Succeeded":
        tally.failed += 1
    elif pod.index is None:
        tally.succeeded += 1
    else:
        tally.succeeded_indexes.add(pod.index)


def pod_of(job: Job, index: int | None) -> dict[str, Any]:
    """Return the body of a new pod of `job`; in an Indexed Job the pod of `index`."""
    template: dict[str, Any] = msgspec.json.decode(job.spec.template)
    metadata = job.metadata
    given = template.get("metadata") or {}
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    spec = dict(template.get("spec") or {})
    stem = metadata.name
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        spec.setdefault("hostname", f"{metadata.name}-{index}")
        spec["containers"] = [_with_index(each) for each in spec.get("containers") or ()]
        stem = f"{metadata.name}-{index}"
    suffix = "".join(random.choices(_NAME_SIGNS, k=_SUFFIX_LENGTH))
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{stem[:_MAX_BASE]}-{suffix}",
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _with_index(container: dict[str, Any]) -> dict[str, Any]:
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": path}},
    }
    return {**container, "env": [*(container.get("env") or ()), variable]}
