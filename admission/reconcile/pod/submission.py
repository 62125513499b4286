"""The Workloads that pods would get if they were submitted, alone or in groups: for questions asked before.

The pods go through the defaults of the webhook, its checks and the same translation as in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from admission.decisions.api_writes import Event, Write
from admission.reconcile.job.context import JobContext
from admission.reconcile.job.submission import Submission, seen_workload, with_metadata
from admission.reconcile.pod.compose import create
from admission.reconcile.pod.defaults import group_fault, placed_fault, pod_defaults
from admission.reconcile.pod.view import PodView
from api.jobs.pod import Pod, to_pod
from api.objects.cluster import PodObject
from api.parsing.times import to_rfc3339

_Pods = list[tuple[Pod, bytes]]


def is_waiting_pod(manifest: Mapping[str, Any]) -> bool:
    """Return whether the object is a pod that names a queue, has no controller and has not been started.

    Other pods are what they are in a cluster: some use places, and those of a controller are counted by it.
    """
    if (manifest.get("apiVersion"), manifest.get("kind")) != ("v1", "Pod"):
        return False
    try:
        pod = to_pod(msgspec.convert(manifest, PodObject))
    except (msgspec.ValidationError, ValueError):
        # The reader of its kind says what is wrong.
        return False
    return bool(pod.queue_name) and pod.owner is None and not pod.node and not pod.is_finished


def submissions_of_pods(
    manifests: Iterable[Mapping[str, Any]], context: JobContext, *, namespace: str, now: float
) -> Iterator[Submission]:
    """Yield what becomes of pods of `is_waiting_pod`, of a group together.

    `namespace` is used where a pod names none, `now` is in Unix seconds.
    """
    units: dict[tuple[str, str, str], _Pods] = {}
    for manifest in manifests:
        pod, raw = _created(manifest, context, namespace, now)
        fault = placed_fault(pod) or group_fault(pod)
        if fault is not None:
            yield Submission(workload=None, notes=(f"Pod {pod}: {fault}",))
        elif not pod.is_managed:
            note = f"Pod {pod} would not be queued: the configuration does not queue such pods"
            yield Submission(workload=None, notes=(note,))
        else:
            unit = (pod.namespace, pod.group, "" if pod.group else pod.name)
            units.setdefault(unit, []).append((pod, raw))
    for pods in units.values():
        yield _submission(pods, context, now)


def _created(
    manifest: Mapping[str, Any], context: JobContext, namespace: str, now: float
) -> tuple[Pod, bytes]:
    """Return the pod as the API server would show it once it is created."""
    body = with_metadata(manifest, namespace)
    # kubectl writes null for a manifest that was never submitted.
    body["metadata"]["creationTimestamp"] = body["metadata"].get("creationTimestamp") or to_rfc3339(now)
    body["status"] = {"phase": "Pending"}
    pod = to_pod(msgspec.convert(body, PodObject))
    for path, value in pod_defaults(pod, body, context, creator="", has_default_queue=False).items():
        section, name = path
        body[section] = {**(body.get(section) or {}), name: value}
    return to_pod(msgspec.convert(body, PodObject)), msgspec.json.encode(body)


def _submission(pods: Sequence[tuple[Pod, bytes]], context: JobContext, now: float) -> Submission:
    view = PodView(pods, None, context=context, now=now)
    actions = create(view)
    notes = [one.note for one in actions if isinstance(one, Event)]
    bodies = [one.body for one in actions if isinstance(one, Write)]
    if not actions:
        name = f"{view.first.namespace}/{view.group}"
        notes.append(f"pod group {name} would wait for {view.missing} more of its {view.wanted} pods")
    return Submission(workload=seen_workload(bodies[0], now) if bodies else None, notes=tuple(notes))
